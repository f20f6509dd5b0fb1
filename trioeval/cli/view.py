"""`trioeval view`: pages that show runs while they go on."""

import os
import re
import secrets
import signal
import socket
import webbrowser
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import attrs
import trio

from trioeval.cli.environment import read_environment
from trioeval.cli.exits import Exit
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.stored_results import open_runs
from trioeval.cli.terminal import say, show
from trioeval.errors import UsageError

_TOKEN = re.compile(r"[A-Za-z0-9._~-]{8,200}")


@attrs.frozen(kw_only=True)
class ViewTerms:
    """Where pages are served, and to whom."""

    host: str
    port: int
    """0 takes a free one."""
    token: str | None = attrs.field(repr=False)
    """What a browser has to show; None makes one where other machines can connect."""
    open_browser: bool


def view_runs(db: Path | None, terms: ViewTerms, interrupts: Interrupts) -> int:
    """Serve until interrupted; the exit code.

    Raises:
        UsageError: There is no database, the extra `view` is not installed, or the address cannot be had.
        StoreError: The database cannot be read.
    """
    try:
        import trioeval.web.serving  # noqa: F401, PLC0415 - an extra; other programs bring a part of it
        from trioeval.web.security import is_loopback  # noqa: PLC0415
    except ImportError as error:
        raise UsageError(f"{error}: pip install 'trioeval[view]'") from error
    token = terms.token
    if token is not None and not _TOKEN.fullmatch(token):
        raise UsageError(
            "--token must have 8 to 200 characters: letters, digits, and any of . _ ~ -"
        )
    if token is None and not is_loopback(terms.host):
        token = secrets.token_urlsafe(24)
    with open_runs(db, read_environment(os.environ)) as reader:
        reader.runs(limit=1)
        path = reader.path
    interrupts.begin_run()
    failure = trio.run(_serve, path, attrs.evolve(terms, token=token), interrupts)
    if failure is not None:
        reason = failure.strerror or failure
        raise UsageError(f"cannot listen on {terms.host}:{terms.port}: {reason}")
    return Exit.OK


async def _serve(path: Path, terms: ViewTerms, interrupts: Interrupts) -> OSError | None:
    """Returns why it could not listen; None once it has served."""
    from trioeval.web.app import View  # noqa: PLC0415 - an extra
    from trioeval.web.reading import StoreReading  # noqa: PLC0415
    from trioeval.web.security import Door  # noqa: PLC0415
    from trioeval.web.serving import open_listeners, serve_app  # noqa: PLC0415
    from trioeval.web.watches import Watches  # noqa: PLC0415

    try:
        listeners, address = await open_listeners(terms.host, terms.port)
    except OSError as error:
        return error
    stop = trio.Event()
    door = Door(
        host=terms.host,
        own_names=frozenset({socket.gethostname().lower()}),
        token=terms.token,
        secret=secrets.token_bytes(32),
        cookie=f"trioeval_view_{address.port}",
        make_id=partial(secrets.token_urlsafe, 18),
    )

    def heed(_number: signal.Signals) -> None:
        stop.set()

    url = address.url + ("/" if terms.token is None else f"/?token={terms.token}")
    with interrupts.told_to(heed):
        async with trio.open_nursery() as followers:
            store = StoreReading(path)
            watches = Watches(store, followers)
            view = View(store=store, watches=watches, stop=stop, now=partial(datetime.now, UTC))
            async with trio.open_nursery() as server:
                await server.start(partial(serve_app, view.app(door), listeners, stop))
                show(url)
                say("serving; interrupt to stop")
                if terms.open_browser:
                    followers.start_soon(_open_browser, url)
            followers.cancel_scope.cancel("the server has stopped")
    return None


async def _open_browser(url: str) -> None:
    with suppress(webbrowser.Error):
        await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
