"""Ids of runs: names of attempts that sort by the time of their start, and are never given twice."""

import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime

import attrs

from trioeval.errors import UsageError

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
