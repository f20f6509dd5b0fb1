# Apart from `providers.vendors.gemini`: replies are read without anything of requests.
"""What the fields of a generateContent reply mean: output, why it ended, filters, tokens.

Pure. The service leaves out what is empty or 0, so that hardly any field must be there.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.providers.base import Guardrails
from trioeval.providers.http.replies import (
    FILTERED,
    NOT_JSON,
    count,
    field,
    objects,
    read_json,
    read_number,
    text,
)
from trioeval.usage import Usage

FINISH_REASONS: Mapping[str, str] = {"STOP": "stop", "MAX_TOKENS": "length"}
"""By the service's own word; others stay what they are, in lower case."""

FILTERS = frozenset(
    {
        "SAFETY",
        "RECITATION",
        "BLOCKLIST",
        "PROHIBITED_CONTENT",
        "SPII",
        "IMAGE_SAFETY",
        "IMAGE_PROHIBITED_CONTENT",
        "IMAGE_RECITATION",
        "MODEL_ARMOR",
    }
)
"""Reasons to finish that are those of a filter."""

IN_EVERY_REPLY = frozenset({"candidates", "promptFeedback", "usageMetadata", "modelVersion"})
"""Fields one of which every reply has."""


@attrs.frozen(kw_only=True)
class Answer:
    """What one candidate says."""

    output: Any
    finish_reason: str | None = None
    guardrails: Guardrails | None = None
    log_probs: tuple[float, ...] | None = None
    is_empty: bool = False
    """Whether there is no part, and no filter that took it away; an empty text is one."""

    @property
    def is_refusal(self) -> bool:
        """Whether a filter kept the answer back, or the prompt from the model."""
        return self.guardrails is not None and self.guardrails.flagged


def read_blocked(data: Mapping[str, Any]) -> Answer | None:
    """The answer where the prompt was not let through to the model; None if it was."""
    feedback = data.get("promptFeedback")
    blocked = text(feedback, "blockReason")
    if blocked is None:
        return None
    reason = text(feedback, "blockReasonMessage") or blocked
    return Answer(
        output=reason,
        finish_reason="content_filter",
        guardrails=Guardrails(flagged=True, flagged_input=True, reason=reason),
    )


def read_candidate(candidate: Mapping[str, Any], *, as_json: bool, show_thinking: bool) -> Answer:
    """The answer that a candidate is.

    Args:
        candidate: The first one of a reply.
        as_json: Whether a text that is JSON is taken as its value.
        show_thinking: Whether its thoughts stand before the text.
    """
    reason = text(candidate, "finishReason")
    parts = objects(candidate, "content", "parts")
    output = _output(parts, as_json, show_thinking)
    if reason in FILTERS:
        why = text(candidate, "finishMessage") or reason
        return Answer(
            output=output or FILTERED,
            finish_reason="content_filter",
            guardrails=Guardrails(flagged=True, flagged_output=True, reason=why),
        )
    rated = bool(objects(candidate, "safetyRatings"))
    return Answer(
        output=output,
        finish_reason=None if reason is None else FINISH_REASONS.get(reason, reason.lower()),
        guardrails=Guardrails(flagged=False) if rated else None,
        log_probs=_log_probs(candidate),
        is_empty=not parts,
    )


def read_usage(data: Any) -> Usage:
    """Tokens; what tools put into the prompt, and thoughts, are reported apart and added here."""
    usage = field(data, "usageMetadata")
    thoughts = count(usage, "thoughtsTokenCount")
    return Usage(
        prompt=_sum(count(usage, "promptTokenCount"), count(usage, "toolUsePromptTokenCount")),
        completion=_sum(count(usage, "candidatesTokenCount"), thoughts),
        total=count(usage, "totalTokenCount"),
        cached=count(usage, "cachedContentTokenCount"),
        reasoning=thoughts,
    )


def _output(parts: Sequence[Mapping[str, Any]], as_json: bool, show_thinking: bool) -> Any:  # noqa: FBT001
    shown = [part for part in parts if show_thinking or not part.get("thought")]
    if not all(isinstance(part.get("text"), str) for part in shown):
        return shown
    thoughts = "".join(part["text"] for part in shown if part.get("thought"))
    said = "".join(part["text"] for part in shown if not part.get("thought"))
    if as_json and (data := read_json(said)) is not NOT_JSON:
        return data
    return f"Thinking: {thoughts}\n\n{said}" if thoughts else said


def _log_probs(candidate: Mapping[str, Any]) -> tuple[float, ...] | None:
    chosen = objects(candidate, "logprobsResult", "chosenCandidates")
    found = [read_number(one.get("logProbability")) for one in chosen]
    numbers = tuple(number for number in found if number is not None)
    return numbers if numbers and len(numbers) == len(found) else None


def _sum(*counts: int | None) -> int | None:
    """The sum of what was reported; None if nothing was."""
    known = [one for one in counts if one is not None]
    return sum(known) if known else None
