"""Gemini on Vertex AI with an API key, which needs neither project nor region."""

import attrs
from vendor_cases import Mistake
from vendor_google import GENERATE, MODEL
from vendor_openai import DIGEST

from trioeval.errors import Problem
from trioeval.providers.vendors import vertex

BASE = "https://us-central1-aiplatform.googleapis.com/v1/publishers/google"
NO_PROJECT = Problem(
    ".config.projectId",
    "this provider needs a project",
    "set config.projectId, or GOOGLE_CLOUD_PROJECT in the environment or in a file given with --env-file",
)
IDS = "write vertex:<model>, vertex:embedding:<model>, vertex:image:<model> or vertex:video:<model>"

EXPRESS = attrs.evolve(
    GENERATE,
    name="vertex",
    reader=vertex.read,
    entry=f"vertex:{MODEL}",
    url=f"{BASE}/models/{MODEL}:generateContent",
    lane=f"vertex|{BASE}|{DIGEST}|-|{MODEL}",
    missing=NO_PROJECT,
    strangers=tuple(
        (data, message.replace("apiBaseUrl", "region, apiHost, apiBaseUrl"))
        for data, message in GENERATE.strangers
    ),
    mistakes=(
        *(
            Mistake({}, [Problem(".id", f'"{entry}" is not a valid Vertex id', IDS)], entry=entry)
            for entry in ("vertex:", "vertex:chat:", "vertex:live:gemini-2", "vertex:a b")
        ),
        Mistake(
            {},
            [
                Problem(
                    ".id",
                    '"text-bison" is not a known kind of Vertex model',
                    "a name with claude, gemini, llama, imagen in it decides how the model is called",
                )
            ],
            entry="vertex:text-bison",
        ),
        *(
            Mistake({key: value}, [Problem(f".config.{key}", fault)])
            for key, value, fault in (
                (
                    "region",
                    "a/b",
                    'must be the name of a region, such as us-central1, or global, got "a/b"',
                ),
                ("projectId", "?", 'must be the id of a project, got "?"'),
                ("expressMode", 1, "must be true or false, got 1"),
                (
                    "credentials",
                    1,
                    "must be credentials as JSON, or file://<path> (its value is not shown)",
                ),
            )
        ),
        Mistake({"expressMode": False}, [NO_PROJECT]),
    ),
)
