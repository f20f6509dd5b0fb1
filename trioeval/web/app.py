"""The application of the live view: its addresses, and the actions of its buttons."""

import hashlib
import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote

import attrs
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trioeval.errors import NotLiveError, StoreError
from trioeval.providers.media import type_of_file
from trioeval.report.head import Head
from trioeval.report.records import RowRecord
from trioeval.report.stored import StoredRunFacts
from trioeval.store.reader import StoreReader
from trioeval.store.row_pages import RowQuery
from trioeval.web.lane_cards import lane_id
from trioeval.web.pages import Pages, StoreReading, short
from trioeval.web.row_page import sections_of, summary_of
from trioeval.web.run_page import (
    RowsPicture,
    RunPicture,
    line_of,
    picture_of,
    read_query,
    rows_of,
    tasks_of,
)
from trioeval.web.security import AccessGuard, AccessRules, refuse
from trioeval.web.watches import RunWatch, RunWatches, SharedState

# Scripts and styles of the pages: a fixed list of files, read once, so no address reaches any other file.


_OWN = Path(__file__).parent / "static"
_UPLOT = Path(__file__).parents[1] / "report" / "vendor" / "uplot"
_SCRIPT, _STYLE = "text/javascript", "text/css"
_FILES = {
    "view.css": (_OWN / "view.css", _STYLE),
    "view.js": (_OWN / "view.js", _SCRIPT),
    "icon.svg": (_OWN / "icon.svg", "image/svg+xml"),
    "htmx.js": (_OWN / "htmx.min.js", _SCRIPT),
    "hx-sse.js": (_OWN / "hx-sse.min.js", _SCRIPT),
    "uplot.js": (_UPLOT / "uPlot.iife.min.js", _SCRIPT),
    "uplot.css": (_UPLOT / "uPlot.min.css", _STYLE),
}


@attrs.frozen
class StaticFiles:
    """The contents by name, with media types."""

    _found: Mapping[str, tuple[bytes, str]] = attrs.field(repr=False)
    version: str
    """A digest of all files in their addresses, so that browsers may cache them."""

    @classmethod
    def load(cls) -> "StaticFiles":
        """Read all files. Blocks shortly."""
        found = {name: (path.read_bytes(), kind) for name, (path, kind) in _FILES.items()}
        digest = hashlib.blake2b(b"".join(body for body, _ in found.values()), digest_size=6)
        return cls(found, digest.hexdigest())

    async def answer(self, request: Request) -> Response:  # noqa: ASYNC124 - or it gets a thread
        """Return one file."""
        found = self._found.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404, "file not found")
        body, kind = found
        keep = {"cache-control": "private, max-age=31536000, immutable"}
        return Response(body, media_type=kind, headers=keep)


# The requests that buttons of the live view send to a run. Pure.


_DONE = {
    "pause": "lane paused: calls in flight continue",
    "resume": "lane resumed",
    "retune": "lane retuned",
    "stop": "stopping: running rows may finish",
    "cancel": "cancelling running rows",
}


@attrs.frozen(kw_only=True)
class Command:
    """A request in the form of the live channel."""

    do: str
    more: Mapping[str, Any]

    @property
    def done(self) -> str:
        """The message after success."""
        return _DONE[self.do]

    def json(self) -> dict[str, Any]:
        """Return the request for `Live.ask`."""
        return {"do": self.do, **self.more}


def read_command(form: Mapping[str, str]) -> Command:
    """Read the request from a form.

    Args:
        form: `do`, and depending on it `lane`, `maxConcurrency`, `rpm` and `tpm`; blank ones change nothing.

    Raises:
        ValueError: The form is not valid; the text states why.

    Example:
        >>> read_command({"do": "retune", "lane": "a", "maxConcurrency": "4", "rpm": ""}).json()
        {'do': 'retune', 'lane': 'a', 'maxConcurrency': 4}
    """
    do = form.get("do", "")
    if do not in _DONE:
        raise ValueError(f"do must be one of {', '.join(_DONE)}, got {do[:40]!r}")
    if do in {"stop", "cancel"}:
        return Command(do=do, more={})
    if "lane" not in form:
        raise ValueError("lane is missing: name one")
    more: dict[str, Any] = {"lane": form["lane"]}
    if do == "retune":
        given = {name: form.get(name, "").strip() for name in ("maxConcurrency", "rpm", "tpm")}
        more |= {name: _number(name, text) for name, text in given.items() if text}
        if len(more) == 1:
            raise ValueError("set maxConcurrency, rpm or tpm")
    return Command(do=do, more=more)


