"""Recorded replies: a JSONL file of prompts with what was answered to them.

One JSON object a line; empty lines are skipped:

    {"prompt": "2 + 2 = ?", "output": "4", "latency_ms": 310, "model": "m-1",
     "usage": {"prompt": 7, "completion": 1, "total": 8}, "finish_reason": "stop"}
    {"prompt": "2 + 3 = ?", "error": {"kind": "rate_limited", "message": "slow down"}}

`prompt` is the exact text of the rendered prompt. A line has either `output` (any JSON value) or
`error`. Everything else may be left out. Where one prompt is recorded several times, its recordings
are the answers to its first, second, … call, and the last one is repeated after that.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, get_args

import attrs

from trioeval.errors import Problem, ProviderErrorKind
from trioeval.providers.base import Usage
from trioeval.providers.config import is_integer, is_number, show

FIELDS = ("prompt", "output", "error", "latency_ms", "model", "usage", "finish_reason")


@attrs.frozen
class RecordedError:
    """A failure that was recorded instead of an output."""

    kind: ProviderErrorKind
    message: str


@attrs.frozen(kw_only=True)
class Recording:
    """One line of the file."""

    prompt: str
    output: Any = None
    error: RecordedError | None = None
    """What failed; None where there is an output."""
    latency_ms: float | None = None
    """How long the recorded call took, ≥ 0."""
    model: str | None = None
    """Who answered; None where it does not matter."""
    usage: Usage = attrs.field(factory=Usage)
    finish_reason: str | None = None


@attrs.define(eq=False)
class Tape:
    """Recordings with a reading position for each prompt; belongs to one opened provider."""

    recordings: tuple[Recording, ...] = attrs.field(repr=False)
    _by_prompt: dict[str, list[Recording]] = attrs.field(init=False, repr=False, factory=dict)
    _played: dict[tuple[str, str | None], int] = attrs.field(init=False, repr=False, factory=dict)

    def __attrs_post_init__(self) -> None:
        for recording in self.recordings:
            self._by_prompt.setdefault(recording.prompt, []).append(recording)

    def find(self, prompt: str, model: str | None = None) -> Recording | None:
        """The next recording of a prompt, or None if there is none. Takes nothing.

        Args:
            prompt: The exact text.
            model: Leave out recordings of other models; those that name no model stay.
        """
        takes = [
            take
            for take in self._by_prompt.get(prompt, ())
            if model is None or take.model is None or take.model == model
        ]
        if not takes:
            return None
        return takes[min(self._played.get((prompt, model), 0), len(takes) - 1)]

    def advance(self, prompt: str, model: str | None = None) -> None:
        """Let the next `find` with the same arguments give the recording after."""
        self._played[prompt, model] = self._played.get((prompt, model), 0) + 1


def parse_recordings(
    lines: Iterable[bytes], file: str
) -> tuple[tuple[Recording, ...], tuple[Problem, ...]]:
    """Read the lines of a file.

    Args:
        lines: UTF-8, one object each.
        file: The name for messages.

    Returns:
        What could be read, and what is wrong, each problem with file and line.
    """
    recordings: list[Recording] = []
    problems: list[Problem] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        read = _read_line(line)
        if isinstance(read, Recording):
            recordings.append(read)
        else:
            problems += (Problem(".id", text, file=file, line=number) for text in read)
    return tuple(recordings), tuple(problems)


def _read_line(line: bytes) -> Recording | list[str]:
    """The recording, or what is wrong with the line."""
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
    failure = data.get("error")
    return Recording(
        prompt=data["prompt"],
        output=data.get("output"),
        error=None if failure is None else RecordedError(**failure),
        latency_ms=data.get("latency_ms"),
        model=data.get("model"),
        usage=Usage(**(data.get("usage") or {})),
        finish_reason=data.get("finish_reason"),
    )


def _faults(data: Mapping[str, Any]) -> Iterable[str]:
    for name in data:
        if name not in FIELDS:
            yield f'"{name}" is not a field of a recording; known are {", ".join(FIELDS)}'
    if not isinstance(data.get("prompt"), str):
        yield f"prompt must be text, got {show(data.get('prompt'))}"
    error = data.get("error")
    if ("output" in data) == (error is not None):
        yield "a recording has either an output or an error"
    if error is not None:
        yield from _error_faults(error)
    for name in ("model", "finish_reason"):
        if not isinstance(data.get(name), str | None):
            yield f"{name} must be text, got {show(data[name])}"
    latency = data.get("latency_ms")
    if latency is not None and not (is_number(latency) and latency >= 0):
        yield f"latency_ms must be a number of at least 0, got {show(latency)}"
    usage = data.get("usage")
    if usage is not None and not _is_usage(usage):
        names = ", ".join(field.name for field in attrs.fields(Usage))
        yield f"usage must be an object of token counts ({names}), got {show(usage)}"


def _error_faults(error: Any) -> Iterable[str]:
    if not isinstance(error, dict) or set(error) != {"kind", "message"}:
        yield f"error must be an object with kind and message, got {show(error)}"
        return
    kinds = get_args(ProviderErrorKind)
    if error["kind"] not in kinds:
        yield f"error.kind must be one of {', '.join(kinds)}, got {show(error['kind'])}"
    if not isinstance(error["message"], str):
        yield f"error.message must be text, got {show(error['message'])}"


def _is_usage(usage: Any) -> bool:
    names = {field.name for field in attrs.fields(Usage)}
    return (
        isinstance(usage, dict)
        and usage.keys() <= names
        and all(count is None or (is_integer(count) and count >= 0) for count in usage.values())
    )
