"""Where the Gemini API is: its version is a part of the path."""

from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import Problem
from trioeval.providers.config import show
from trioeval.providers.endpoint import Endpoint, Service, read_endpoint

VERSION = "v1beta"

GOOGLE = Service(
    family="google",
    default_url="https://generativelanguage.googleapis.com",
    key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    host_variables=("GOOGLE_API_HOST",),
    url_variables=("GOOGLE_API_BASE_URL",),
    host_path="",
    key_header="x-goog-api-key",
    path=f"/{VERSION}",
)


def read_google(
    model: str, values: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[Endpoint | None, list[Problem]]:
    """The endpoint that an entry means; its `apiVersion` stands in the path. See `read_endpoint`."""
    version = values.get("api_version") or VERSION
    rest = {name: value for name, value in values.items() if name != "api_version"}
    if not version.isalnum():
        fault = f"must be letters and digits, as {VERSION}, got {show(version)}"
        return None, [Problem(".config.apiVersion", fault)]
    return read_endpoint(attrs.evolve(GOOGLE, path=f"/{version}"), model, rest, environ)
