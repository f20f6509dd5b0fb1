"""Questions to judges, and strict reading of their replies.

A reply is read in the requested form, or not at all. An unusable reply is requested once more, with a hint
about its fault; a second one is an error that shows its beginning, never a verdict. In lenient mode no
question is repeated, and an unusable reply is a failure, as in promptfoo.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from trioeval.errors import GradingError
from trioeval.grading.kind import Finding, OutsideJudge
from trioeval.grading.model import Assertion
from trioeval.grading.services import CUT_OFF, ExternalServices, JudgeReply, without_thoughts
from trioeval.grading.subject import Subject
from trioeval.text import json_text, parse_json, quote

T = TypeVar("T")

_EXCERPT = 200  # characters


class UnusableReplyError(GradingError):
    """A judge's reply does not have the requested form.

    Args:
        message: The fault of the reply.
        replies: All replies, in order.
    """

    def __init__(self, message: str, *, replies: tuple[str, ...] = ()) -> None:
        self.replies = replies
        super().__init__(message, metadata={"graderReplies": list(replies)} if replies else None)


@attrs.frozen
class JudgeReading(Generic[T]):
    """A reply of a judge that was read."""

    value: T
    prompt: str
    """The judge's prompt."""
    replies: tuple[str, ...]
    """The judge's replies; the last one was read."""


ReplyReader = Callable[[JudgeReply], T]
"""Reads a reply; raises `UnusableReplyError` with its fault."""


async def ask(
    outside: ExternalServices,
    prompt: str,
    read: ReplyReader[T],
    *,
    expected: str,
    schema: Mapping[str, Any] | None = None,
) -> JudgeReading[T]:
    """Ask a judge, once more if its first reply is unusable. A checkpoint.

    Args:
        outside: The judge, and the strictness of reading.
        prompt: The rendered prompt.
        read: Reads a reply.
        expected: What the reply must be, for the sentence "Answer with … and nothing else".
        schema: JSON schema of the reply.

    Raises:
        UnusableReplyError: No reply is usable.
        GradingError: The judge could not be called.
    """
    replies: list[str] = []
    full_prompt = prompt
    while True:
        answer = await outside.grader.ask(full_prompt, schema=schema, again=bool(replies))
        replies.append(answer.text)
        try:
            return JudgeReading(read(without_thoughts(answer)), full_prompt, tuple(replies))
        except UnusableReplyError as error:
            if outside.lenient or len(replies) > 1:
                begin = quote(answer.text, _EXCERPT)
                fault = f"{error}; {CUT_OFF}" if answer.is_cut_off else error
                msg = f"the judge's reply is unusable: {fault}; it begins {begin}"
                raise UnusableReplyError(msg, replies=tuple(replies)) from None
            full_prompt = with_hint(prompt, str(error), expected)


def with_hint(prompt: str, fault: str, expected: str) -> str:
    """Return a prompt with a hint, for another attempt: a text, or a list of messages as JSON.

    Example:
        >>> print(with_hint("How is it?", "it has no score", "a number"))
        How is it?
        <BLANKLINE>
        Your last answer could not be used: it has no score. Answer with a number and nothing else.
    """
    hint = f"Your last answer could not be used: {fault}. Answer with {expected} and nothing else."
    if prompt.lstrip().startswith("["):
        try:
            messages = parse_json(prompt)
        except ValueError:
            return f"{prompt}\n\n{hint}"
        match messages:
            case [*before, {"role": "user", "content": str(content), **rest}]:
                last = {"role": "user", "content": f"{content}\n\n{hint}", **rest}
                return json_text([*before, last])
            case [{"role": str()}, *_]:
                return json_text([*messages, {"role": "user", "content": hint}])
    return f"{prompt}\n\n{hint}"


def or_failure(judge: OutsideJudge) -> OutsideJudge:
    """Wrap a judge so that, in lenient mode, an unusable reply is a failure, also under `not-`."""

    async def lenient(
        subject: Subject, value: Any, assertion: Assertion, outside: ExternalServices
    ) -> Finding:
        try:
            return await judge(subject, value, assertion, outside)
        except UnusableReplyError as error:
            if not outside.lenient:
                raise
            metadata = {"graderReplies": list(error.replies)}
            return Finding(
                holds=False, reason=str(error), score=0.0, invertible=False, metadata=metadata
            )

    return lenient


def reading_metadata(*reads: JudgeReading[Any]) -> dict[str, Any]:
    """Return the metadata of questions and replies for a verdict; the prompt is that of the last one."""
    return {
        "renderedGradingPrompt": reads[-1].prompt,
        "graderReplies": [reply for one in reads for reply in one.replies],
    }


def names_of(**names: Any) -> dict[str, Any]:
    """Return the variables of a prompt, and `__mark`, which fences text that others wrote.

    The mark is derived from the fenced text: no text can contain its own mark. Equal variables have equal
    marks, so recordings and caches match.

    Raises:
        GradingError: A variable is not JSON data.
    """
    try:
        digest = hashlib.sha256(json_text(names).encode("utf-8", "surrogatepass"))
    except (TypeError, RecursionError) as error:
        msg = f"this cannot be shown to a judge: {error}"
        raise GradingError(msg) from error
    return {**names, "__mark": digest.hexdigest()[:16]}


def score_of(value: Any) -> float | None:
    """Return a finite number, or the number in a text; None for anything else."""
    if isinstance(value, str):
        try:
            value = parse_json(value.strip())
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if abs(number) < float("inf") else None


def reason_of(found: Mapping[str, Any], otherwise: str, *, lenient: bool = False) -> str:
    """Return the reason in a reply.

    Raises:
        UnusableReplyError: It is not text.
    """
    reason = found.get("reason")
    if isinstance(reason, str):
        return reason.strip() or otherwise
    if reason is None or lenient:
        return otherwise
    msg = f"its reason must be text, got {quote(reason)}"
    raise UnusableReplyError(msg)


def clamped(score: float) -> float:
    """Limit a score to the range from 0 to 1."""
    return min(1.0, max(0.0, score))