def _number(name: str, text: str) -> float:
    """Return a number for JSON; the run checks its range."""
    try:
        number = int(text) if name == "maxConcurrency" else float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        expected = "a whole number" if name == "maxConcurrency" else "a number"
        raise ValueError(f"{name} must be {expected}, got {text[:40]!r}")
    return number


# The events of a run for one browser: server-sent events, each with the newest state.


_APART = 0.25  # seconds between two states
_ROWS_APART = 1.0  # seconds between two updates of the rows
_QUIET = 15.0  # seconds after which something is sent in any case, to detect closed connections


@attrs.frozen(kw_only=True)
class RunEvents:
    """A response that ends with the run, or with the server."""

    run_id: str
    watches: RunWatches
    stop: trio.Event
    picture: Callable[[RunWatch], str]
    """The watch of the run."""

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the events."""
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_until_stop, self.stop, nursery.cancel_scope)
            await self._text_response(partial(_send, send))
            nursery.cancel_scope.cancel("the run has ended")
        await send({"type": "http.response.body", "body": b""})

    async def _text_response(self, send: Callable[[str], Awaitable[None]]) -> None:
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
    r"""Return a server-sent event.

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


def _points(watch: RunWatch) -> str | None:
    """Return the newest point of each lane for its chart."""
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


# Requests end when the browser disconnects: a user who continues typing or leaves a page cancels them.


_READING = frozenset({"GET", "HEAD"})


@attrs.frozen
class WhilePresent:
    """An application whose responses end when the reader disconnects; requests with effects are completed."""

    _app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["method"] not in _READING:
            await self._app(scope, receive, send)
            return
        looking = trio.CancelScope()

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                # The server closes the connection after the last part, and must not be interrupted.
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


_RUNS = 100  # in the list; more are loaded on demand
_MOST_RUNS = 10_000
_LONGEST_FORM = 10_000  # bytes
_HEARD_WITHIN = 3.0  # seconds
_COLUMNS = 200  # columns in the filter of rows
_LONGEST_WORD = 500  # characters of a message on a page


