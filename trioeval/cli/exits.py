"""Exit codes."""

import enum


class Exit(enum.IntEnum):
    """What the process tells its caller; the last line on stderr says why."""

    OK = 0
    """Every row passed."""
    FAULT = 1
    """A result could not be written, or trioeval itself is at fault."""
    USAGE = 2
    """The suite or the command line is wrong; nothing was called."""
    FAILED = 100
    """Some rows failed, ended as errors or have no verdict."""
    SIGNAL = 128
    """Ended by a signal; its number is added: 130 for SIGINT, 143 for SIGTERM."""
