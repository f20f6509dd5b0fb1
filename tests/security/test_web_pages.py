"""A foreign web page: the requests its scripts can send to the servers of this machine, and the responses."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
import trio
from local_servers import SLOTS, TOKEN, Local, in_trio, limits_server, metrics_server

from trioeval.errors import LimitError
from trioeval.limits import LimitState
from trioeval.limits.http_client import open_http_limits
from trioeval.serving.access_rules import OwnNames
from trioeval.serving.token_files import forget_token, keep_token, read_token

pytestmark = [pytest.mark.attack("web pages"), pytest.mark.network]

PAUSE = json.dumps({"key": "slots", "seconds": 600})
JSON = {"content-type": "application/json"}
KNOWN = {**JSON, "authorization": f"Bearer {TOKEN}"}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is connected directly, whatever the environment of the machine is."""
    monkeypatch.setenv("NO_PROXY", "*")


async def untouched(server: Local) -> None:
    assert list(await server.limits.states()) == [LimitState(limit=SLOTS)]


NAMES = [
    "evil.example",
    "evil.example:8770",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "localhost.",
    "localhost@evil.example",
    "evil.example#localhost",
    "evil.example/localhost",
    "localhost:80:80",
    "0.0.0.0",  # noqa: S104 - a name
    "192.0.2.7",
    "169.254.169.254",
    "[::ffff:127.0.0.1]",
    "127.1",
    "0x7f000001",
    "2130706433",
    "my-machine",
    "*",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_foreign_host_name_is_refused(name: str) -> None:
    """No limit is shown or changed and no number of a run is shown, whatever address DNS returns."""

    async def main() -> None:
        async with limits_server(token=None) as server, metrics_server() as metrics:
            for method, path, body in (
                ("GET", "/v1/admin/limits", ""),
                ("GET", "/healthz", ""),
                ("GET", "/nowhere", ""),
                ("POST", "/v1/admin/pause", PAUSE),
                ("DELETE", "/v1/admin/limits/slots", ""),
            ):
                reply = await server.ask(method, path, {"host": name, **JSON}, body)
                assert reply.status in {400, 421}, path
                assert "slots" not in reply.body
            reply = await metrics.ask("GET", "/metrics", {"host": name})
            assert reply.status in {400, 421}
            await untouched(server)

    in_trio(main)


PAGES: Mapping[str, Mapping[str, str]] = {
    "of another site": {"origin": "https://evil.example"},
    "of another port": {"origin": "http://127.0.0.1:5173"},
    "of another port, by name": {"origin": "http://localhost:3000"},
    "of a file or a frame": {"origin": "null"},
    "of an extension": {"origin": "chrome-extension://abc"},
    "of two origins": {"origin": "http://127.0.0.1, https://evil.example"},
    "of the same name over TLS elsewhere": {"origin": "https://127.0.0.1"},
    "with a broken origin": {"origin": "http://["},
    "in an image": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"},
    "in an image of another port": {"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"},
    "in a script": {"sec-fetch-site": "cross-site", "sec-fetch-dest": "script"},
    "by fetch": {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_neither_changes_nor_reads_anything(page: str) -> None:
    """This holds for any request, even if it knew the token."""

    async def main() -> None:
        async with limits_server(token=None) as server, metrics_server() as metrics:
            for headers in (JSON, KNOWN, {"content-type": "text/plain"}):
                for method, path, body in (
                    ("POST", "/v1/admin/pause", PAUSE),
                    ("PUT", "/v1/admin/limits", json.dumps({"key": "slots", "capacity": 9})),
                    ("DELETE", "/v1/admin/limits/slots", ""),
                    ("GET", "/v1/admin/limits", ""),
                    ("OPTIONS", "/v1/admin/pause", ""),
                ):
                    reply = await server.ask(method, path, {**headers, **PAGES[page]}, body)
                    assert reply.status == 403, (method, path)
                    assert "access-control" not in reply.head.lower()
                    assert "capacity" not in reply.body
            assert (await metrics.ask("GET", "/metrics", PAGES[page])).status == 403
            await untouched(server)

    in_trio(main)


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "text/plain;charset=UTF-8",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "text/plain; application/json",
        "application/jsonp",
        "text/json",
        ", application/json",
    ],
)
def test_a_form_is_refused(kind: str) -> None:
    """Pages may send forms without a preflight, and old browsers do not name the origin."""

    async def main() -> None:
        async with limits_server() as server:
            for path, body in (
                ("/v1/admin/pause", PAUSE),
                ("/v1/reserve", json.dumps({"lease_id": "a", "requirements": []})),
                ("/v1/complete", json.dumps({"lease_id": "a"})),
                ("/v1/extend", json.dumps({"lease_id": "a"})),
            ):
                headers = {**KNOWN, "content-type": kind}
                assert (await server.ask("POST", path, headers, body)).status == 415
            await untouched(server)

    in_trio(main)


def test_a_link_shows_no_limits() -> None:
    """A browser that follows a link from a foreign page has no token; these servers have no own pages."""

    async def main() -> None:
        link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        async with limits_server() as server:
            assert (await server.ask("GET", "/v1/admin/limits", link)).status == 401
            form = {**link, "content-type": "text/plain", "origin": "https://evil.example"}
            assert (await server.ask("POST", "/v1/admin/pause", form, PAUSE)).status == 403
            await untouched(server)

    in_trio(main)


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer", "Bearer ", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", TOKEN,
     f"Bearer {TOKEN[:-1]}", "Bearer caf\u00e9", f"Bearer {TOKEN.upper()}", f"Bearer Bearer {TOKEN}"],
)  # fmt: skip
def test_requests_without_the_token_are_refused(authorization: str) -> None:
    """The only exception is the path that shows that the server runs."""

    async def main() -> None:
        async with limits_server() as server:
            headers = {**JSON, "authorization": authorization}
            for method, path, body in (
                ("GET", "/v1/admin/limits", ""),
                ("GET", "/v1/admin/limits/slots", ""),
                ("POST", "/v1/admin/pause", PAUSE),
                ("DELETE", "/v1/admin/limits/slots", ""),
                ("GET", f"/v1/admin/limits?token={TOKEN}", ""),
                ("GET", "//healthz", ""),
                ("GET", "/healthz/../v1/admin/limits", ""),
            ):
                assert (await server.ask(method, path, headers, body)).status == 401, path
            assert (await server.ask("GET", "/healthz", headers)).status == 200
            await untouched(server)

    in_trio(main)


