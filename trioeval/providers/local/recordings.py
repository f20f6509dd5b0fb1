"""Recorded replies: a JSONL file of prompts and replies, its reader, and its playback.

One JSON object a line; empty lines are skipped:

    {"prompt": "2 + 2 = ?", "output": "4", "latency_ms": 310, "model": "m-1",
     "usage": {"prompt": 7, "completion": 1, "total": 8}, "finish_reason": "stop"}
    {"prompt": "2 + 3 = ?", "error": {"kind": "rate_limited", "message": "slow down"}}

`prompt` is the exact text of the rendered prompt. A line has either `output` (any JSON value) or `error`, or
gives in `left_out` the reason why its output could not be written. All other fields are optional. An
incomplete last line, from a killed process or a full disk, is not an error.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, get_args

import attrs

from trioeval.errors import Fault, Problem, ProviderError, ProviderErrorKind
from trioeval.providers.base import Guardrails, Reply, ToolCall
from trioeval.providers.config import (
    did_you_mean,
    is_amount,
    is_flag,
    is_integer,
    is_json,
    is_number,
    nearest,
    show,
)
from trioeval.providers.media import decode_media
from trioeval.usage import Usage


@attrs.frozen
class RecordedError:
    """A recorded failure, instead of an output."""

    kind: ProviderErrorKind
    message: str
    status: int | None = None
    retry_after: float | None = None
    """Seconds that the provider asked to wait, ≥ 0."""
    fault: Fault | None = None
    """Its meaning for the lane; None is the default of the kind."""
    retries: int | None = None
    """Number of useful retries, ≥ 0; None is the default of the kind."""
    tokens: int | None = None
    """Tokens used by the failed call, ≥ 0; None if unknown, or reported by the usage of the recording."""
    money: float | None = None
    """US dollars spent by the failed call, ≥ 0; None if unknown."""


@attrs.frozen(kw_only=True)
class Recording:
    """One line of the file."""

    prompt: str
    output: Any = None
    error: RecordedError | None = None
    """The failure; None if there is an output."""
    left_out: Mapping[str, str] = attrs.field(factory=dict)
    """Fields of the reply that could not be written, each with the reason."""
    provider: str | None = None
    """Label or id of the suite's entry; None matches any."""
    entry_idx: int | None = None
    """Index of the suite's entry; None matches any."""
    test_idx: int | None = None
    """Index of the test; None matches any."""
    prompt_idx: int | None = None
    """Index of the prompt in the suite; None matches any."""
    repeat: int | None = None
    """Index of the test's repeat; None matches any."""
    model: str | None = None
    """The model that replied; None matches any."""
    latency_ms: float | None = None
    """Milliseconds of the recorded call, ≥ 0."""
    first_token_ms: float | None = None
    """Milliseconds to its first token, ≥ 0."""
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars, ≥ 0."""
    finish_reason: str | None = None
    text: str | None = None
    """The visible answer; None if it is the output."""
    tool_calls: tuple[ToolCall, ...] | None = None
    """The tools that the model requested; None without any."""
    reasoning: str | None = None
    refusal: str | None = None
    guardrails: Guardrails | None = None
    """The results of the service's filters; None without any."""
    log_probs: tuple[float, ...] | None = None
    media: tuple[str, ...] | None = None
    """Images, audio and video of the reply as `data:` URIs; None without any."""
    line: int | None = attrs.field(default=None, eq=False)
    """Line number in its file, from 1; None if it is not from a file."""

    @property
    def unlimited_values(self) -> Sequence[Sequence[Any]]:
        """All parts of the reply whose size nothing else limits; in each group none repeats another."""
        if self.error is not None:
            return ((self.error.message, self.finish_reason),)
        calls = [call.to_json() for call in self.tool_calls or ()]
        return (
            (self.output, self.model, self.finish_reason, self.log_probs),
            (self.text, self.reasoning, calls),
            (self.refusal,),
            (self.media,),
            (None if self.guardrails is None else self.guardrails.reason,),
        )

    def failure(self) -> ProviderError | None:
        """Return the recorded failure as an error that can be raised; None if there is an output."""
        error = self.error
        if error is None:
            return None
        return ProviderError(
            error.kind,
            error.message,
            status=error.status,
            retry_after=error.retry_after,
            fault=error.fault,
            retries=error.retries,
            tokens=error.tokens,
            usage=None if self.usage == Usage() else self.usage,
            money=error.money,
            finish_reason=self.finish_reason,
        )

    def reply(self) -> Reply:
        """Return the recorded reply."""
        return Reply(
            output=self.output,
            usage=self.usage,
            cost=self.cost,
            finish_reason=self.finish_reason,
            text=self.text,
            tool_calls=self.tool_calls or (),
            reasoning=self.reasoning,
            refusal=self.refusal,
            guardrails=self.guardrails,
            log_probs=self.log_probs,
            media=tuple(map(decode_media, self.media or ())),
            first_token=None if self.first_token_ms is None else self.first_token_ms / 1000,
            metadata={} if self.model is None else {"model": self.model},
        )


