r"""What a reply tells of its model's reasoning, and what it says without that.

Pure. Services put thoughts into fields of their own, which stand in `raw`; unless a config says
`showThinking: false`, adapters put them into the output as well, behind the word `Thinking:`.
"""

from collections.abc import Iterator
from typing import Any

from trioeval.providers.answers import field, objects, text
from trioeval.providers.base import Reply

_SHOWN = "Thinking: "


def thoughts_in(raw: Any) -> list[str]:
    """The thoughts in the body of a reply, in order; none where a service tells none.

    Example:
        >>> thoughts_in({"content": [{"type": "thinking", "thinking": "Hm."}, {"type": "text"}]})
        ['Hm.']
    """
    parts = (*_of_chat(raw), *_of_blocks(raw), *_of_gemini(raw), *_of_responses(raw))
    return [thought for thought in parts if thought]


def without_thinking(reply: Reply) -> Any:
    r"""The output of a reply without the thoughts that an adapter has put into it.

    Example:
        >>> raw = {"choices": [{"message": {"content": "4", "reasoning": "2 + 2"}}]}
        >>> without_thinking(Reply(output="Thinking: 2 + 2\n\n4", raw=raw))
        '4'
    """
    said = reply.output
    if not isinstance(said, str) or _SHOWN not in said:
        return said
    for thought in thoughts_in(reply.raw):
        said = _without(said, f"{_SHOWN}{thought}")
    return said


def _without(said: str, shown: str) -> str:
    before, found, after = said.partition(shown)
    if not found:
        return said
    if not after.strip("\n"):
        return before.rstrip("\n")
    return before + after.removeprefix("\n").removeprefix("\n")


def _of_chat(raw: Any) -> Iterator[str]:
    """Of chat completions."""
    for choice in objects(raw, "choices")[:1]:
        message = field(choice, "message")
        parts = [one for part in objects(message, "content") for one in objects(part, "thinking")]
        told = "".join(text(one, "text") or "" for one in parts)
        yield told or text(message, "reasoning") or text(message, "reasoning_content") or ""


def _of_blocks(raw: Any) -> Iterator[str]:
    """Of the Messages API."""
    for block in objects(raw, "content"):
        yield text(block, "thinking") or ""


def _of_gemini(raw: Any) -> Iterator[str]:
    for candidate in objects(raw, "candidates")[:1]:
        parts = objects(candidate, "content", "parts")
        yield "".join(text(part, "text") or "" for part in parts if part.get("thought"))


def _of_responses(raw: Any) -> Iterator[str]:
    for item in objects(raw, "output"):
        if item.get("type") == "reasoning":
            parts = objects(item, "summary") or objects(item, "content")
            yield "\n".join(told for part in parts if (told := text(part, "text")))
