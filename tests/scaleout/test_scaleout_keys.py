"""The keys of a run: what contains one is not sent to workers, and none comes back from them."""

from collections.abc import Mapping
from typing import Any

import pytest

from trioeval.errors import UsageError
from trioeval.loading.load import parse_suite
from trioeval.run import prepare
from trioeval.scaleout.run_keys import RunKeys
from trioeval.scaleout.sent_keys import check_sent
from trioeval.scaleout.workers import SourceLoader

KEY = "sk-scaleout-0123456789abcdef"
OWN = "openai:chat:m"


def suite(**more: Any) -> dict[str, Any]:
    return {
        "providers": ["echo"],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": "a"}}],
    } | more


def model(key: str, **config: Any) -> dict[str, Any]:
    return {"id": OWN, "config": {"apiBaseUrl": "http://127.0.0.1:9", "apiKey": key, **config}}


def refusal(source: Any, **environ: str) -> str:
    """Return why a suite is not sent; empty if it is."""
    loader = SourceLoader(source)
    prepared = prepare(
        parse_suite(source, environ=environ) if isinstance(source, Mapping) else source,
        environ=environ,
    )
    try:
        check_sent((loader.for_workers(prepared),), RunKeys.of(prepared))
    except UsageError as error:
        return str(error)
    return ""


# What is sent.


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (suite(providers=["echo", model(KEY)]), "$.providers[1].config.apiKey"),
        (suite(providers=[model(KEY)], description=f"uses {KEY}"), "$.description"),
        (
            suite(
                tests=[{"assert": [{"type": "llm-rubric", "value": "x", "provider": model(KEY)}]}]
            ),
            "$.tests[0].assert[0].provider.config.apiKey",
        ),
        (
            suite(providers=[model("{{env.A_KEY}}")], tests=[{"vars": {"word": f"say {KEY}"}}]),
            "$.tests[0].vars.word",
        ),
        (suite(env={"MY_TOKEN": KEY}), "$.env.MY_TOKEN"),
        (
            suite(tasks=[{"id": "t", "type": "prompt_eval", **suite(providers=[model(KEY)])}]),
            "$.tasks[0].providers[0].config.apiKey",
        ),
        (suite(providers=[model("word-word")]), "$.providers[0].config.apiKey"),
        (
            suite(
                providers=[model("{{env.A_KEY}}")],
                defaultTest={"provider": model(f"{KEY}-unused")},
                tests=[{"vars": {"word": "a"}, "provider": "echo"}],
            ),
            "$.defaultTest.provider.config.apiKey",
        ),
    ],
)
@pytest.mark.parametrize("is_loaded", [False, True])
def test_a_suite_with_a_key_is_refused_with_its_place(
    data: dict[str, Any], place: str, *, is_loaded: bool
) -> None:
    if "tasks" in data:
        data = {"tasks": data["tasks"]}
    source: Any = parse_suite(data, environ={}) if is_loaded else data
    text = refusal(source, A_KEY=KEY)
    assert f"\n  {place}\n" in text
    assert "write {{env.NAME}} in their place" in text
    assert KEY not in text
