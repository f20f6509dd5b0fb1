"""What is said on a bus: messages as frozen data, and their JSON."""

from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

MessageType: TypeAlias = str
"""One of `TYPES`, or another word in capitals."""

TYPES = (
    "INFO",
    "WARNING",
    "ERROR",
    "PROGRESS",
    "FACT",
    "DECISION",
    "QUESTION",
    "ISSUE",
    "RUN_START",
    "RUN_STOP",
    "RUN_CRASH",
)
DURABLE = ("FACT", "DECISION", "RUN_START", "RUN_STOP", "RUN_CRASH")
"""Types that are written through to the disk where nothing else is said."""


@attrs.frozen(kw_only=True)
class Parent:
    """A message that another one answers, or comes from."""

    msg_id: str
    kind: str | None = None
    meta: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Link:
    """Something that a message points at."""

    url: str
    label: str | None = None
    kind: str | None = None


@attrs.frozen(kw_only=True)
class Draft:
    """A message that nobody has posted yet."""

    type: MessageType
    project_id: str
    """The id of the run; never blank."""
    task_id: str | None = None
    """The name of the case."""
    run_id: str | None = None
    """Of the attempt."""
    body: str = ""
    """Any text, on any number of lines."""
    issue_id: str | None = None
    """None of an `ISSUE` is its own message."""
    parents: tuple[Parent, ...] = ()
    links: tuple[Link, ...] = ()
    meta: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Message:
    """A message that was posted."""

    seq: int
    """From 1, one more than that of the message before it, over all writers and files of the bus."""
    msg_id: str
    """Unique; holds `seq`."""
    utc: str
    """When it was written, as ISO 8601 with microseconds and a `Z`."""
    draft: Draft

    def json(self) -> dict[str, Any]:
        """As it stands in the file, and as `bus read --json` prints it: without what it does not have."""
        raise NotImplementedError
