"""`trioeval view`: pages that show and control runs in progress."""

import os
import re
import secrets
import signal
import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import attrs
import trio

from trioeval.cli.commands.runs import ViewFlags
from trioeval.cli.environment import database_path, read_environment
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.run.storage import RunStorage
from trioeval.cli.stored_results import open_runs
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import UsageError
from trioeval.report.stored import StoredRunFacts
from trioeval.serving.access_rules import OwnNames, is_loopback

_VARIABLE = "TRIOEVAL_VIEW_TOKEN"  # other users of the machine can see flags
_STOP_GRACE = 0.5  # seconds for responses in progress after the stop
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{8,200}")


def view_runs(db: Path | None, options: ViewFlags, interrupts: Interrupts) -> int:
    """Serve until interrupted, and return the exit code.

    Raises:
        UsageError: The database that is named does not exist, the extra `view` is not installed, or the
            address cannot be bound.
        StoreError: The database cannot be read.
    """
    try:
        import trioeval.web.security  # noqa: F401 - an extra
    except ImportError as error:
        msg = "`trioeval view` needs the extra `view`: pip install 'trioeval[view]'"
        raise UsageError(msg) from error
    named, token = "--token", options.token
    if token is None:
        named, token = _VARIABLE, os.environ.get(_VARIABLE) or None
    if token is not None and not _TOKEN.fullmatch(token):
        msg = f"{named} must have 8 to 200 characters: letters, digits, and any of . _ ~ -"
        raise UsageError(msg)
    if token is None and not is_loopback(options.host):
        token = secrets.token_urlsafe(24)
    environment = read_environment(os.environ)
    path = database_path(db, environment)
    if db is not None or path.exists():
        with open_runs(db, environment) as reader:
            reader.runs(limit=1)
    interrupts.begin_run()
    resume = RunStorage(database=path, named=db is not None).continuation
    failure = trio.run(_serve, path, attrs.evolve(options, token=token), interrupts, resume)
    if failure is not None:
        reason = failure.strerror or failure
        raise UsageError(
            f"cannot listen on {options.host}:{options.port}: {reason}; name another --host or --port"
        )
    return Exit.OK


async def _serve(
    path: Path,
    options: ViewFlags,
    interrupts: Interrupts,
    resume: Callable[[StoredRunFacts], str],
) -> OSError | None:
    """Serve, and return the error if listening failed."""
    from trioeval.serving.listening import open_listeners, serve_app
    from trioeval.web.app import LiveView
    from trioeval.web.pages import StoreReading
    from trioeval.web.security import AccessRules
    from trioeval.web.watches import RunWatches

    try:
        listeners, address = await open_listeners(options.host, options.port)
    except OSError as error:
        return error
    stop = trio.Event()
    door = AccessRules(
        names=OwnNames(host=options.host, machine=frozenset({socket.gethostname().lower()})),
        token=options.token,
        secret=secrets.token_bytes(32),
        cookie=f"trioeval_view_{address.port}",
        make_id=partial(secrets.token_urlsafe, 18),
    )

    def on_signal(_number: signal.Signals) -> None:
        stop.set()

    page = "/" if options.token is None else f"/?token={options.token}"
    with interrupts.deliver_to(on_signal):
        async with trio.open_nursery() as followers:
            store = StoreReading(path)
            watches = RunWatches(store, followers)
            view = LiveView(
                store=store,
                watches=watches,
                stop=stop,
                now=partial(datetime.now, UTC),
                resume=resume,
            )
            async with trio.open_nursery() as server:
                serve = partial(serve_app, view.app(door), listeners, stop, grace=_STOP_GRACE)
                await server.start(serve)
                for place in address.elsewhere():
                    show(place.url + page)
                say("serving; interrupt to stop")
                if options.open_browser:
                    followers.start_soon(_open_browser, address.here.url + page)
            followers.cancel_scope.cancel("the server has stopped")
    return None


async def _open_browser(url: str) -> None:
    with suppress(webbrowser.Error):
        await trio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True)
