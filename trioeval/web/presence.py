"""Nothing is done for a browser that has gone: who types on, or leaves a page, takes back his question."""

import attrs
import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_READING = frozenset({"GET", "HEAD"})


@attrs.frozen
class WhilePresent:
    """An application whose answers end with their readers; what changes something is done to its end."""

    _app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["method"] not in _READING:
            await self._app(scope, receive, send)
            return
        looking = trio.CancelScope()

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # The server closes what it has sent the last of, and must not be disturbed by that.
                looking.cancel("it is answered")
            await send(message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_gone, receive, looking, nursery.cancel_scope)
            await self._app(scope, _no_body, send_on)
            looking.cancel("it is answered")


async def _until_gone(
    receive: Receive, looking: trio.CancelScope, answering: trio.CancelScope
) -> None:
    with looking:
        while (await receive())["type"] != "http.disconnect":
            pass
        answering.cancel("the browser has gone")


async def _no_body() -> Message:
    await trio.lowlevel.checkpoint()
    return {"type": "http.request", "body": b"", "more_body": False}