@attrs.frozen(kw_only=True)
class LiveView:
    """The handlers of the live view."""

    store: StoreReading
    watches: RunWatches
    stop: trio.Event
    now: Callable[[], datetime]
    resume: Callable[[StoredRunFacts], str]
    """Returns how a run is continued, such as a command."""
    pages: Pages = attrs.field(factory=Pages.load)
    assets: StaticFiles = attrs.field(factory=StaticFiles.load)

    def app(self, door: AccessRules) -> ASGIApp:
        """Return the ASGI application with its access checks."""
        get = ["GET"]
        inner = Starlette(
            routes=[
                Route("/", self.runs, methods=get),
                Route("/runs", partial(self.runs, only_list=True), methods=get),
                Route("/run/{run:path}", self.run, methods=get),
                Route("/rows/{run:path}", self.rows, methods=get),
                Route("/row/{position:int}/{index:int}/{run:path}", self.row, methods=get),
                Route("/events/{run:path}", self.events, methods=get),
                Route("/steer/{run:path}", self.steer, methods=["POST"]),
                Route("/media/{file}", self.media, methods=get),
                Route("/static/{name}", self.assets.answer, methods=get),
            ],
            exception_handlers={HTTPException: self._refuse, StoreError: self._error_page},
        )
        inner.router.redirect_slashes = False
        return AccessGuard(WhilePresent(inner), door)

    async def runs(self, request: Request, *, only_list: bool = False) -> Response:
        """Show all runs, the newest first, running ones before the others."""
        text = request.query_params.get("most", "")
        most = min(int(text), _MOST_RUNS) if text.isdecimal() and len(text) < 9 else _RUNS  # noqa: PLR2004
        most = max(most, _RUNS)
        found = list[StoredRunFacts]()
        if await self.store.is_there():
            found = [*await self.store.read(lambda reader: reader.runs(limit=most + 1))]
        lines = [line_of(run, self.now(), self._state(run)) for run in found[:most]]
        lines.sort(key=lambda line: line.state != "running")
        more = 2 * most if len(found) > most else None
        return self._page(
            request, "_runs" if only_list else "runs", runs=lines, most=most, more=more
        )

    async def run(self, request: Request) -> Response:
        """Show one run."""
        query = read_query(request.query_params)

        def look(reader: StoreReader) -> Mapping[str, Any]:
            facts = _run(reader, request)
            return {
                "picture": self._picture(reader, facts),
                "rows": _rows(reader, facts, query),
                "tasks": tasks_of(facts, reader.datasets(facts)),
                "choices": _choices(reader, facts),
                "going": facts.state == "running",
                "resume": self.resume(facts),
            }

        found = await self.store.read(look, takes_long=bool(query.text))
        chosen = request.query_params.get("in", "")
        return self._page(request, "run", **found, **_named(request), wanted=query, chosen=chosen)

    async def rows(self, request: Request) -> Response:
        """Show rows of a run, as a part of its page."""
        row_query = read_query(request.query_params)

        def look(reader: StoreReader) -> RowsPicture:
            facts = _run(reader, request)
            return _rows(reader, facts, row_query)

        rows = await self.store.read(look, takes_long=bool(row_query.text))
        answer = self._page(request, "_rows", rows=rows, **_named(request))
        query = f"?{rows.here}" if rows.here else ""
        # The address makes the page the same when it is loaded again.
        answer.headers["hx-replace-url"] = f"/run/{_named(request)['quoted']}{query}"
        return answer

    async def row(self, request: Request) -> Response:
        """Show all facts about one row."""
        position, index = request.path_params["position"], request.path_params["index"]

        def look(reader: StoreReader) -> Mapping[str, Any]:
            facts = _run(reader, request)
            task = facts.tasks[position] if position < len(facts.tasks) else None
            found = None
            if position < len(facts.tasks):
                found = reader.record(facts, task, index)
            if found is None:
                raise HTTPException(404, f"{facts.id} has no row {index} yet")
            record = RowRecord.of(found)
            return {
                "line": line_of(facts, self.now()),
                "task": task,
                "index": index,
                "row": summary_of(record),
                "sections": list(sections_of(record, reader.calls(facts, task, index))),
                "expected": facts.sizes[position],
                "base": f"/row/{position}",
            }

        return self._page(request, "row", **await self.store.read(look), **_named(request))

    async def media(self, request: Request) -> Response:
        """Return a file of media. Its name and its type come from our own table, never from a reply."""
        file = request.path_params["file"]
        found = await self.store.media(file)
        if found is None:
            raise HTTPException(404, "file not found")
        headers = {
            "cache-control": "private, max-age=31536000, immutable",
            "content-disposition": f'inline; filename="{file}"',
        }
        return Response(found, media_type=type_of_file(file), headers=headers)

    async def events(self, request: Request) -> Any:  # noqa: ASYNC124 - or it gets a thread
        """Send the events of a run."""
        return RunEvents(
            run_id=request.path_params["run"],
            watches=self.watches,
            stop=self.stop,
            picture=partial(self._watched, request),
        )

    async def steer(self, request: Request) -> Response:
        """Pause, resume or retune a lane, or stop or cancel the run."""
        body = await _read_body(request)
        try:
            form = dict(parse_qsl(body.decode(), keep_blank_values=True))
            command = read_command(form)
        except ValueError as error:
            return self._message_page(request, str(error), is_wrong=True)
        async with self.watches.watching(request.path_params["run"]) as watch:
            # A page that was open for long finds a watch that has just started.
            with trio.move_on_after(_HEARD_WITHIN):
                await watch.wait_heard()
            if watch.live is None:
                return self._message_page(
                    request, "the run does not accept commands", is_wrong=True
                )
            try:
                answer = await watch.live.ask(command.json())
            except NotLiveError as error:
                return self._message_page(request, str(error), is_wrong=True)
        if not answer["ok"]:
            return self._message_page(request, str(answer["error"]), is_wrong=True)
        return self._message_page(request, command.done, is_wrong=False)

    def _message_page(self, request: Request, text: str, *, is_wrong: bool) -> Response:
        return self._page(request, "_message", text=text, is_wrong=is_wrong)

    def _page(self, request: Request, name: str, status: int = 200, **given: Any) -> HTMLResponse:
        text = self.pages.render(
            name, csrf=request.scope["csrf"], version=self.assets.version, **given
        )
        return HTMLResponse(text, status)

    def _picture(self, reader: StoreReader, facts: StoredRunFacts) -> RunPicture:
        watch = self.watches.now(facts.id)
        if watch is None or watch.state is None:
            is_over = facts.state != "running"
            watch = RunWatch(
                facts.id, facts=facts, activities=reader.activity(facts) if is_over else ()
            )
        return picture_of(watch, self.now())

    def _watched(self, request: Request, watch: RunWatch) -> str:
        if watch.shown is None or watch.shown.version != watch.version:
            given = _named(request) | {
                "picture": picture_of(watch, self.now()),
                "resume": "" if watch.facts is None else self.resume(watch.facts),
            }
            watch.shown = SharedState(watch.version, self.pages.render("_live", **given))
        return watch.shown.text

    def _state(self, run: StoredRunFacts) -> Mapping[str, Any] | None:
        watch = self.watches.now(run.id)
        return None if watch is None else watch.state

    async def _refuse(self, request: Request, error: Exception) -> Response:  # noqa: ASYNC124 - see above
        if not isinstance(error, HTTPException):
            raise error
        return self._text_response(request, error.detail, error.status_code)

    async def _error_page(self, request: Request, error: Exception) -> Response:  # noqa: ASYNC124
        return self._text_response(request, str(error), 500)

    def _text_response(self, request: Request, text: str, status: int) -> Response:
        if "hx-request" in request.headers:
            return refuse(request.headers, short(text, _LONGEST_WORD), status)
        return self._page(request, "message", status, text=text)


