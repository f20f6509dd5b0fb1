"""Tags of processes that survive an emptied environment, a new session and the death of every parent.

The tag of a tree is the hard limit of file locks (`ulimit -x`) of its processes. Linux has not enforced that
limit since version 2.4, but processes inherit it, over `fork` and `exec`, and only root may raise it.
"""

RLIMIT_LOCKS = 10
"""Of Linux, on all machines that Python has wheels for; the module `resource` has no name for it."""

_LINE = b"Max file locks"
_TOP = 2**62
_RANGE = 2**40


def make_tag(mark: str) -> int:
    """A tag for the processes of a tree; 0 if the limit of this process leaves no room for one.

    Args:
        mark: Of the tree: hexadecimal digits.
    """
    import resource  # noqa: PLC0415 - not on Windows

    _, hard = resource.getrlimit(RLIMIT_LOCKS)
    top = _TOP if hard == resource.RLIM_INFINITY else min(hard, _TOP)
    return top - 1 - int(mark, 16) % _RANGE if top > _RANGE else 0


def has_tag(limits: bytes, tag: int) -> bool:
    """Whether a process has a tag.

    Args:
        limits: The file `limits` of the process.
        tag: Not 0.

    Example:
        >>> has_tag(
        ...     b"Max file locks            17                   17                   locks", 17
        ... )
        True
    """
    lines = (line for line in limits.splitlines() if line.startswith(_LINE))
    return any(line.split()[4] == str(tag).encode() for line in lines)
