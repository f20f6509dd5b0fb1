"""JavaScript, run in an engine that has nothing but the language, and a console that says nothing.

Run by path in a worker process, so that the engine's clock, which is the processor time of its process,
counts the script and nothing else. Every call gets an engine of its own, with a bound on memory and on
time: making one costs less than half a millisecond, and no call can leave anything behind for the next.
The engine's values never leave it: arguments go in, and the result comes out, as JSON.
"""

import json
import time
from typing import Any

MEMORY_BYTES = 256 * 1024 * 1024
"""Most memory that a call may take."""

TIME_LIMIT = 2.0
"""Seconds of computing that a call may take."""

_TOO_LONG = f"it took longer than {TIME_LIMIT:g} seconds"
_NULL = "it ran out of memory, or throws null"
_AT_LIMIT = (_TOO_LONG, _NULL, "InternalError: out of memory")

_CONSOLE = """
globalThis.console = Object.fromEntries(
  ["debug", "error", "info", "log", "warn"].map((name) => [name, () => {}]),
);
"""
"""Scripts that tell of themselves are none the worse for that nobody hears it."""


def run(source: str, values: list[Any]) -> dict[str, Any]:
    """Call the function that a source is.

    Blocks, for little more than twice `TIME_LIMIT` at most.

    Returns:
        `{"value": …}`, which is None where there is none; or `{"error": …, "limit": …}`: a line, and
        whether it took more than it may.
    """
    try:
        context = engine()
        written = context.eval(source)(json.dumps(values))
        if callable(written):
            _do_jobs(context)
            written = written()
        return {"value": None if written is None else json.loads(written)}
    except Exception as error:  # noqa: BLE001 - whatever the script does is an answer
        said = first_line(error)
        return {"error": said, "limit": isinstance(error, MemoryError) or said in _AT_LIMIT}


def _do_jobs(context: Any) -> None:
    """Do what promises wait for; each job has a bound of its own, and all of them one together."""
    until = time.process_time() + TIME_LIMIT
    while context.execute_pending_job():
        if time.process_time() > until:
            raise TimeoutError(_TOO_LONG)


def engine() -> Any:
    """A new engine."""
    import quickjs  # noqa: PLC0415 - an extra

    context = quickjs.Context()
    context.set_memory_limit(MEMORY_BYTES)
    context.set_time_limit(TIME_LIMIT)
    context.eval(_CONSOLE)
    return context


def first_line(error: Exception) -> str:
    """What an error of the engine says."""
    text = str(error).partition("\n")[0]
    if text == "InternalError: interrupted":
        return _TOO_LONG
    if text == "null":  # what the engine throws where there is no memory for an error
        return _NULL
    return text or type(error).__name__
