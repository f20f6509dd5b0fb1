"""Media of a reply in the request to its judge: parts of the last message of the user.

A request names the bytes by URIs with a mark, and has the media beside its prompt; the bytes take the place
of the URIs when it is sent. So records and keys of the cache are about short texts; estimates count the media
by their kinds.
"""

import json
from collections.abc import Collection, Sequence
from typing import Any

from trioeval.errors import GradingError, ProviderError
from trioeval.grading import Assertion
from trioeval.grading.registry import split_type
from trioeval.providers.abilities import accepted_media
from trioeval.providers.base import BASE64_MARK, DATA_MARK, Media
from trioeval.providers.config import ProviderSettings
from trioeval.providers.messages import to_messages

SEEING_KINDS = frozenset({"llm-rubric"})
"""Types of assertions that judge all media of a reply; others judge those that their output names."""

_INTRODUCTION = (
    "The output that you judge includes the attached media. Judge the media themselves; "
    "a text that begins with trioeval:// only stands for them."
)
_AUDIO_FORMATS = {"audio/mpeg": "mp3"}


def judged_media(assertion: Assertion, prompt: str, media: Sequence[Media]) -> tuple[Media, ...]:
    """Return the media of a reply that a judge must get.

    Args:
        assertion: The assertion; a transform of it decides what the judge gets.
        prompt: The filled prompt of the judge.
        media: The media of the reply.
    """
    gets_all = split_type(assertion.type)[0] in SEEING_KINDS and assertion.transform is None
    return tuple(one for one in media if gets_all or one.uri in prompt)


def attach(
    prompt: str, media: Sequence[Media], settings: ProviderSettings, judge: str
) -> tuple[str, tuple[Media, ...]]:
    """Return the prompt with the parts of media, and the media that it names.

    Audio whose transcript is in the prompt is left out for a judge that does not accept audio.

    Raises:
        GradingError: The judge does not accept media without which there is nothing to judge.
    """
    accepted = accepted_media(settings)
    _check(prompt, media, accepted, judge)
    sent = tuple(one for one in media if one.kind in accepted)
    if not sent:
        return prompt, ()
    try:
        messages = to_messages(prompt)
    except ProviderError:  # raised again by the call itself
        return prompt, ()
    parts = [{"type": "text", "text": _INTRODUCTION}, *map(_part, sent)]
    place = max((n for n, one in enumerate(messages) if one["role"] == "user"), default=None)
    if place is None:
        messages = [*messages, {"role": "user", "content": parts}]
    else:
        content = messages[place].get("content") or []
        before = [{"type": "text", "text": content}] if isinstance(content, str) else [*content]
        messages[place] = {**messages[place], "content": [*before, *parts]}
    return json.dumps(messages, ensure_ascii=False), sent


def _check(prompt: str, media: Sequence[Media], accepted: Collection[str], judge: str) -> None:
    for one in media:
        if one.kind not in accepted and (one.kind != "audio" or one.uri in prompt):
            raise GradingError(
                f"the grader {judge} does not accept {one.kind}; use one that does, "
                "or a transform of the assertion whose output is text",
                metadata={"grader": judge},
            )


def _part(media: Media) -> dict[str, Any]:
    if media.kind == "image":
        return {"type": "image_url", "image_url": {"url": media.uri + DATA_MARK}}
    if media.kind == "audio":
        form = _AUDIO_FORMATS.get(media.mime_type) or media.mime_type.partition("/")[2]
        audio = {"data": media.uri + BASE64_MARK, "format": form}
        return {"type": "input_audio", "input_audio": audio}
    inline = {"mimeType": media.mime_type, "data": media.uri + BASE64_MARK}
    return {"inlineData": inline}  # only Gemini accepts video
