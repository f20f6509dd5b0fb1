"""A run as it goes on, for one browser: server-sent events, each with the newest picture there is."""

import json
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import attrs
import trio
from starlette.types import Receive, Scope, Send

from trioeval.web.lane_cards import lane_id
from trioeval.web.watches import Watch, Watches

_APART = 0.25  # seconds between two pictures
_ROWS_APART = 1.0  # seconds between two calls to look at the rows again
_QUIET = 15.0  # seconds after which something is sent all the same: who has gone is found out


@attrs.frozen(kw_only=True)
class RunEvents:
    """An answer that ends with the run, or with the server."""

    run_id: str
    watches: Watches
    stop: trio.Event
    picture: Callable[[Watch], str]
    """What is shown of it."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Answer."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_stop, self.stop, nursery.cancel_scope)
            await self._tell(partial(_send, send))
            nursery.cancel_scope.cancel("all is told")
        await send({"type": "http.response.body", "body": b""})

    async def _tell(self, send: Callable[[str], Awaitable[None]]) -> None:
        seen, rows, rows_at = -1, -1, 0.0
        async with self.watches.watching(self.run_id) as watch:
            while True:
                with trio.move_on_after(_QUIET) as quiet:
                    await watch.wait_news(seen)
                if quiet.cancelled_caught:
                    await send(":\n\n")
                    continue
                seen, over, now = watch.version, watch.over, trio.current_time()
                if watch.facts is not None or watch.trouble is not None or over:
                    await send(message(self.picture(watch)))
                if (points := _points(watch)) is not None:
                    await send(message(points, "points"))
                if watch.rows != rows and (over or now >= rows_at + _ROWS_APART):
                    rows, rows_at = watch.rows, now
                    await send(message("", "rows"))
                if over:
                    await send(message("", "over"))
                    return
                await trio.sleep(_APART)


def message(text: str, event: str | None = None) -> str:
    r"""A server-sent event.

    Example:
        >>> message("a\nb", "news")
        'event: news\ndata: a\ndata: b\n\n'
    """
    return "".join(_lines(text, event)) + "\n"


def _lines(text: str, event: str | None) -> Iterator[str]:
    if event is not None:
        yield f"event: {event}\n"
    for line in text.splitlines() or [""]:
        yield f"data: {line}\n"


def _points(watch: Watch) -> str | None:
    """The newest point of each lane, for its timeline."""
    state = watch.state
    if state is None:
        return None
    lanes = {lane_id(lane["name"]): [lane["inFlight"], lane["limit"]] for lane in state["lanes"]}
    return json.dumps({"t": state["elapsedS"], "lanes": lanes})


async def _send(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _until_stop(stop: trio.Event, scope: trio.CancelScope) -> None:
    await stop.wait()
    scope.cancel("the server stops")
