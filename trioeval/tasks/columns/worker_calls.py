"""Calls of the suite's own code for columns, which are made once more where only their process failed."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from trioeval.errors import DatasetError, ProviderError, ScriptError
from trioeval.providers.programs.workers import KeptStateError
from trioeval.suite.anchors import FILE
from trioeval.tasks.columns.making import CellError

T = TypeVar("T")

_OF_THE_PROCESS = frozenset({"worker_crashed", "server"})
"""How a call fails whose process ended, or could not be started."""

_WITHOUT_STATE = (
    "its process was replaced, or the run was resumed, and what it kept is lost. Compute it from the number "
    "of the first row, or begin another run with another folder (outputDir)"
)


async def called(call: Callable[[], Awaitable[T]]) -> T:
    """What a call gives. Always a checkpoint.

    A process that ends without an answer, or cannot be started, may do better the next time: the call is made
    once more.

    Args:
        call: Makes the call; raises `ScriptError`.

    Raises:
        CellError: The call failed, took too long, or failed for its process twice.
        DatasetError: It continues calls of another process, and the function keeps state.
    """
    try:
        try:
            return await call()
        except ScriptError as error:
            if not _is_of_the_process(error):
                raise
        return await call()
    except ScriptError as error:
        if isinstance(error.__cause__, KeptStateError):
            raise DatasetError(f"{error.message}; {_WITHOUT_STATE}") from error
        raise CellError(error.message) from error


def function_of(target: str) -> tuple[Path, str]:
    """The file and the function that `file://<file>:<function>` names.

    Example:
        >>> function_of("file:///w/gen.py:make")
        (PosixPath('/w/gen.py'), 'make')
    """
    file, _, function = target.removeprefix(FILE).rpartition(":")
    return Path(file), function


def _is_of_the_process(error: ScriptError) -> bool:
    cause = error.__cause__
    return isinstance(cause, ProviderError) and cause.kind in _OF_THE_PROCESS
