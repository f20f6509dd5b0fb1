"""How many files, sockets and pipes this process may have open, and what people read when it has too many."""

import errno
import os
import sys

if sys.platform != "win32":
    import resource

TOO_MANY = frozenset({errno.EMFILE, errno.ENFILE})
"""Error numbers of a process, and of a machine, that can open no more."""

_KEPT = 32
"""Descriptors that connections leave to the files of a run: its database, logs, programs."""
_KEPT_OF = 4
"""Of a low limit they leave this part."""


def most_open_files() -> int | None:
    """How many this process may have open at once; None without a bound or a report of it."""
    if sys.platform == "win32":
        return None
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if most == resource.RLIM_INFINITY else most


def lowest_free() -> int | None:
    """The number that the next open file gets, so that all lower ones are taken; None if there is none."""
    try:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        if error.errno in TOO_MANY:
            return None
        raise
    os.close(descriptor)
    return descriptor


def has_room(taken: int) -> bool:
    """Whether a process may open one more connection, when so many descriptors are taken or soon will be.

    Example:
        >>> has_room(3), has_room(10**9) and most_open_files() is not None
        (True, False)
    """
    most = most_open_files()
    return most is None or taken < most - min(_KEPT, most // _KEPT_OF)


def is_out_of_files() -> bool:
    """Whether this process can open no more files, or hardly any."""
    taken = lowest_free()
    return taken is None or not has_room(taken)


def too_many_open_files() -> str:
    """What is wrong, and what to do."""
    most = most_open_files()
    bound = "" if most is None else f" (this process may have {most})"
    return f"too many open files{bound}: raise the limit with `ulimit -n`, or lower maxConcurrency"
