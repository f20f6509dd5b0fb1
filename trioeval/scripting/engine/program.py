"""A program that runs JavaScript in an engine with only the language itself and a silent console.

Run by path in a worker process, so that the engine's clock, which is the processor time of its process,
counts only the script. Every call gets its own engine, with a bound on memory and on time: creating one takes
less than half a millisecond, and no call can affect the next. The engine's values never leave it: arguments
go in, and the result comes out, as JSON.
"""

import json
import time
from typing import Any

MEMORY_BYTES = 256 * 1024 * 1024
"""The most memory of a call."""

TIME_LIMIT = 2.0
"""The most seconds of computing of a call."""

_TOO_LONG = f"it took longer than {TIME_LIMIT:g} seconds"
_NULL = "it ran out of memory, or throws null"
_AT_LIMIT = (_TOO_LONG, _NULL, "InternalError: out of memory")

_CONSOLE = """
globalThis.console = Object.fromEntries(
  ["debug", "error", "info", "log", "warn"].map((name) => [name, () => {}]),
);
"""
"""The console methods that scripts may call; they do nothing."""


def run(source: str, values: list[Any]) -> dict[str, Any]:
    """Call the function that a source defines.

    Blocks, for little more than twice `TIME_LIMIT` at most.

    Returns:
        `{"value": …}`, None without a value; or `{"error": …, "limit": …}`: a line, and whether it
        exceeded a limit.
    """
    try:
        context = engine()
        written = context.eval(source)(json.dumps(values))
        if callable(written):
            _do_jobs(context)
            written = written()
        return {"value": None if written is None else json.loads(written)}
    except Exception as error:  # noqa: BLE001 - any error of the script is a result
        line = first_line(error)
        return {"error": line, "limit": isinstance(error, MemoryError) or line in _AT_LIMIT}


def _do_jobs(context: Any) -> None:
    """Run the jobs that promises wait for; each job has a bound of its own, and all of them one together."""
    until = time.process_time() + TIME_LIMIT
    while context.execute_pending_job():
        if time.process_time() > until:
            raise TimeoutError(_TOO_LONG)


def engine() -> Any:
    """Return a new engine."""
    import quickjs

    context = quickjs.Context()
    context.set_memory_limit(MEMORY_BYTES)
    context.set_time_limit(TIME_LIMIT)
    context.eval(_CONSOLE)
    return context


def first_line(error: Exception) -> str:
    """Return the message of an error of the engine."""
    text = str(error).partition("\n")[0]
    if text == "InternalError: interrupted":
        return _TOO_LONG
    if text == "null":  # thrown by the engine if there is not enough memory for an error
        return _NULL
    return text or type(error).__name__
