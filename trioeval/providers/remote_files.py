"""Files of tests that a suite names by URL: fetched whole, and kept beside the stored runs.

A file is fetched each time that its suite is loaded, unless the server says that the kept copy is still the
same. So a run that is continued sees a changed file like a changed local one: by the digest of the copy.
Time, size and redirects are bounded. A credential is sent to the server that it is for, and to no other.
"""

import hashlib
import json
import math
import threading
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import attrs
import trio

from trioeval.errors import Fault, ProviderError, ProviderErrorKind
from trioeval.providers.http.client import open_http
from trioeval.providers.http.failures import classify, failure_text
from trioeval.providers.http.replies import NOT_JSON, is_success, read_json
from trioeval.providers.http.wire import (
    HttpClient,
    HttpReply,
    HttpRequest,
    TlsSettings,
    request_source,
)


@attrs.frozen(kw_only=True)
class FetchBounds:
    """The most that fetching one file may take."""

    seconds: float = 300.0
    """For the whole file, with all pages and retries."""
    bytes: int = 2**28
    redirects: int = 5
    attempts: int = 4
    """For each request that fails transiently."""
    longest_wait: float = 30.0
    """Seconds to wait for a server that asks for it."""
    first_wait: float = 0.5


BOUNDS = FetchBounds()
_ROWS_A_PAGE = 100
"""The maximum of the server of rows."""
_TRANSIENT: frozenset[ProviderErrorKind] = frozenset(
    {"attempt_timeout", "connection", "overloaded", "rate_limited", "server"}
)
"""Failures after which a request is repeated, and a copy may be used."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_NOT_MODIFIED = 304
_PAGE_TOO_LARGE = 422
_COPY_HEADERS = {"etag": "if-none-match", "last-modified": "if-modified-since"}
"""Headers that identify the content of a reply, and those that ask whether it has changed."""


@attrs.frozen(kw_only=True)
class RemoteFile:
    """A file on a server."""

    url: str = attrs.field(repr=False)
    copy: Path
    """The file that keeps its content."""
    wanted: str
    """The media type, for the header and for messages: `text/csv`."""
    token: str | None = attrs.field(default=None, repr=False)
    token_source: str = ""
    """The variable that a server which asks for a token is to find it in."""
    rows: Mapping[str, str] | None = None
    """The parameters of the rows of a dataset; None for one file."""
    most_rows: int | None = None
    ca: Path | None = None
    """Certificates of trusted authorities, instead of the default ones."""
    verify: bool = True


def fetch(
    file: RemoteFile,
    *,
    bounds: FetchBounds | None = None,
    cancellable: Callable[[Callable[[], None]], None] = lambda _cancel: None,
) -> ProviderError | None:
    """Fetch a file to its copy, in a thread with an event loop of its own, and wait for it.

    Args:
        file: The file.
        bounds: The most that this may take; None is `BOUNDS`.
        cancellable: Called with a function that another thread may call to end the work.

    Returns:
        The reason why the copy was not renewed although it exists; None if it is what the server has now.

    Raises:
        ProviderError: It cannot be fetched, and no copy exists or the server refuses it for good.
    """
    limits = BOUNDS if bounds is None else bounds
    work = _Work(lambda: _fetched(file, limits))
    cancellable(work.cancel)
    found: ProviderError | None = work.result()
    return found


class _Work:
    """Async work in a thread of its own: the caller's may have a loop, or be interrupted by a signal."""

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._outcome: list[Any] = []
        self._error: Exception | None = None
        self._lock = threading.Lock()
        self._scope: trio.CancelScope | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._is_cancelled = False
        self._thread = threading.Thread(target=self._run, name="remote file", daemon=True)

    def result(self) -> Any:
        """Run the work; if the waiting thread is interrupted, end it first."""
        self._thread.start()
        try:
            self._thread.join()
        finally:
            self.cancel()
            self._thread.join()
        if self._error is not None:
            raise self._error
        if not self._outcome:
            raise ProviderError("connection", "cancelled", fault=Fault.FATAL)
        return self._outcome[0]

    def cancel(self) -> None:
        """End the work soon; from any thread."""
        with self._lock:
            self._is_cancelled = True
            if self._token is not None and self._scope is not None and self._thread.is_alive():
                self._token.run_sync_soon(self._scope.cancel)

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error

    async def _main(self) -> None:
        with trio.CancelScope() as scope:
            with self._lock:
                self._scope, self._token = scope, trio.lowlevel.current_trio_token()
                is_cancelled = self._is_cancelled
            try:
                if not is_cancelled:
                    self._outcome.append(await self._work())
            finally:
                with self._lock:
                    self._token = None


