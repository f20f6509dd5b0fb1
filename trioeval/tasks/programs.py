"""A program of the user's that is run once, for what it prints."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import trio

from trioeval.errors import ScriptError
from trioeval.providers.programs.capture import Tail, last_line, read_stream
from trioeval.providers.programs.trees import describe_end, start_tree

LARGEST = 10 * 1024 * 1024
"""Bytes that a program may print."""

_LAST_WORDS = 1.0


@attrs.frozen
class Printed:
    """What a program wrote before it ended without a fault."""

    output: bytes
    errors: str | None
    """The end of what it wrote to its standard error; None if it wrote nothing there."""


@trio.lowlevel.enable_ki_protection  # as for `start_tree`
async def run_program(
    command: Sequence[str], *, cwd: Path, environ: Mapping[str, str], limit: float
) -> Printed:
    """Run a program to its end, and end whatever it leaves behind. Always a checkpoint.

    Args:
        command: The program and its arguments; no shell is involved.
        cwd: Where it runs.
        environ: Its whole environment.
        limit: Seconds that it may take, > 0.

    Raises:
        ScriptError: It cannot be started, fails, prints too much, or takes longer.
    """
    output, errors = bytearray(), Tail()
    code: int | None = None
    run = trio.CancelScope(relative_deadline=limit)

    def keep(part: bytes) -> bool:
        output.extend(part)
        return len(output) <= LARGEST

    async def read_output(stream: trio.abc.ReceiveStream) -> None:
        await read_stream(stream, keep)
        if len(output) > LARGEST:  # nobody reads on, so it would wait for ever
            run.cancel("too much output")

    try:
        started = await start_tree(
            command, cwd=cwd, environ=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    except (OSError, ValueError) as error:  # a ValueError: a NUL among the arguments
        reason = error.strerror if isinstance(error, OSError) else error
        raise ScriptError(f"{command[0]} cannot be started: {reason}") from error
    async with started as tree, trio.open_nursery() as nursery:
        if tree.process.stdout is not None and tree.process.stderr is not None:
            nursery.start_soon(read_output, tree.process.stdout)
            nursery.start_soon(read_stream, tree.process.stderr, errors.feed)
        with run:
            code = await tree.wait()
        # What it left behind may hold its pipes open for ever. That is no time of the program.
        await tree.end()
        nursery.cancel_scope.deadline = trio.current_time() + _LAST_WORDS
    if len(output) > LARGEST:
        raise ScriptError(f"{command[0]} printed more than {LARGEST} bytes", trace=errors.text)
    if code is None:
        raise ScriptError(f"{command[0]} did not end within {limit:g} seconds", trace=errors.text)
    if code != 0:
        message = f"{command[0]} {describe_end(code)}{last_line(errors.text)}"
        raise ScriptError(message, trace=errors.text)
    return Printed(bytes(output), errors.text)
