"""The number of files and sockets that this process may have open, and the message if it has too many."""

import errno
import os
import sys

if sys.platform != "win32":
    import resource

TOO_MANY = frozenset({errno.EMFILE, errno.ENFILE})
"""Error numbers if the process, or the machine, can open no more."""

_KEPT = 32
"""Descriptors that connections leave for the files of a run: its database, logs, programs."""
_KEPT_OF = 4
"""The divisor that gives the part left of a low limit."""


def most_open_files() -> int | None:
    """Return how many descriptors this process may have open at once; None if unbounded or unknown."""
    if sys.platform == "win32":
        return None
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if most == resource.RLIM_INFINITY else most


def lowest_free() -> int | None:
    """Return the number that the next open file gets, so that all lower ones are taken; None without one."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        if error.errno in TOO_MANY:
            return None
        raise
    os.close(descriptor)
    return descriptor


def has_room(taken: int) -> bool:
    """Return whether a process may open one more connection, with so many descriptors taken or planned.

    Example:
        >>> has_room(3), has_room(10**9) and most_open_files() is not None
        (True, False)
    """
    most = most_open_files()
    return most is None or taken < most - min(_KEPT, most // _KEPT_OF)


def is_out_of_files() -> bool:
    """Return whether this process can open no more files, or hardly any."""
    taken = lowest_free()
    return taken is None or not has_room(taken)


def too_many_open_files() -> str:
    """Return a message with the problem and the remedy."""
    most = most_open_files()
    bound = "" if most is None else f" (this process may have {most})"
    return f"too many open files{bound}: raise the limit with `ulimit -n`, or lower maxConcurrency"
