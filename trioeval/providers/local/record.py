"""Writing down what providers answer, so that `replay:` can serve it back without a network."""

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import attrs

from trioeval.errors import OutputError, ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import is_json, is_number, show
from trioeval.providers.local.recordings import (
    CHECKS,
    ERROR_CHECKS,
    FIELDS,
    RecordedError,
    Recording,
)
from trioeval.usage import Usage

# From a call to the line that records it: what reading would not give back is said to be left out.
#
# Whoever wrote a provider may have put anything into its replies. A line holds what comes back from JSON as
# it was, and the reason wherever something would not: a replay that fails there is better than one that
# answers something else.


DEEPEST = 500
"""Lists and objects within each other; Python reads JSON of about twice that."""

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
    """The line of one call; see `to_recording`. Never raises."""
    try:
        return to_line(to_recording(provider, request, answer, latency, position=position))
    except Exception as error:  # noqa: BLE001 - objects of users may do anything when looked at
        reason = f"{type(error).__name__} while it was written"
        asked = _question(provider, request, latency, position)
        return to_line(attrs.evolve(asked, left_out={"output": reason}))


def to_recording(
    provider: str,
    request: Request,
    answer: Reply | ProviderError,
    latency: float,
    *,
    position: int | None = None,
) -> Recording:
    """The recording of one call.

    Args:
        provider: Label or id of the suite's entry.
        request: What was asked.
        answer: What came of it.
        latency: Seconds that the call took, ≥ 0.
        position: Where in the suite the entry stands, from 0; None if that is not known.
    """
    asked = _question(provider, request, latency, position)
    if isinstance(answer, ProviderError):
        return attrs.evolve(asked, error=_of_error(answer))
    fault = json_fault(answer.output)
    left_out = {} if fault is None else {"output": fault}
    said = _of_reply(answer)
    for name, value in said.items():
        right, check = CHECKS[name]
        if value is not None and not check(value):
            left_out[name] = f"must be {right}, got {_show(value)}"
    told = {name: value for name, value in said.items() if name not in left_out}
    told["usage"] = Usage(**told.get("usage") or {})
    output = None if fault else answer.output
    return attrs.evolve(asked, **told, output=output, left_out=left_out)


def to_line(recording: Recording) -> str:
    """The line of a recording, without its end. What says nothing is left out.

    Example:
        >>> from trioeval.usage import Usage
        >>> to_line(Recording(prompt="Hi", output="Ho", usage=Usage(total=2)))
        '{"prompt": "Hi", "output": "Ho", "usage": {"total": 2}}'

    Raises:
        TypeError: It holds what is not JSON; never where it comes from `to_recording`.
    """
    told = {name: getattr(recording, name) for name in FIELDS}
    told["usage"] = _known(attrs.asdict(recording.usage)) or None
    told["left_out"] = recording.left_out or None
    told["is_refusal"] = recording.is_refusal or None
    if recording.error is not None:
        fault = recording.error.fault
        told["error"] = _known(
            attrs.asdict(recording.error) | {"fault": None if fault is None else fault.value}
        )
    has_output = recording.error is None and "output" not in recording.left_out
    output = {"output": recording.output} if has_output else {}
    told = {"prompt": told.pop("prompt")} | output | _known(told)
    return json.dumps(told, ensure_ascii=False)


def json_fault(value: Any) -> str | None:
    """Why a value would not come back from JSON as what it is; None if it would.

    A tuple is let through, although it comes back as a list.

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
                    return "a whole number of thousands of digits cannot be read back"
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
        if depth == DEEPEST:  # or without an end: what holds itself is found here as well
            return f"values more than {DEEPEST} deep cannot be read back"
        rest += [(inner, depth + 1) for inner in parts if type(inner) not in _PLAIN]
    return None


def _question(provider: str, request: Request, latency: float, position: int | None) -> Recording:
    """What is known of a call whatever came of it."""
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
    """What a line says of a `Reply` besides its output, be it what it should be or not."""
    model = reply.metadata.get("model") if isinstance(reply.metadata, Mapping) else None
    first, usage = reply.first_token, reply.usage
    return {
        "model": model if isinstance(model, str) else None,
        "first_token_ms": round(first * 1000, 3) if is_number(first) else first,
        "usage": _known(attrs.asdict(usage)) if isinstance(usage, Usage) else usage,
        "cost": reply.cost,
        "finish_reason": reply.finish_reason,
        "is_refusal": reply.is_refusal,
        "log_probs": reply.log_probs,
    }


def _of_error(error: ProviderError) -> RecordedError:
    """The error with what such a kind does not say by itself."""
    usual = ProviderError(error.kind, "")
    told: dict[str, Any] = {
        "status": error.status,
        "retry_after": error.retry_after,
        "retries": None if error.retries == usual.retries else error.retries,
        "tokens": error.tokens,
        "money": error.money,
    }
    right = {name: value for name, value in told.items() if ERROR_CHECKS[name][1](value)}
    return RecordedError(
        kind=error.kind,
        message=str(error.message),
        fault=None if error.fault is usual.fault else error.fault,
        **right,
    )


def _known(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data.items() if value is not None}


def _show(value: Any) -> str:
    """A value in a message: texts and numbers as they are, of anything stranger its type alone."""
    return show(value) if isinstance(value, float) or is_json(value) else type(value).__name__


@attrs.define
class Recorder:
    """A file of recordings that grows by a line with each call that ends.

    A line is handed to the system before anything else happens, so that a killed run keeps it. Neither a
    reply that cannot be written nor a disk that fills up must cost the replies that are under way: of the
    first the line says why, and of the second the first error is kept in `error`, and nothing is written
    after it.

    Example:
        ```python
        with Recorder.create(Path("replies.jsonl")) as recorder:
            await run_suite("suite.json", emit=show, recorder=recorder)
        ```
    """

    path: Path
    _file: IO[str] = attrs.field(repr=False)
    error: OutputError | None = None
    """Why nothing is written any more."""

    @classmethod
    def create(cls, path: Path) -> Self:
        """Begin a new file. One that is there already is never written over: its replies were paid for.

        Raises:
            OutputError: It cannot be made, or it is there already.
        """
        try:
            # Lone surrogates become the escapes that JSON has for them.
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
            request: What was asked; a secret that stands in the prompt is to be hidden.
            answer: What came of it.
            latency: Seconds that the call took, ≥ 0.
            position: Where in the suite the entry stands, from 0; None if that is not known.
        """
        if self.error is not None:
            return
        line = record_call(provider, request, answer, latency, position=position)
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except (OSError, ValueError) as error:  # ValueError: it is closed
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
    return OutputError(f"the recording {path} cannot be written: {reason}")
