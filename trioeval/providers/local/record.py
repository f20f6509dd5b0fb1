"""Writing down what providers answer, so that `replay:` can serve it back without a network."""

from pathlib import Path
from types import TracebackType
from typing import IO, Self

import attrs

from trioeval.errors import OutputError, ProviderError
from trioeval.providers.base import Reply, Request
from trioeval.providers.local.writing import record_call


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