FIELDS = tuple(field.name for field in attrs.fields(Recording) if field.name != "line")
"""The fields of a line."""


@attrs.frozen(kw_only=True)
class RecordingFile:
    """The content of a file of recordings."""

    recordings: tuple[Recording, ...] = attrs.field(repr=False)
    problems: tuple[Problem, ...] = ()
    """The problems of its lines, each with file and line."""
    is_cut: bool = False
    """True if its last line is incomplete, and was skipped."""


def parse_file(content: bytes, file: str) -> RecordingFile:
    """Read the content of a file, called `file` in messages.

    Example:
        >>> lines = [b'{"prompt": "a", "output": "b"}', b'{"prompt": "c", "outp']
        >>> found = parse_file(bytes([10]).join(lines), "replies.jsonl")
        >>> [recording.output for recording in found.recordings], found.is_cut
        (['b'], True)
    """
    lines = content.split(b"\n")
    is_cut = _is_cut(lines[-1])
    if is_cut:
        lines.pop()
    recordings, problems = parse_recordings(lines, file)
    return RecordingFile(recordings=recordings, problems=problems, is_cut=is_cut)


def parse_recordings(
    lines: Iterable[bytes], file: str
) -> tuple[tuple[Recording, ...], tuple[Problem, ...]]:
    """Read complete lines.

    Args:
        lines: UTF-8, one object each.
        file: The name for messages.

    Returns:
        The recordings that could be read, and the problems, each with file and line.
    """
    recordings: list[Recording] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        read = _read_line(line, number)
        if isinstance(read, Recording):
            recordings.append(read)
        else:
            problems += (Problem(".id", text, file=file, line=number) for text in read)
    return tuple(recordings), tuple(problems)


def _is_cut(rest: bytes) -> bool:
    """Return whether the text after the last line end is the beginning of an object."""
    if not rest.lstrip().startswith(b"{"):
        return False
    try:
        json.loads(rest)
    except ValueError:
        return True
    except RecursionError:
        return False
    return False


def _read_line(line: bytes, number: int) -> Recording | list[str]:
    """Return the recording in a line, or the faults of the line."""
    try:
        data = json.loads(line.decode("utf-8-sig"))
    except UnicodeDecodeError:
        return ["the line is not UTF-8"]
    except (ValueError, RecursionError) as error:
        return [f"the line is not JSON: {error}"]
    if not isinstance(data, dict):
        return [f"a recording must be an object, got {show(data)}"]
    faults = list(_faults(data))
    if faults:
        return faults
    given = {name: value for name, value in data.items() if value is not None}
    if "error" in given:
        failure = given["error"]
        fault = None if failure.get("fault") is None else Fault(failure["fault"])
        given["error"] = RecordedError(**{**failure, "fault": fault})
    if "usage" in given:
        given["usage"] = Usage(**given["usage"])
    if "tool_calls" in given:
        given["tool_calls"] = tuple(ToolCall(**call) for call in given["tool_calls"])
    if "guardrails" in given:
        given["guardrails"] = Guardrails(**given["guardrails"])
    given |= {name: tuple(given[name]) for name in ("log_probs", "media") if name in given}
    return Recording(**given, line=number)


