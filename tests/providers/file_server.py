"""A server of files for tests: HTTP on loopback, in threads, with replies from the test."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attrs

TABLE = b"q,__expected\nhello,hello\nbye,contains: by\n"


@attrs.frozen
class Reply:
    """A reply of the server."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = attrs.field(factory=dict)
    length: int | None = None
    """The declared length; None is that of the body."""


@attrs.define(eq=False)
class Files:
    """A server of files."""

    url: str = ""
    replies: Callable[[str, Mapping[str, str]], Reply] = lambda _path, _headers: Reply(TABLE)
    """Makes the reply to a request from its target and headers."""
    seen: list[tuple[str, Mapping[str, str]]] = attrs.field(factory=list)
    arrived: threading.Event = attrs.field(factory=threading.Event)
    released: threading.Event = attrs.field(factory=threading.Event)


@contextmanager
def serve_files() -> Iterator[Files]:
    """Serve until the block ends."""
    found = Files()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): text for name, text in self.headers.items()}
            found.seen.append((self.path, headers))
            found.arrived.set()
            reply = found.replies(self.path, headers)
            self.send_response(reply.status)
            sent = {"content-type": "text/csv", **reply.headers}
            if reply.length is not None or reply.status != 304:
                length = len(reply.body) if reply.length is None else reply.length
                sent["content-length"] = str(length)
            for name, text in sent.items():
                self.send_header(name, text)
            self.end_headers()
            self.wfile.write(reply.body)
            if reply.length is not None:
                self.close_connection = True

        def log_message(self, *_of_line: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    found.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield found
    finally:
        found.released.set()
        server.shutdown()
        thread.join()
        server.server_close()