async def _read_body(request: Request) -> bytes:
    """Return the body of a request; reading stops when it is too long."""
    body = bytearray()
    async with aclosing(request.stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > _LONGEST_FORM:
                raise HTTPException(413, "the request is too long")
    return bytes(body)


def _run(reader: StoreReader, request: Request) -> StoredRunFacts:
    run_id = request.path_params["run"]
    found = reader.find(run_id)
    if found is None:
        raise HTTPException(404, f"run {run_id} not found; it may have been deleted")
    return found


def _named(request: Request) -> dict[str, Any]:
    """Return the id of the run of a request, as text and quoted for addresses."""
    run_id = request.path_params["run"]
    return {"run_id": run_id, "quoted": quote(run_id, safe="")}


def _rows(reader: StoreReader, run: StoredRunFacts, query: RowQuery) -> RowsPicture:
    """Return a page of rows, and the number of matching rows that never started and have no records."""
    unlisted = 0
    if not query.text and query.status in {None, "not_run"}:
        for position, task in enumerate(run.tasks):
            if query.position in {None, position}:
                for one in reader.never_began(run, task):
                    of_column = one.columns.get(query.column or 0, 0)
                    unlisted += len(one.rows) if query.column is None else of_column
    return rows_of(run, reader.row_page(run, query), query, unlisted)


def _choices(reader: StoreReader, facts: StoredRunFacts) -> list[tuple[str, str]]:
    """Return the tasks and columns for the filter of rows, each with its name."""
    found = []
    for position, head in enumerate(map(Head.read, reader.heads(facts))):
        task = "" if head.task is None else f"{head.task}: "
        if head.task is not None:
            found.append((str(position), head.task))
        if len(head.columns) > 1:
            for number, column in enumerate(head.columns):
                found.append((f"{position}:{number}", f"{task}[{column.provider}] {column.label}"))
    return found[:_COLUMNS]
