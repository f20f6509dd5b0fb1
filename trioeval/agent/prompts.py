"""The file of a task's prompt: written once, and from then on what it says is what holds."""

import errno
import os
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import attrs

from trioeval.agent.workspace import read_plain, write_whole
from trioeval.errors import AgentError, UsageError

# Ids of runs: names of attempts that sort by the time of their start, and are never given twice.


_OWNER = re.compile(r"[a-z0-9]+")


def new_run_id(utc: datetime, owner: str, sequence: int) -> str:
    """The id of a run: when it began, to a tenth of a millisecond, who runs it, and its number there.

    Good as the name of a file. Ids of one instant sort by owner and sequence.

    Args:
        utc: When it begins; other zones are converted.
        owner: Who runs it: small letters and digits, different in all processes that ever run something.
        sequence: ≥ 0; never twice for one owner.

    Raises:
        UsageError: The owner has other characters, or the time no zone.

    Example:
        >>> new_run_id(datetime(2026, 1, 15, 9, 30, 0, 123_456, UTC), "5f0c", 7)
        '20260115-0930001234-5f0c-000007'
    """
    if _OWNER.fullmatch(owner) is None:
        msg = f"the owner of a run is called by small letters and digits, got {owner!r}"
        raise UsageError(msg)
    if utc.tzinfo is None:
        msg = f"the time of a run needs a zone, got {utc!r}"
        raise UsageError(msg)
    moment = utc.astimezone(UTC)
    return f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 100:04d}-{owner}-{sequence:06d}"


@attrs.define(eq=False)
class RunIds:
    """The ids of the runs of one owner: each sorts after all before it, also when the clock is set back.

    Example:
        >>> ids = RunIds("5f0c", lambda: datetime(2026, 1, 15, tzinfo=UTC))
        >>> [ids(), ids()]
        ['20260115-0000000000-5f0c-000000', '20260115-0000000000-5f0c-000001']
    """

    owner: str
    """Random, or of the incarnation of a program."""
    _now: Callable[[], datetime]
    """Tells the time, with its zone."""
    _last: datetime = attrs.field(init=False, default=datetime.min.replace(tzinfo=UTC))
    _sequence: int = attrs.field(init=False, default=0)

    def __call__(self) -> str:
        """The id of a run that begins now."""
        self._last = max(self._last, self._now())
        found = new_run_id(self._last, self.owner, self._sequence)
        self._sequence += 1
        return found


def own_run_ids() -> RunIds:
    """Those of this program: by the clock of the machine, and a random owner."""
    return RunIds(secrets.token_hex(4), lambda: datetime.now(UTC))


LARGEST = 64 * 1024 * 1024
"""Bytes that the file may have."""


def ensure_prompt(file: Path, submitted: str | None) -> str:
    """What the file says; it is made from what was submitted, if it is not there. Blocks on files.

    A file that is there is never changed: who changes it by hand changes what agents are told from then on.

    Args:
        file: In a folder that belongs to one program at a time.
        submitted: What would be written; None if there is nothing.

    Raises:
        AgentError: There is neither a file nor a text; what is there is blank, too large or no regular
            file; or it cannot be read or written.
    """
    try:
        if not os.path.lexists(file):
            if submitted is None or not submitted.strip():
                raise AgentError(f"{file} is not there, and no prompt was submitted: one is needed")
            write_whole(file, submitted.encode(), durable=True)
        data = read_plain(file, LARGEST + 1)
        if len(data) > LARGEST:
            raise AgentError(f"{file} has more than {LARGEST:,} bytes, which a prompt cannot have")
        text = data.decode()
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise AgentError(f"{file}: {reason}") from error
    except UnicodeError as error:
        raise AgentError(f"{file}: a prompt is text in UTF-8: {error}") from error
    if not text.strip():
        raise AgentError(f"{file} is blank; write the prompt there, or remove it")
    return text
