"""A polite crawler: it discovers hosts while it runs, and each host gets a lane of its own.

At most two connections per host, and a gap between two starts. A page whose connection breaks is fetched
again by its lane. The hosts are ports of this machine, served by the program itself.
"""

from functools import partial
from urllib.parse import urljoin, urlsplit

import trio

from trioeval import LaneSpec, map_on_lanes

POLITE = LaneSpec("host", max_concurrency=2, min_gap=0.02, retries=2)

SITES = {  # the links of each page of each host
    "home": {"/": "news:/ /about", "/about": "/", "/old": ""},
    "news": {"/": "/today /flaky home:/old", "/today": "shop:/", "/flaky": "/today"},
    "shop": {"/": "/gone home:/"},
}
NAMES: dict[int, str] = {}  # of hosts, by port
BREAKS = {"/flaky"}  # pages whose first connection is closed without a reply


async def serve(pages: dict[str, str], stream: trio.SocketStream) -> None:
    path = (await stream.receive_some()).split()[1].decode()
    if path in BREAKS:
        BREAKS.remove(path)
    else:
        status, links = ("200 OK", pages[path]) if path in pages else ("404 Not Found", "")
        for port, name in NAMES.items():
            links = links.replace(f"{name}:", f"http://127.0.0.1:{port}")
        await stream.send_all(f"HTTP/1.0 {status}\r\n\r\n{links}".encode())
    await stream.aclose()


async def fetch(url: str) -> list[str]:
    """Return the links of a page."""
    parts, reply = urlsplit(url), b""
    async with await trio.open_tcp_stream(parts.hostname or "", parts.port or 80) as stream:
        await stream.send_all(f"GET {parts.path} HTTP/1.0\r\n\r\n".encode())
        async for chunk in stream:
            reply += chunk
    head, _, body = reply.decode().partition("\r\n\r\n")
    if not head:
        raise ConnectionError("no reply")
    if " 200 " not in head:
        raise LookupError(head)
    return [urljoin(url, link) for link in body.split()]


async def crawl(start: str) -> list[str]:
    """Return a line for every page that can be reached from `start`."""
    seen, lines = {start}, list[str]()
    async with map_on_lanes(
        fetch, [start], lane=lambda url: urlsplit(url).netloc, spec=POLITE
    ) as pages:
        async for page in pages:
            links = [] if page.error else page.unwrap()
            for link in {*links} - seen:
                seen.add(link)
                pages.add(link)
            url, what = urlsplit(page.item), page.error or f"{len(links)} links"
            lines.append(f"{NAMES[url.port or 80]}{url.path}: {what}")
    return sorted(lines)


async def main() -> None:
    async with trio.open_nursery() as servers:
        for name, pages in SITES.items():
            serving = partial(trio.serve_tcp, partial(serve, pages), 0, host="127.0.0.1")
            (listener,) = await servers.start(serving)
            NAMES[listener.socket.getsockname()[1]] = name
        lines = await crawl(f"http://127.0.0.1:{next(iter(NAMES))}/")
        servers.cancel_scope.cancel()
    print("\n".join(lines))


if __name__ == "__main__":
    trio.run(main)