def _faults(data: Mapping[str, Any]) -> Iterable[str]:
    for name in data:
        if name not in FIELDS:
            close = nearest(str(name), FIELDS)
            hint = f"; {did_you_mean(close)}" if close else ""
            yield f'"{name}" is not a field of a recording{hint}'
    if not isinstance(data.get("prompt"), str):
        yield f"prompt must be text, got {show(data.get('prompt'))}"
    error, left_out = data.get("error"), data.get("left_out")
    has_lost = isinstance(left_out, dict) and "output" in left_out
    if ("output" in data) + (error is not None) + has_lost != 1:
        yield "a recording must have either an output or an error"
    if error is not None:
        yield from _error_faults(error)
    for name, (right, check) in CHECKS.items():
        value = data.get(name)
        if value is not None and not check(value):
            yield f"{name} must be {right}, got {show(value)}"


def _error_faults(error: Any) -> Iterable[str]:
    known = {"kind", "message", *ERROR_CHECKS}
    if not isinstance(error, dict) or not {"kind", "message"} <= set(error) <= known:
        yield f"error must be an object with kind and message, got {show(error)}"
        return
    kinds = get_args(ProviderErrorKind)
    if error["kind"] not in kinds:
        yield f"error.kind must be one of {', '.join(kinds)}, got {show(error['kind'])}"
    if not isinstance(error["message"], str):
        yield f"error.message must be text, got {show(error['message'])}"
    for name, (right, check) in ERROR_CHECKS.items():
        value = error.get(name)
        if value is not None and not check(value):
            yield f"error.{name} must be {right}, got {show(value)}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 0 and is_json(value)


def _is_usage(usage: Any) -> bool:
    names = {field.name for field in attrs.fields(Usage)}
    return (
        isinstance(usage, dict)
        and usage.keys() <= names
        and all(count is None or _is_count(count) for count in usage.values())
    )


def _is_log_probs(value: Any) -> bool:
    # -Infinity is the logarithm of probability 0.
    return isinstance(value, list | tuple) and all(
        isinstance(number, float) or is_number(number) for number in value
    )


def _is_media(value: Any) -> bool:
    try:
        return isinstance(value, list | tuple) and all(
            isinstance(one, str) and one.startswith("data:") and decode_media(one) for one in value
        )
    except ValueError:
        return False


def _is_guardrails(value: Any) -> bool:
    names = {field.name for field in attrs.fields(Guardrails)}
    return (
        isinstance(value, dict)
        and value.keys() <= names
        and "flagged" in value
        and isinstance(value.get("reason"), str | None)
        and all(is_flag(part) for name, part in value.items() if name != "reason")
    )


CALLS = 'a list of objects with "name", "arguments" (an object or text) and "id" (text or left out)'
"""The form of tool calls, for messages."""


def are_calls(value: Any) -> bool:
    """Return whether a value is tool calls as JSON data."""
    return isinstance(value, list | tuple) and all(map(_is_call, value))


def _is_call(value: Any) -> bool:
    match value:
        case {"name": str(), "arguments": dict() | str() as arguments, **rest}:
            known = rest.keys() <= {"id"} and isinstance(rest.get("id"), str | None)
            return known and is_json(arguments)
        case _:
            return False


def _is_reasons(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


_FAULTS = tuple(fault.value for fault in Fault)
_COUNTS = ", ".join(field.name for field in attrs.fields(Usage))
_INDEX = ("a whole number of at least 0", _is_count)
_AMOUNT = ("a number of at least 0", is_amount)
_TEXT = ("text", _is_text)

CHECKS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "left_out": ("an object of texts", _is_reasons),
    "provider": _TEXT,
    "entry_idx": _INDEX,
    "test_idx": _INDEX,
    "prompt_idx": _INDEX,
    "repeat": _INDEX,
    "model": _TEXT,
    "latency_ms": _AMOUNT,
    "first_token_ms": _AMOUNT,
    "usage": (f"an object of token counts ({_COUNTS})", _is_usage),
    "cost": _AMOUNT,
    "finish_reason": _TEXT,
    "text": _TEXT,
    "tool_calls": (CALLS, are_calls),
    "reasoning": _TEXT,
    "refusal": _TEXT,
    "guardrails": (
        "an object with flagged, flagged_input, flagged_output (true or false) and reason (text)",
        _is_guardrails,
    ),
    "log_probs": ("a list of numbers", _is_log_probs),
    "media": ("a list of data: URIs of images, audio or video", _is_media),
}
"""The requirement on the value of each field."""

