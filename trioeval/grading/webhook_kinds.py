"""The type whose judge is a server of the user's own."""

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from trioeval.errors import GradingError, Problem
from trioeval.grading.kind import Asking, Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Outside
from trioeval.grading.script_results import finite
from trioeval.grading.subject import Subject
from trioeval.grading.text import is_template, quote

WEBHOOK = "webhook"
"""Its value is a URL, which may hold a credential."""

_RIGHT = "a URL that begins with http:// or https://"


async def _webhook(
    subject: Subject, value: Any, _assertion: Assertion, outside: Outside
) -> Finding:
    context = {"prompt": subject.prompt, "vars": dict(subject.vars)}
    reply = await outside.post(value, {"output": subject.output, "context": context})
    match reply:
        case {"pass": bool(passed)}:
            return Finding(passed, _reason(reply, passed=passed), score=_score(reply))
        case _:
            msg = f"the webhook must answer with an object whose pass is true or false, got {quote(reply)}"
            raise GradingError(msg)


def _score(reply: Mapping[str, Any]) -> float | None:
    if "score" not in reply:
        return None
    try:
        return finite(reply["score"], "the webhook's score")
    except ValueError as error:
        raise GradingError(str(error)) from error


def _reason(reply: Mapping[str, Any], *, passed: bool) -> str:
    reason = reply.get("reason")
    if isinstance(reason, str) and reason:
        return reason
    return f"the webhook says {'yes' if passed else 'no'}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _check_url(assertion: Assertion) -> Iterator[Problem]:
    if not is_template(assertion.value) and not _is_url(assertion.value):
        yield Problem(".value", f"must be {_RIGHT}, got {quote(assertion.value)}")


def _is_url(text: str) -> bool:
    try:
        parts = urlsplit(text.strip())
    except ValueError:
        return False
    return parts.scheme in {"http", "https"} and bool(parts.hostname)


KINDS: Kinds = {WEBHOOK: Kind(_RIGHT, _is_text, Asking(_webhook), check=_check_url)}
