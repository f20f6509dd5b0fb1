"""Access to the live view over a real socket, with requests of every kind."""

from pathlib import Path

import pytest
from view_server import COOKIE, in_trio, make_store, serving

from trioeval.serving.access_rules import is_loopback

pytestmark = [pytest.mark.attack("web pages"), pytest.mark.network]

SUITE = '{providers: [echo], prompts: ["{{a}}"], tests: [{vars: {a: x}}]}'
TOKEN = "correct-horse"  # noqa: S105


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_store(tmp_path_factory.mktemp("view"), SUITE)


@pytest.mark.parametrize(
    ("listens", "named", "is_let_in"),
    [
        ("127.0.0.1", "127.0.0.1:1", True),
        ("127.0.0.1", "localhost", True),
        ("127.0.0.1", "LOCALHOST:9000", True),  # forwarded from another port
        ("127.0.0.1", "[::1]:80", True),
        ("127.0.0.1", "evil.example", False),
        ("127.0.0.1", "127.0.0.1.evil.example", False),
        ("127.0.0.1", "localhost.", False),
        ("127.0.0.1", "localhost@evil.example", False),
        ("127.0.0.1", "evil.example/localhost", False),
        ("127.0.0.1", "localhost:80:80", False),
        ("127.0.0.1", "192.0.2.7", False),
        ("127.0.0.1", "my-machine", False),
        ("192.0.2.7", "192.0.2.7:80", True),
        ("192.0.2.7", "192.0.2.8", False),
        ("box.example", "Box.example", True),
        ("0.0.0.0", "192.0.2.7", True),  # noqa: S104 - a name leads elsewhere, a number cannot
        ("0.0.0.0", "my-machine:8642", True),  # noqa: S104
        ("0.0.0.0", "evil.example", False),  # noqa: S104
    ],
)
def test_only_its_own_names_reach_the_server(
    database: Path, listens: str, named: str, *, is_let_in: bool
) -> None:
    """Other host names are refused, as a foreign page could use its own name."""

    async def main() -> None:
        async with serving(database, host=listens) as server:
            reply = await server.ask("/", {"host": named})
            assert reply.status == (200 if is_let_in else 421)
            assert ("set-cookie" in reply.headers) == is_let_in

    in_trio(main)


def test_a_token_is_used_once_and_replaced_by_a_cookie(database: Path) -> None:
    """The token leaves the address at once; wrong tokens and cookies are refused."""

    async def main() -> None:
        async with serving(database, token=TOKEN) as server:
            for path in (
                "/",
                "/runs",
                "/run/x",
                "/?token=",
                "/?token=wrong-horse",
                "/?Token=" + TOKEN,
            ):
                refused = await server.ask(path)
                assert refused.status == 401, path
                assert "set-cookie" not in refused.headers
                assert "trioeval view" in refused.body
            public = await server.ask("/static/view.css")
            assert (public.status, "set-cookie" in public.headers) == (200, False)
            first = await server.ask(f"/run/a%2Fb?text=x&token={TOKEN}")
            assert (first.status, first.headers["location"]) == (303, "/run/a%2Fb?text=x")
            cookie = first.headers["set-cookie"]
            assert cookie.startswith(f"{COOKIE}=session0.")
            assert cookie.endswith("; HttpOnly; SameSite=Strict; Path=/")
            assert (await server.ask("/", first.session)).status == 200
            name, _, proof = first.session["cookie"].rpartition(".")
            for made in (f"{COOKIE}=session0", f"{COOKIE}=session1.{proof}", f"{name}.{proof[:-1]}0x",
                         f"{COOKIE}=.", f'{COOKIE}="', "=;=;,", f"other={proof}"):  # fmt: skip
                assert (await server.ask("/", {"cookie": made})).status == 401, made
            elsewhere = await server.ask(f"//evil.example/?token={TOKEN}")
            assert elsewhere.headers["location"] == "/evil.example/"

    in_trio(main)