ERROR_CHECKS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "status": ("a whole number", is_integer),
    "retry_after": _AMOUNT,
    "fault": (f"one of {', '.join(_FAULTS)}", lambda value: value in _FAULTS),
    "retries": _INDEX,
    "tokens": _INDEX,
    "money": _AMOUNT,
}
"""The requirement on the value of each field of an error."""


# Playback of recordings: the choice of the recording for the next call.
#
# A recording may specify the entry, test, prompt and repeat of a suite for which it was made, and a call
# knows its own. So of all recordings of a prompt those of the same entry are chosen, of these those of the
# same test, and so on; where none match, all remain. That way each call of a run gets its own reply, in
# whatever order the calls come, and a file without these fields, or a suite that has changed since, is served
# as well as possible.
#
# The remaining recordings are returned for the first, second, … call with this choice; the last one is
# repeated.


PLACES = ("entry_idx", "test_idx", "prompt_idx", "repeat")
"""Fields that distinguish recordings of one prompt, the most specific first."""


@attrs.frozen
class RecordingRequest:
    """The request of a call to a tape."""

    prompt: str
    """The exact text."""
    model: str | None = None
    """Excludes recordings of other models; those without a model remain."""
    entry_idx: int | None = None
    """Index of the calling entry in the suite; None if unknown. The next fields are similar."""
    test_idx: int | None = None
    prompt_idx: int | None = None
    repeat: int | None = None


@attrs.define(eq=False, repr=False)
class _MatchingRecordings:
    """Recordings that match equally well, and the number of them that were returned."""

    takes: list[Recording]
    _decided: int = 0
    """Number of `PLACES` by which they were chosen."""
    played: int = 0
    _parts: dict[int | None, Self] | None = None

    @property
    def next(self) -> Recording:
        return self.takes[min(self.played, len(self.takes) - 1)]

    def narrowed(self, query: RecordingRequest) -> Self:
        """Return those that match best."""
        if len(self.takes) == 1 or self._decided == len(PLACES):
            return self
        place = PLACES[self._decided]
        if self._parts is None:
            self._parts = self._split(place)
        part = self._parts.get(getattr(query, place), self._parts[None])
        return part.narrowed(query)

    def _split(self, place: str) -> dict[int | None, Self]:
        """Return those of each value, and under None all of them."""
        make, decided = type(self), self._decided + 1
        parts: dict[int | None, Self] = {None: make(self.takes, decided)}
        for take in self.takes:
            value = getattr(take, place)
            if value is not None:
                parts.setdefault(value, make([], decided)).takes.append(take)
        return parts


@attrs.define(eq=False, repr=False)
class Tape:
    """Recordings with a reading position for each choice of them; belongs to one open provider.

    Its state grows with the distinct recordings that were requested, not with the calls.
    """

    recordings: tuple[Recording, ...]
    _by_prompt: dict[str, list[Recording]] = attrs.field(init=False, factory=dict)
    _by_request: dict[tuple[str, str | None], _MatchingRecordings] = attrs.field(
        init=False, factory=dict
    )

    def __attrs_post_init__(self) -> None:
        for recording in self.recordings:
            self._by_prompt.setdefault(recording.prompt, []).append(recording)

    def find(self, query: RecordingRequest) -> Recording | None:
        """Return the next matching recording, or None if there is none, without consuming it."""
        takes = self._takes(query)
        return None if takes is None else takes.next

    def advance(self, query: RecordingRequest) -> None:
        """Consume the recording that `find` returns for the same request."""
        takes = self._takes(query)
        if takes is not None:
            takes.played += 1

    def _takes(self, query: RecordingRequest) -> _MatchingRecordings | None:
        key = query.prompt, query.model
        takes = self._by_request.get(key)
        if takes is None:
            fitting = [
                take
                for take in self._by_prompt.get(query.prompt, ())
                if query.model is None or take.model in (None, query.model)
            ]
            if not fitting:
                return None
            takes = self._by_request[key] = _MatchingRecordings(fitting)
        return takes.narrowed(query)
