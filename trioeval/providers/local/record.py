"""Recording of provider replies, so that `replay:` can return them without a network."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import attrs

from trioeval.errors import OutputError, ProviderError
from trioeval.providers.base import Guardrails, Reply, Request, ToolCall
from trioeval.providers.config import is_json, is_number, show
from trioeval.providers.local.recordings import (
    CHECKS,
    ERROR_CHECKS,
    FIELDS,
    RecordedError,
    Recording,
)
from trioeval.providers.media import data_uri
from trioeval.usage import Usage

# Conversion of a call to a line of a recording; values that JSON would change are marked as left out.
#
# A user's provider may put anything into its replies. A line contains the values that JSON preserves, and the
# reason for each value that it would not: a replay that fails there is better than one that returns something
# else.


DEEPEST = 500
"""Maximum nesting of lists and objects; Python reads JSON with about twice that."""

_LONGEST_INTEGER = 10_000  # bits; Python reads whole numbers of 4300 digits
_PLAIN = frozenset({str, float, bool, type(None)})


def record_call(
    provider: str,
    request: Request,
    answer: Reply | ProviderError,
    latency: float,
    *,
    position: int | None = None,
) -> str:
    """Return the line of one call; see `to_recording`. Never raises."""
    try:
        return to_line(to_recording(provider, request, answer, latency, position=position))
    except Exception as error:  # noqa: BLE001 - a user's object may raise anything when inspected
        reason = f"{type(error).__name__} while it was written"
        call = _call_recording(provider, request, latency, position)
        return to_line(attrs.evolve(call, left_out={"output": reason}))


def to_recording(
    provider: str,
    request: Request,
    answer: Reply | ProviderError,
    latency: float,
    *,
    position: int | None = None,
) -> Recording:
    """Return the recording of one call.

    Args:
        provider: Label or id of the suite's entry.
        request: The request.
        answer: The reply or the error.
        latency: Seconds of the call, ≥ 0.
        position: Index of the entry in the suite; None if unknown.
    """
    call = _call_recording(provider, request, latency, position)
    if isinstance(answer, ProviderError):
        return attrs.evolve(call, error=_of_error(answer), **_of_failure(answer))
    fault = json_fault(answer.output)
    left_out = {} if fault is None else {"output": fault}
    values = _of_reply(answer)
    for name, value in values.items():
        right, check = CHECKS[name]
        if value is not None and not check(value):
            left_out[name] = f"must be {right}, got {_show(value)}"
    fields = {name: value for name, value in values.items() if name not in left_out}
    fields["usage"] = Usage(**fields.get("usage") or {})
    if fields.get("tool_calls"):
        fields["tool_calls"] = tuple(ToolCall(**call) for call in fields["tool_calls"])
    if fields.get("guardrails"):
        fields["guardrails"] = Guardrails(**fields["guardrails"])
    output = None if fault else answer.output
    return attrs.evolve(call, **fields, output=output, left_out=left_out)


def to_line(recording: Recording) -> str:
    """Return the line of a recording, without its line end and without empty fields.

    Example:
        >>> from trioeval.usage import Usage
        >>> to_line(Recording(prompt="Hi", output="Ho", usage=Usage(total=2)))
        '{"prompt": "Hi", "output": "Ho", "usage": {"total": 2}}'

    Raises:
        TypeError: A value is not JSON; never for a recording from `to_recording`.
    """
    fields = {name: getattr(recording, name) for name in FIELDS}
    fields["usage"] = _known(attrs.asdict(recording.usage)) or None
    fields["left_out"] = recording.left_out or None
    rails, calls = recording.guardrails, [call.to_json() for call in recording.tool_calls or ()]
    fields["guardrails"] = None if rails is None else _known(attrs.asdict(rails))
    fields["tool_calls"] = calls or None
    if recording.error is not None:
        fault = recording.error.fault
        fields["error"] = _known(
            attrs.asdict(recording.error) | {"fault": None if fault is None else fault.value}
        )
    has_output = recording.error is None and "output" not in recording.left_out
    output = {"output": recording.output} if has_output else {}
    fields = {"prompt": fields.pop("prompt")} | output | _known(fields)
    return json.dumps(fields, ensure_ascii=False)


def json_fault(value: Any) -> str | None:
    """Return the reason why JSON would not preserve a value; None if it would.

    A tuple is accepted, although it is read back as a list.

    Example:
        >>> json_fault({"a": [1, None, (2.5,)]})
        >>> json_fault({"a": [{1: "one"}]})
        'a key of type int is not JSON data'
    """
    rest: list[tuple[Any, int]] = [(value, 0)]
    while rest:
        part, depth = rest.pop()
        parts: Any
        match part:
            case None | str() | float() | bool():
                continue
            case int():
                if part.bit_length() > _LONGEST_INTEGER:
                    return "a whole number with thousands of digits cannot be read back"
                continue
            case dict():
                strange = next((key for key in part if not isinstance(key, str)), None)
                if strange is not None:
                    return f"a key of type {type(strange).__name__} is not JSON data"
                parts = part.values()
            case list() | tuple():
                parts = part
            case _:
                return f"a value of type {type(part).__name__} is not JSON data"
        if depth == DEEPEST:  # also reached by a value that contains itself
            return f"values nested more than {DEEPEST} deep cannot be read back"
        rest += [(inner, depth + 1) for inner in parts if type(inner) not in _PLAIN]
    return None


def _call_recording(
    provider: str, request: Request, latency: float, position: int | None
) -> Recording:
    """Return the fields of a recording that do not depend on the reply."""
    return Recording(
        prompt=request.prompt,
        provider=provider,
        entry_idx=position,
        test_idx=request.test_idx,
        prompt_idx=request.prompt_idx,
        repeat=request.repeat_index,
        latency_ms=round(latency * 1000, 3),
    )


def _of_reply(reply: Any) -> dict[str, Any]:
    """Return the fields for a reply besides its output, whether they are valid or not."""
    model = reply.metadata.get("model") if isinstance(reply.metadata, Mapping) else None
    first, usage, rails = reply.first_token, reply.usage, reply.guardrails
    return {
        "model": model if isinstance(model, str) else None,
        "first_token_ms": round(first * 1000, 3) if is_number(first) else first,
        "usage": _known(attrs.asdict(usage)) if isinstance(usage, Usage) else usage,
        "cost": reply.cost,
        "finish_reason": reply.finish_reason,
        "text": reply.own_text,
        "tool_calls": _calls(reply.tool_calls) or None,
        "reasoning": reply.reasoning,
        "refusal": reply.refusal,
        "guardrails": attrs.asdict(rails) if isinstance(rails, Guardrails) else rails,
        "log_probs": reply.log_probs,
        "media": tuple(map(data_uri, reply.media)) or None,
    }


def _calls(calls: Any) -> Any:
    """Return tool calls as JSON data, and anything else unchanged."""
    if not isinstance(calls, list | tuple):
        return calls
    return [call.to_json() if isinstance(call, ToolCall) else call for call in calls]


def _of_error(error: ProviderError) -> RecordedError:
    """Return the recorded error, without values that follow from its kind."""
    usual = ProviderError(error.kind, "")
    fields: dict[str, Any] = {
        "status": error.status,
        "retry_after": error.retry_after,
        "retries": None if error.retries == usual.retries else error.retries,
        "tokens": error.tokens,
        "money": error.money,
    }
    right = {name: value for name, value in fields.items() if ERROR_CHECKS[name][1](value)}
    return RecordedError(
        kind=error.kind,
        message=str(error.message),
        fault=None if error.fault is usual.fault else error.fault,
        **right,
    )


def _of_failure(error: ProviderError) -> dict[str, Any]:
    """Return the valid fields of a recording beside its error."""
    is_simple = error.usage == Usage(total=error.tokens)
    usage, reason = Usage() if is_simple else error.usage, error.finish_reason
    return {
        "usage": usage if CHECKS["usage"][1](_known(attrs.asdict(usage))) else Usage(),
        "finish_reason": reason if CHECKS["finish_reason"][1](reason) else None,
    }


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None}


def _show(value: Any) -> str:
    """Return a value for a message: texts and numbers unchanged, other objects as their type."""
    return show(value) if isinstance(value, float) or is_json(value) else type(value).__name__


@attrs.define
class Recorder:
    """A file of recordings that grows by one line with each call that ends.

    A line is passed to the system before anything else happens, so that it survives a killed run. Neither an
    unwritable reply nor a full disk may lose the replies in progress: in the first case the line contains the
    reason, in the second the first error is stored in `error`, and nothing more is written.

    Example:
        ```python
        with Recorder.create(Path("replies.jsonl")) as recorder:
            await run_suite("suite.json", emit=show, recorder=recorder)
        ```
    """

    path: Path
    _file: IO[str] = attrs.field(repr=False)
    error: OutputError | None = None
    """The reason why writing has stopped."""

    @classmethod
    def create(cls, path: Path) -> Self:
        """Create a new file. An existing one is never overwritten, because its replies were paid for.

        Raises:
            OutputError: The file cannot be created, or exists already.
        """
        try:
            # Lone surrogates become their JSON escapes.
            file = path.open("x", encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise _cannot_write(path, error) from error
        return cls(path, file)

    def write(
        self,
        provider: str,
        request: Request,
        answer: Reply | ProviderError,
        latency: float,
        *,
        position: int | None = None,
    ) -> None:
        """Append one call. Never raises; see `error`.

        Args:
            provider: Label or id of the suite's entry, without secrets.
            request: The request, without secrets in its prompt.
            answer: The reply or the error.
            latency: Seconds of the call, ≥ 0.
            position: Index of the entry in the suite; None if unknown.
        """
        if self.error is None:
            self.append(record_call(provider, request, answer, latency, position=position))

    def append(self, line: str) -> None:
        """Append the line of a call, from `record_call`. Never raises; see `error`."""
        if self.error is not None:
            return
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except (OSError, ValueError) as error:  # ValueError: the file is closed
            self.error = _cannot_write(self.path, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        try:
            self._file.close()
        except OSError as error:
            self.error = self.error or _cannot_write(self.path, error)


def _cannot_write(path: Path, error: Exception) -> OutputError:
    reason = getattr(error, "strerror", None) or error
    return OutputError(f"cannot write the recording {path}: {reason}")
