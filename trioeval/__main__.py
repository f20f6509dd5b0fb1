"""`python -m trioeval`, and the console script of the same name."""

import sys


def main() -> None:
    """Run the command line and exit with its code."""
    if sys.argv[1:] == ["--version"]:
        # Asked by scripts and by every bug report: answered without importing anything.
        from trioeval._version import __version__

        sys.stdout.write(f"trioeval {__version__}\n")
        return
    from trioeval.cli import run_command_line

    sys.exit(run_command_line(sys.argv[1:]))


if __name__ == "__main__":
    main()
