"""Opening a database that another program may keep locked for a moment."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import trio

from trioeval.store.database import BusyError, DatabaseKind

T = TypeVar("T")

_WARN_AFTER = 2.0
_RETRY = 0.1


async def open_patiently(
    open_: Callable[[], T],
    path: Path,
    kind: DatabaseKind,
    *,
    patience_s: float,
    on_warning: Callable[[str], None] | None = None,
) -> T:
    """What opens a database gives, in a thread and as often as it is locked.

    Args:
        open_: Opens it, or raises `BusyError` and leaves nothing open.
        path: Of the file, for messages.
        kind: What it is, for messages.
        patience_s: Seconds that another program may keep it locked, ≥ 0; with 0 it is tried once.
        on_warning: Told once if that takes long.

    Raises:
        BusyError: It is still locked.
        StoreError: It cannot be used.
    """
    begun = trio.current_time()
    is_told = False
    while True:
        try:
            return await trio.to_thread.run_sync(open_)
        except BusyError:
            waited = trio.current_time() - begun
            if waited >= patience_s:
                raise
            if waited >= _WARN_AFTER and not is_told and on_warning is not None:
                is_told = True
                on_warning(
                    f"{path}: the {kind.name} is locked by another program; "
                    f"waiting for it, at most {patience_s:g} s"
                )
        await trio.sleep(_RETRY)