def test_a_client_with_the_token_may_use_any_host_name() -> None:
    """A server with its own name needs no further setting: pages do not know its token."""

    async def main() -> None:
        async with limits_server() as server:
            named = {**KNOWN, "host": "limits.example"}
            assert (await server.ask("POST", "/v1/admin/pause", named, PAUSE)).status == 200
            no_page = {**KNOWN, "host": "limits.example", "origin": "http://evil.example"}
            assert (await server.ask("GET", "/v1/admin/limits", no_page)).status == 403

    in_trio(main)


def test_metrics_are_read_under_their_own_host_name() -> None:
    """No other method is accepted."""

    async def main() -> None:
        async with metrics_server() as metrics:
            for name in ("127.0.0.1", f"localhost:{metrics.port}", "[::1]"):
                assert (await metrics.ask("GET", "/metrics", {"host": name})).status == 200
            for method in ("POST", "PUT", "DELETE", "OPTIONS"):
                assert (await metrics.ask(method, "/metrics")).status == 405

    in_trio(main)


def test_names_of_the_machine_are_accepted_only_if_it_listens_everywhere() -> None:
    """This is as with the view."""
    everywhere = OwnNames(host="0.0.0.0", machine=frozenset({"box"}))  # noqa: S104
    assert [everywhere.has(one) for one in ("box:1", "192.0.2.7", "evil.example")] == [
        True,
        True,
        False,
    ]


# --- the token of a server of this user -------------------------------------------------------------


def test_programs_of_the_user_find_the_token_of_a_restarted_server_too() -> None:
    """No setting is needed; the file is private, and removed with the server."""

    async def main() -> None:
        async with limits_server() as server:
            async with open_http_limits(server.url) as backend:
                with pytest.raises(
                    LimitError, match="programs of the user who started it need none"
                ):
                    await backend.states()
                stale = keep_token(server.port, "of-the-server-before")
                with pytest.raises(LimitError, match="does not accept the token"):
                    await backend.states()
                path = keep_token(server.port, TOKEN)
                assert path == stale
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
                assert len(await backend.states()) == 1
            async with open_http_limits(server.url, token="wrong") as backend:  # noqa: S106
                with pytest.raises(LimitError, match="does not accept the token"):
                    await backend.states()
            forget_token(path, "of-another-server")
            assert read_token(server.port) == TOKEN
            forget_token(path, TOKEN)
            assert not path.exists()

    in_trio(main)


@pytest.mark.parametrize("wrong", ["folder mode", "file mode", "link", "folder", "pipe", "empty"])
def test_a_token_that_others_could_have_written_is_ignored(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a program would send its limits to whatever process listens there."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = keep_token(8770, "planted")
    assert read_token(8770) == "planted"
    match wrong:
        case "folder mode":
            path.parent.chmod(0o755)
        case "file mode":
            path.chmod(0o644)
        case "link":
            path.rename(tmp_path / "elsewhere")
            path.symlink_to(tmp_path / "elsewhere")
        case "folder":
            path.unlink()
            path.mkdir()
        case "pipe":
            path.unlink()
            os.mkfifo(path, 0o600)
        case _:
            path.write_text("")
    assert read_token(8770) is None


def test_a_token_is_sent_to_no_other_machine_or_port() -> None:
    """It belongs to one server."""
    seen: list[bytes] = []

    async def main() -> None:
        async def listen(stream: trio.SocketStream) -> None:
            async with stream:
                seen.append(bytes(await stream.receive_some(65536)))

        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        keep_token(port + 1, TOKEN)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.serve_listeners, listen, [listener])
            async with open_http_limits(f"http://127.0.0.1:{port}") as backend:
                with pytest.raises(LimitError):
                    await backend.states()
            nursery.cancel_scope.cancel("done")

    in_trio(main)
    assert seen
    assert TOKEN.encode() not in b"".join(seen)
