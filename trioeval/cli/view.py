"""`trioeval view`: pages that show runs while they go on."""

from pathlib import Path

import attrs

from trioeval.cli.interrupts import Interrupts


@attrs.frozen(kw_only=True)
class ViewTerms:
    """Where pages are served, and to whom."""

    host: str
    port: int
    """0 takes a free one."""
    token: str | None
    """What a browser has to show; None makes one where other machines can connect."""
    open_browser: bool


def view_runs(db: Path | None, terms: ViewTerms, interrupts: Interrupts) -> int:
    """Serve until interrupted; the exit code.

    Raises:
        UsageError: There is no database, the extra `view` is not installed, or the address cannot be had.
    """
    raise NotImplementedError