def test_only_a_page_of_this_server_changes_anything(database: Path) -> None:
    """Origin and token must be right; then the run is called, which has ended here."""

    async def main() -> None:
        async with serving(database) as server:
            page, second = await server.ask("/"), await server.ask("/")
            good = {**page.session, "origin": f"http://{server.host}"}
            request = {"method": "POST", "body": "do=stop"}
            reply = await server.ask("/steer/x", good, **request)
            assert (reply.status, "the run does not accept commands" in reply.body) == (200, True)
            for wrong in (
                {"origin": ""},
                {"origin": "null"},
                {"origin": "http://evil.example"},
                {"origin": f"http://{server.host}.evil.example"},
                {"origin": "http://127.0.0.1:1"},  # another server of this machine
                {"origin": f"file://{server.host}"},
                {"x-csrf-token": ""},
                {"x-csrf-token": good["x-csrf-token"][:-1]},
                {"x-csrf-token": second.session["x-csrf-token"]},
                {"cookie": second.session["cookie"]},
                {"cookie": ""},
            ):
                refused = await server.ask("/steer/x", good | wrong, **request)
                assert refused.status == 403, wrong
            # None of it breaks the check itself.
            for broken in (
                {"origin": "http://["},
                {"x-csrf-token": "\u00e9"},
                {"cookie": f'{COOKIE}="session0.\u00e9"'},
                {"cookie": f'{COOKIE}="session0.\\351"'},
            ):
                assert (await server.ask("/steer/x", good | broken, **request)).status == 403, (
                    broken
                )
            # Browsers send cookies of all servers of a machine, whatever they contain.
            for other in ('a={"x": 1}', "b", "c=d e", 'f="', "@g=1", "h=\u00e9", "[i]=1"):
                beside = good | {"cookie": f"{other}; {good['cookie']}; {other}"}
                assert (await server.ask("/steer/x", beside, **request)).status == 200, other
            for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "QUERY"):
                assert (await server.ask("/steer/x", method=method)).status == 403
                assert (await server.ask("/steer/x", good, method=method)).status == 405
            assert (await server.ask("/steer/x?do=stop")).status == 405
            assert (await server.ask("/", good, **request)).status == 405
            long = await server.ask("/steer/x", good, method="POST", body="do=" + "x" * 20_000)
            assert long.status == 413

    in_trio(main)


def test_a_refusal_removes_nothing_from_a_page(database: Path) -> None:
    """Requests of scripts are refused with a message in its place on the page."""

    async def main() -> None:
        async with serving(database, token=TOKEN) as server:
            script = {"hx-request": "true"}
            for path, headers, status in (
                ("/runs", {}, 401),
                ("/runs", {"host": "evil.example"}, 421),
                (f"/nowhere?token={TOKEN}", {}, 303),
            ):
                refused = await server.ask(path, script | headers)
                assert refused.status == status
                if status != 303:
                    assert refused.headers["hx-retarget"] == "#message"
                    assert refused.body.startswith('<p class="wrong text">')
            known = (await server.ask(f"/?token={TOKEN}")).session
            for path in ("/run/%3Cb%3E", "/nowhere"):
                gone = await server.ask(path, script | known)
                assert (gone.status, gone.headers["hx-retarget"]) == (404, "#message")
                assert "<b>" not in gone.body

    in_trio(main)


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/..%2fapp.py",
        "/static/%2e%2e/app.py",
        "/static//etc/passwd",
        "/static/",
        "/static/view.css/",
        "/static/view.css%00",
        "/../../etc/passwd",
        "/run/../../etc/passwd",
        "/row/0/-1/x",
        "/row/0/99999999999999999999999/x",
        "/row/7/0/x",
        "/nowhere",
    ],
)
def test_only_addresses_of_pages_are_served(database: Path, path: str) -> None:
    """Every other request is refused with a page that has all headers."""

    async def main() -> None:
        async with serving(database) as server:
            reply = await server.ask(path)
            assert reply.status == 404
            assert "root:" not in reply.body
            policy = reply.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert reply.headers["x-frame-options"] == "DENY"
            assert reply.headers["cache-control"] == "no-store"

    in_trio(main)


def test_loopback_is_known() -> None:
    """Every other address needs a token."""
    assert [*map(is_loopback, ("127.0.0.1", "127.8.9.1", "::1", "LocalHost"))] == [True] * 4
    assert [*map(is_loopback, ("0.0.0.0", "::", "192.0.2.7", "example.org", ""))] == [False] * 5  # noqa: S104
