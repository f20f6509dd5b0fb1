"""Recorded replies: a JSONL file of what was asked with what was answered.

One JSON object a line; empty lines are skipped:

    {"prompt": "2 + 2 = ?", "output": "4", "latency_ms": 310, "model": "m-1",
     "usage": {"prompt": 7, "completion": 1, "total": 8}, "finish_reason": "stop"}
    {"prompt": "2 + 3 = ?", "error": {"kind": "rate_limited", "message": "slow down"}}

`prompt` is the exact text of the rendered prompt. A line has either `output` (any JSON value) or
`error`. Everything else may be left out.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import attrs

from trioeval.errors import Problem, ProviderError, ProviderErrorKind
from trioeval.providers.base import Reply, Request, Usage
from trioeval.providers.config import is_flag, is_integer, is_json_list, is_number, show


@attrs.frozen
class RecordedError:
    """A failure that was recorded instead of an output."""

    kind: ProviderErrorKind
    message: str
    status: int | None = None
    retry_after: float | None = None
    """Seconds that the provider asked to wait, ≥ 0."""

    def revived(self) -> ProviderError:
        """The failure, to be raised again."""
        return ProviderError(
            self.kind, self.message, status=self.status, retry_after=self.retry_after
        )


@attrs.frozen(kw_only=True)
class Recording:
    """One line of the file."""

    prompt: str
    output: Any = None
    error: RecordedError | None = None
    """What failed; None where there is an output."""
    provider: str | None = None
    """Label or id of the suite's entry that answered; None where it does not matter."""
    model: str | None = None
    """The model that answered; None where it does not matter."""
    repeat: int | None = None
    """Which repeat of its test it answered, from 0; None where it does not matter."""
    latency_ms: float | None = None
    """How long the recorded call took, ≥ 0."""
    first_token_ms: float | None = None
    """How long its first token took, ≥ 0."""
    usage: Usage = attrs.field(factory=Usage)
    cost: float | None = None
    """US dollars, ≥ 0."""
    finish_reason: str | None = None
    is_refusal: bool = False
    log_probs: tuple[float, ...] | None = None

    def reply(self) -> Reply:
        """The reply, as it was."""
        return Reply(
            output=self.output,
            usage=self.usage,
            cost=self.cost,
            finish_reason=self.finish_reason,
            is_refusal=self.is_refusal,
            log_probs=self.log_probs,
            first_token=None if self.first_token_ms is None else self.first_token_ms / 1000,
            metadata={} if self.model is None else {"model": self.model},
        )


def to_recording(
    provider: str, request: Request, answer: Reply | ProviderError, latency: float
) -> Recording:
    """The recording of one call.

    Args:
        provider: Label or id of the suite's entry.
        request: What was asked.
        answer: What came of it.
        latency: Seconds that the call took, ≥ 0.
    """
    asked: dict[str, Any] = {
        "prompt": request.prompt,
        "provider": provider,
        "repeat": request.repeat_index,
        "latency_ms": round(latency * 1000, 3),
    }
    if isinstance(answer, ProviderError):
        status, wait = answer.status, answer.retry_after
        return Recording(**asked, error=RecordedError(answer.kind, answer.message, status, wait))
    model, first = answer.metadata.get("model"), answer.first_token
    return Recording(
        **asked,
        output=answer.output,
        model=model if isinstance(model, str) else None,
        first_token_ms=None if first is None else round(first * 1000, 3),
        usage=answer.usage,
        cost=answer.cost,
        finish_reason=answer.finish_reason,
        is_refusal=answer.is_refusal,
        log_probs=answer.log_probs,
    )


def to_line(recording: Recording) -> str:
    """The line of a recording, without its end. What says nothing is left out.

    Example:
        >>> to_line(Recording(prompt="Hi", output="Ho", usage=Usage(total=2)))
        '{"prompt": "Hi", "output": "Ho", "usage": {"total": 2}}'
    """
    told = attrs.asdict(recording, filter=_says_something)
    if recording.error is None:
        told = {"prompt": told.pop("prompt"), "output": recording.output} | told
    if not told.get("usage"):
        told.pop("usage", None)
    return json.dumps(told, ensure_ascii=False, default=str)


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


def _says_something(field: "attrs.Attribute[Any]", value: Any) -> bool:
    return value is not None and not (field.name == "is_refusal" and value is False)


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
    given = {name: value for name, value in data.items() if value is not None}
    if "error" in given:
        given["error"] = RecordedError(**given["error"])
    if "usage" in given:
        given["usage"] = Usage(**given["usage"])
    if "log_probs" in given:
        given["log_probs"] = tuple(given["log_probs"])
    return Recording(**given)


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
    for name, (right, check) in _CHECKS.items():
        value = data.get(name)
        if value is not None and not check(value):
            yield f"{name} must be {right}, got {show(value)}"


def _error_faults(error: Any) -> Iterable[str]:
    known = {"kind", "message", "status", "retry_after"}
    if not isinstance(error, dict) or not {"kind", "message"} <= set(error) <= known:
        yield f"error must be an object with kind and message, got {show(error)}"
        return
    kinds = get_args(ProviderErrorKind)
    if error["kind"] not in kinds:
        yield f"error.kind must be one of {', '.join(kinds)}, got {show(error['kind'])}"
    if not isinstance(error["message"], str):
        yield f"error.message must be text, got {show(error['message'])}"
    if error.get("status") is not None and not is_integer(error["status"]):
        yield f"error.status must be a whole number, got {show(error['status'])}"
    if error.get("retry_after") is not None and not _is_amount(error["retry_after"]):
        wait = show(error["retry_after"])
        yield f"error.retry_after must be a number of at least 0, got {wait}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_amount(value: Any) -> bool:
    return is_number(value) and value >= 0


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _is_usage(usage: Any) -> bool:
    names = {field.name for field in attrs.fields(Usage)}
    return (
        isinstance(usage, dict)
        and usage.keys() <= names
        and all(count is None or _is_count(count) for count in usage.values())
    )


def _is_numbers(value: Any) -> bool:
    return is_json_list(value) and all(map(is_number, value))


_COUNTS = ", ".join(field.name for field in attrs.fields(Usage))
_CHECKS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "provider": ("text", _is_text),
    "model": ("text", _is_text),
    "repeat": ("a whole number of at least 0", _is_count),
    "latency_ms": ("a number of at least 0", _is_amount),
    "first_token_ms": ("a number of at least 0", _is_amount),
    "usage": (f"an object of token counts ({_COUNTS})", _is_usage),
    "cost": ("a number of at least 0", _is_amount),
    "finish_reason": ("text", _is_text),
    "is_refusal": ("true or false", is_flag),
    "log_probs": ("a list of numbers", _is_numbers),
}

FIELDS = tuple(field.name for field in attrs.fields(Recording))
"""What a line may hold."""
