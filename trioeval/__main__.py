"""`python -m trioeval`, and the console script of the same name."""

import gc
import sys

_NEW_OBJECTS = 50_000
"""Between two looks for garbage: suites and modules are many objects that stay, found by each look."""


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        # Asked by scripts and by every bug report: answered without importing anything.
        from trioeval._version import __version__

        sys.stdout.write(f"trioeval {__version__}\n")
        return
    gc.set_threshold(_NEW_OBJECTS)
    try:
        from trioeval.cli import Interrupts, report_fault, run_command_line

        interrupts = Interrupts.installed()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted before the run began; exit 130\n")
        sys.exit(130)
    sys.excepthook = report_fault
    code = run_command_line(sys.argv[1:], interrupts)
    interrupts.end()
    sys.exit(code)


if __name__ == "__main__":
    main()