async def _fetched(file: RemoteFile, bounds: FetchBounds) -> ProviderError | None:
    source = request_source("GET", file.url)
    tls = TlsSettings(ca=file.ca, verify=file.verify)
    try:
        with trio.fail_after(bounds.seconds):
            # The client bounds a reply; the sum of all is bounded here.
            async with open_http(tls, max_reply_bytes=bounds.bytes) as client:
                fetching = _Fetching(client, file, bounds)
                await (fetching.whole() if file.rows is None else fetching.pages(file.rows))
    except trio.TooSlowError:
        msg = failure_text("no complete reply from", source, detail=f"within {bounds.seconds:g} s")
        error = ProviderError("attempt_timeout", msg)
        return _or_copy(file, error)
    except ProviderError as error:
        return _or_copy(file, error)
    return None


def _or_copy(file: RemoteFile, error: ProviderError) -> ProviderError:
    """Return a transient error if there is a copy to use instead; otherwise raise it."""
    if error.kind in _TRANSIENT and file.copy.is_file():
        return error
    raise error


@attrs.define(eq=False, repr=False)
class _Fetching:
    """The requests for one file."""

    client: HttpClient
    file: RemoteFile
    bounds: FetchBounds
    received: int = 0

    async def whole(self) -> None:
        """Fetch a single file, unless the copy is still the same."""
        known = _read_facts(self.file)
        asked = {ask: known[name] for name, ask in _COPY_HEADERS.items() if name in known}
        reply = await self._get(self.file.url, asked)
        if reply.status == _NOT_MODIFIED:
            return
        self._check_kind(reply)
        _keep(self.file, reply.body, {n: t for n in _COPY_HEADERS if (t := reply.headers.get(n))})

    async def pages(self, parameters: Mapping[str, str]) -> None:
        """Fetch the rows of a dataset page by page, unless its revision and first page are still the same."""
        found: list[bytes] = []
        most = math.inf if self.file.most_rows is None else self.file.most_rows
        page, revision = _ROWS_A_PAGE, ""
        while len(found) < most:
            length = int(min(page, most - len(found)))
            place = {"offset": str(len(found)), "length": str(length)}
            url = f"{self.file.url}?{urlencode({**parameters, **place})}"
            try:
                reply = await self._get(url)
            except ProviderError as error:
                if error.status != _PAGE_TOO_LARGE or page == 1:
                    raise
                page = max(1, page // 2)  # rows may be too large for a page of so many
                continue
            rows, total = self._rows(reply)
            if not found:
                first = hashlib.sha256(b"\n".join(rows)).hexdigest()
                revision = f"{reply.headers.get('x-revision', '')} {total} {first}"
                is_pinned = "x-revision" in reply.headers
                if is_pinned and _read_facts(self.file).get("revision") == revision:
                    return
            if not rows and len(found) < total:
                msg = failure_text(
                    "no rows from", reply.source, detail=f"after row {len(found)} of {total}"
                )
                raise _unusable(msg)
            found += rows
            if len(found) >= total:
                break
        _keep(self.file, b"".join(row + b"\n" for row in found), {"revision": revision})

    def _rows(self, reply: HttpReply) -> tuple[list[bytes], int]:
        """Return the rows of a page as lines of JSON, and the number of all rows."""
        self._check_kind(reply)
        match read_json(reply.body):
            case {"rows": list(rows), "num_rows_total": int(total)} if all(
                isinstance(row, dict) and isinstance(row.get("row"), dict) for row in rows
            ):
                return [
                    json.dumps(row["row"], ensure_ascii=False).encode("utf-8", "surrogatepass")
                    for row in rows
                ], total
            case data:
                title = "not JSON from" if data is NOT_JSON else "no rows of a dataset from"
                raise _unusable(failure_text(title, reply.source))

    def _check_kind(self, reply: HttpReply) -> None:
        """Refuse a web page, such as that of a login, in place of a file."""
        kind = reply.headers.get("content-type", "").partition(";")[0].strip().lower()
        start = reply.body[:64].lstrip().lower()
        if kind == "text/html" or start.startswith((b"<!doctype html", b"<html")):
            advice = f"the URL must give {self.file.wanted} without a login"
            raise _unusable(failure_text("a web page from", reply.source, advice=advice))

    async def _get(self, url: str, headers: Mapping[str, str] | None = None) -> HttpReply:
        """Return the reply to a request, after its redirects and retries.

        Raises:
            ProviderError: There is none, or it is a failure.
        """
        attempt = 1
        while True:
            try:
                return await self._followed(url, headers or {})
            except ProviderError as error:
                wait = error.retry_after
                if wait is None:
                    wait = self.bounds.first_wait * 2 ** (attempt - 1)
                is_last = attempt == self.bounds.attempts or wait > self.bounds.longest_wait
                if is_last or error.kind not in _TRANSIENT:
                    raise
            attempt += 1
            await trio.sleep(wait)

    async def _followed(self, url: str, headers: Mapping[str, str]) -> HttpReply:
        start = urlsplit(url)
        for _ in range(self.bounds.redirects + 1):
            place = urlsplit(url)
            sent = {"accept": self.file.wanted, **headers}
            if self.file.token and (place.scheme, place.netloc) == (start.scheme, start.netloc):
                sent["authorization"] = f"Bearer {self.file.token}"
            left = self.bounds.bytes - self.received
            reply = await self.client.send(
                HttpRequest(url, sent, None, "GET", max_reply_bytes=max(left, 1))
            )
            self.received += len(reply.body)
            location = reply.headers.get("location")
            if reply.status in _REDIRECTS and location:
                url = _redirected(url, location)
            elif is_success(reply) or reply.status == _NOT_MODIFIED:
                return reply
            else:
                secrets = [self.file.token] if self.file.token else []
                raise classify(
                    reply,
                    secrets=secrets,
                    host=place.hostname or "",
                    key_source=self.file.token_source,
                )
        source = request_source("GET", start.geturl())
        detail = f"more than {self.bounds.redirects} redirects"
        raise _unusable(failure_text("no reply from", source, detail=detail))


def _redirected(url: str, location: str) -> str:
    """Return the target of a redirect; one must not weaken TLS, nor lead into the network of this machine."""
    target = urljoin(url, location)
    before, after = urlsplit(url), urlsplit(target)
    fault = ""
    if after.scheme not in ("http", "https"):
        fault = f"to the scheme {after.scheme}"
    elif before.scheme == "https" and after.scheme == "http":
        fault = "from https to http"
    elif _is_internal(after.hostname) and not _is_internal(before.hostname):
        fault = f"to {after.hostname}, in a private network"
    if fault:
        source = request_source("GET", url)
        raise _unusable(failure_text("refused a redirect of", source, detail=fault))
    return target


def _unusable(message: str) -> ProviderError:
    """Return the error of a reply that will never be the file."""
    return ProviderError("malformed_reply", message, fault=Fault.FATAL, retries=0)


def _is_internal(host: str | None) -> bool:
    """Return whether a host is this machine or an address of a private network."""
    if not host or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return not ip_address(host).is_global
    except ValueError:
        return False


def _facts_file(file: RemoteFile) -> Path:
    return file.copy.with_name(f"{file.copy.name}.facts.json")


def _read_facts(file: RemoteFile) -> dict[str, str]:
    """Return what was recorded with the copy; nothing if there is none, or if it was changed since."""
    try:
        found = json.loads(_facts_file(file).read_text(encoding="utf-8"))
        digest = hashlib.sha256(file.copy.read_bytes()).hexdigest()
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict) or found.get("sha256") != digest:
        return {}
    return {name: text for name, text in found.items() if isinstance(text, str)}


def _keep(file: RemoteFile, content: bytes, facts: Mapping[str, str]) -> None:
    """Replace the copy; a reader sees the old or the new one, and other facts never belong to it."""
    digest = hashlib.sha256(content).hexdigest()
    recorded = {**facts, "sha256": digest}
    if _read_facts(file) == recorded:  # a file that is watched must not seem to change
        return
    try:
        file.copy.parent.mkdir(parents=True, exist_ok=True)
        for path, data in (
            (file.copy, content),
            (_facts_file(file), json.dumps(recorded, indent=1).encode()),
        ):
            made = path.with_name(f"{path.name}.{threading.get_ident()}.new")
            made.write_bytes(data)
            made.replace(path)
    except OSError as error:
        raise _unusable(f"{file.copy} cannot be written: {error.strerror or error}") from None
