"""`python -m trioeval`, and the console script of the same name."""

import gc
import os
import sys
from collections.abc import Sequence

_NEW_OBJECTS = 200_000
"""New objects between two garbage collections: importing modules creates fewer, and nearly no garbage."""


def _open_streams() -> None:
    """Prevent that a file opened later gets the number of a standard stream that is closed.

    Otherwise every child process would write to a database that has the number of stdout.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003 - has no name


def _print_constant(arguments: Sequence[str]) -> bool:
    """Print the version or a help page that needs no parser.

    Returns:
        Whether the arguments ask for such a text and it was written.
    """
    if arguments == ["--version"]:
        from trioeval._version import __version__

        text: str | None = f"trioeval {__version__}\n"
    else:
        from trioeval.cli.short_help import short_help

        text = short_help(arguments)
    if text is None:
        return False
    try:
        # Past the stream's buffer, which would keep what cannot be written and fail again at the end.
        os.write(sys.stdout.fileno(), text.encode())
    except (OSError, AttributeError):  # full, gone, or closed before the program started
        return False
    return True


def main() -> None:
    """Run the command line and exit with its code."""
    _open_streams()
    if _print_constant(sys.argv[1:]):
        return
    gc.set_threshold(_NEW_OBJECTS)
    try:
        from trioeval.cli import Interrupts, report_fault, run_command_line

        interrupts = Interrupts.installed()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before the run started; exit 130\n")
        sys.exit(130)
    sys.excepthook = report_fault
    code = run_command_line(sys.argv[1:], interrupts)
    interrupts.end()
    sys.exit(code)


if __name__ == "__main__":
    main()
