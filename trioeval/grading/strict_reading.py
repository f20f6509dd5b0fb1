"""Asking a judge, and reading its reply without guessing.

A reply is read as what it was asked for, or not at all. One that cannot be used is asked for once more,
with a hint of what is wrong with it; a second one is an error that shows its beginning, never a verdict. In
lenient mode nothing is asked twice, and what cannot be used is a failure, as in promptfoo.
"""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

import attrs

from trioeval.errors import GradingError
from trioeval.grading.kind import Finding, OutsideJudge
from trioeval.grading.model import Assertion
from trioeval.grading.services import CUT_OFF, Answer, Outside, without_thoughts
from trioeval.grading.subject import Subject
from trioeval.text import json_text, parse_json, quote

T = TypeVar("T")

_EXCERPT = 200  # characters


class UnusableReplyError(GradingError):
    """What a judge answered cannot be read as what it was asked for.

    Args:
        message: What is wrong with it.
        replies: All that was answered, in order.
    """

    def __init__(self, message: str, *, replies: tuple[str, ...] = ()) -> None:
        self.replies = replies
        super().__init__(message, metadata={"graderReplies": list(replies)} if replies else None)


@attrs.frozen
class Read(Generic[T]):
    """What a judge said."""

    value: T
    prompt: str
    """What it was asked."""
    replies: tuple[str, ...]
    """What it answered, the last of which was read."""


Reader = Callable[[Answer], T]
"""Reads a reply; raises `UnusableReplyError` with what is wrong with it."""


async def ask(
    outside: Outside,
    prompt: str,
    read: Reader[T],
    *,
    wanted: str,
    schema: Mapping[str, Any] | None = None,
) -> Read[T]:
    """What a judge says, asked once more if its first reply cannot be used. A checkpoint.

    Args:
        outside: Whom to ask, and how strictly to read.
        prompt: Rendered.
        read: Reads a reply.
        wanted: What the reply must be, for the sentence "Answer with … and nothing else".
        schema: JSON schema of the reply.

    Raises:
        UnusableReplyError: No reply can be used.
        GradingError: The judge could not be asked.
    """
    replies: list[str] = []
    asked = prompt
    while True:
        answer = await outside.grader.ask(asked, schema=schema, again=bool(replies))
        replies.append(answer.text)
        try:
            return Read(read(without_thoughts(answer)), asked, tuple(replies))
        except UnusableReplyError as error:
            if outside.lenient or len(replies) > 1:
                begin = quote(answer.text, _EXCERPT)
                fault = f"{error}; {CUT_OFF}" if answer.is_cut_off else error
                msg = f"the reply of the judge cannot be used: {fault}; it begins {begin}"
                raise UnusableReplyError(msg, replies=tuple(replies)) from None
            asked = with_hint(prompt, str(error), wanted)


def with_hint(prompt: str, fault: str, wanted: str) -> str:
    """A prompt that is asked again: a text, or a list of messages as JSON.

    Example:
        >>> print(with_hint("How is it?", "it has no score", "a number"))
        How is it?
        <BLANKLINE>
        Your last answer could not be used: it has no score. Answer with a number and nothing else.
    """
    hint = f"Your last answer could not be used: {fault}. Answer with {wanted} and nothing else."
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
    """A judge for which, in lenient mode, a reply that cannot be used is a failure, also under `not-`."""

    async def lenient(
        subject: Subject, value: Any, assertion: Assertion, outside: Outside
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


def told(*reads: Read[Any]) -> dict[str, Any]:
    """What is kept of questions and replies with a verdict; the prompt is that of the last one."""
    return {
        "renderedGradingPrompt": reads[-1].prompt,
        "graderReplies": [reply for one in reads for reply in one.replies],
    }


def names_of(**names: Any) -> dict[str, Any]:
    """What a prompt may name, and `__mark`, which fences what was not written by us.

    The mark comes from what it fences: nobody can write a text that closes its own fence. Equal names have
    equal marks, so that recordings and caches find them again.

    Raises:
        GradingError: Something in them is not JSON data.
    """
    try:
        digest = hashlib.sha256(json_text(names).encode("utf-8", "surrogatepass"))
    except (TypeError, RecursionError) as error:
        msg = f"a judge cannot be shown this: {error}"
        raise GradingError(msg) from error
    return {**names, "__mark": digest.hexdigest()[:16]}


def score_of(value: Any) -> float | None:
    """A finite number, or the text of one; None for anything else."""
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
    """The reason in a reply.

    Raises:
        UnusableReplyError: It is no text.
    """
    reason = found.get("reason")
    if isinstance(reason, str):
        return reason.strip() or otherwise
    if reason is None or lenient:
        return otherwise
    msg = f"its reason must be text, got {quote(reason)}"
    raise UnusableReplyError(msg)


def clamped(score: float) -> float:
    """A score between 0 and 1."""
    return min(1.0, max(0.0, score))
