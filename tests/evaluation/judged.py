"""Assertion types with the simplest judges, and suites of them."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import trioeval
from trioeval.grading import KINDS, Assertion, Finding, Kind, Kinds, Subject
from trioeval.grading.kind import ExternalJudge
from trioeval.grading.services import ExternalServices

SCHEMA = {"type": "object", "properties": {"pass": {"type": "boolean"}}}


async def _asks(
    subject: Subject, value: Any, _assertion: Assertion, outside: ExternalServices
) -> Finding:
    prompt = outside.grader.render(
        "{{output}} | {{rubric}}", {"output": subject.text, "rubric": value}
    )
    answer = await outside.grader.ask(prompt, schema=SCHEMA)
    return Finding(answer.text.startswith("yes"), answer.text)


async def _is_like(
    subject: Subject, value: Any, _: Assertion, outside: ExternalServices
) -> Finding:
    one, other = await outside.together(
        [lambda: outside.grader.embed(subject.text), lambda: outside.grader.embed(value)]
    )
    return Finding(one == other, f"{one} and {other}")


async def _is_of_class(
    subject: Subject, value: Any, _: Assertion, outside: ExternalServices
) -> Finding:
    labels = await outside.grader.classify(subject.text)
    return Finding(value in labels, str(dict(labels)))


async def _is_harmless(
    subject: Subject, _: Any, __: Assertion, outside: ExternalServices
) -> Finding:
    flags = await outside.grader.moderate("the prompt", subject.text)
    return Finding(not flags, str([flag.category for flag in flags]))


def _kind(judge: Callable[..., Awaitable[Finding]], *roles: Any) -> Kind:
    return Kind(
        "text", lambda value: isinstance(value, str), ExternalJudge(judge, frozenset(roles))
    )


JUDGED: Kinds = {
    **KINDS,
    "asks": _kind(_asks, "text"),
    "is-like": _kind(_is_like, "embedding"),
    "is-of-class": _kind(_is_of_class, "classification"),
    "is-harmless": _kind(_is_harmless, "moderation"),
    "search-rubric": _kind(_asks, "text"),
}


def suite_of(
    *assertions: Mapping[str, Any], directory: Path | None = None, **more: Any
) -> trioeval.Suite:
    """A suite whose provider `mine` replies to one test with these assertions."""
    document = {
        "providers": ["mine"],
        "prompts": ["{{word}}"],
        "tests": [{"vars": {"word": "hello"}, "assert": list(assertions)}],
        **more,
    }
    return trioeval.parse_suite(document, kinds=JUDGED, directory=directory, environ={})
