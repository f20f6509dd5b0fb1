"""Complete calls of HTTP providers, over real sockets."""

import datetime as dt
import json
import math
import ssl
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from loopback import Answer, Respond, Seen, Server, as_json, generic, opened, redirect, serve

from trioeval.errors import Fault, ProviderError
from trioeval.providers import Request
from trioeval.providers.generic import request as parts_module
from trioeval.providers.generic.http import open_code
from trioeval.providers.generic.reply import TransformInput as TransformAnswer
from trioeval.providers.generic.reply import apply_query
from trioeval.scripting.engine import program
from trioeval.scripting.javascript import Script

pytestmark = pytest.mark.network

SECRET = "sk-very-secret-7"  # noqa: S105 - made up


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


def with_server(respond: Respond, body: Callable[[Server], Awaitable[None]]) -> None:
    async def main() -> None:
        with trio.fail_after(60):
            async with serve(respond) as server:
                await body(server)

    trio.run(main)


async def ask(entry_id: str, prompt: str = "hi", /, *, given: Any = None, **config: Any) -> Any:
    async with opened(generic(entry_id, **config)) as provider:
        return await provider(Request(prompt=prompt, vars=given or {}))


async def failing(entry_id: str, prompt: str = "hi", /, **config: Any) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(entry_id, prompt, **config)
    assert SECRET not in f"{caught.value} {caught.value.body_excerpt}"
    return caught.value


def test_a_prompt_is_sent_as_configured_and_the_path_selects_the_output() -> None:
    """A body without a method is posted; status and headers of the reply are kept."""

    def respond(_seen: Seen) -> Answer:
        data = {"choices": [{"message": {"content": "good day"}}]}
        return as_json(data, set_cookie="a=b", x_ratelimit_remaining_requests="7")

    async def body(server: Server) -> None:
        reply = await ask(
            f"{server.url}/chat",
            'say "hi"\n{{ there }}',
            headers={"X-Team": "{{team}}", "Authorization": "Bearer {{env.MY_TOKEN}}"},
            body={"messages": [{"role": "user", "content": "{{prompt}}"}], "n": "{{n}}"},
            transformResponse="json.choices[0].message.content",
            given={"team": "blue", "n": 3},
        )
        assert reply.output == "good day"
        assert reply.metadata["http"]["status"] == 200
        assert "set-cookie" not in reply.metadata["http"]["headers"]
        assert reply.hint is not None
        (seen,) = server.seen
        assert (seen.method, seen.target) == ("POST", "/chat")
        assert seen.headers["x-team"] == "blue"
        assert seen.headers["authorization"] == "Bearer tok-from-env"
        assert seen.headers["content-type"] == "application/json"
        content = 'say "hi"\n{{ there }}'
        assert json.loads(seen.body) == {"messages": [{"role": "user", "content": content}], "n": 3}

    with_server(respond, body)


def test_without_a_body_a_request_is_a_get_with_its_parameters() -> None:
    """Values are encoded; the URL's own parameters remain."""

    async def body(server: Server) -> None:
        reply = await ask(
            f"{server.url}/find?lang=en", "a&b c", queryParams={"q": "{{prompt}}", "n": 2}
        )
        assert reply.output == "found"
        assert server.seen[0].method == "GET"
        assert server.seen[0].target == "/find?lang=en&q=a%26b%20c&n=2"
        assert server.seen[0].body == b""

    with_server(lambda _seen: Answer(200, b"found", {"content-type": "text/plain"}), body)


def test_a_raw_request_is_sent_with_its_parts() -> None:
    """Headers of the connection are created anew."""

    async def body(server: Server) -> None:
        host = server.url.removeprefix("http://")
        raw = (
            f"POST /say?v=1 HTTP/1.1\r\nHost: {host}\r\nX-Say: {{{{prompt}}}}\r\n"
            'Accept-Encoding: gzip\r\nContent-Type: application/json\r\n\r\n{"q": "{{prompt}}"}'
        )
        reply = await ask("http", "hello", request=raw, transformResponse="$.a")
        assert reply.output == "b"
        (seen,) = server.seen
        assert (seen.method, seen.target) == ("POST", "/say?v=1")
        assert json.loads(seen.body) == {"q": "hello"}
        assert seen.headers["x-say"] == "hello"
        assert seen.headers["accept-encoding"] == "identity"
        assert seen.headers["host"] == host

    with_server(lambda _seen: as_json({"a": "b"}), body)


@pytest.mark.parametrize(
    ("statuses", "status", "kind"),
    [
        (None, 200, None),
        (None, 404, "not_found"),
        ("200-299, 404", 404, None),
        ("(status) => status < 500", 429, None),
        ("status === 200", 503, "server"),
        ("200", 202, "malformed_reply"),
    ],
)
def test_the_suite_sets_the_statuses_of_a_success(
    statuses: str | None, status: int, kind: str | None
) -> None:
    """All other statuses are failures."""

    async def body(server: Server) -> None:
        if kind is None:
            assert (await ask(f"{server.url}/x", validateStatus=statuses)).output == {"a": 1}
        else:
            error = await failing(f"{server.url}/x", validateStatus=statuses)
            assert (error.kind, error.status) == (kind, status)

    with_server(lambda _seen: as_json({"a": 1}, status), body)


def test_files_and_fields_go_out_as_a_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files are those of the suite; a variable cannot name others."""
    (tmp_path / "a.txt").write_bytes(b"one\r\n--two")
    parts: list[dict[str, Any]] = [
        {"kind": "field", "name": "question", "value": "{{prompt}}"},
        {
            "kind": "file",
            "name": "document",
            "filename": 'a"b.txt',
            "contentType": "text/plain",
            "source": {"type": "path", "path": "file://{{name}}.txt"},
        },
    ]

    async def body(server: Server) -> None:
        spec = generic(f"{server.url}/up", tmp_path, multipart={"parts": parts})
        async with opened(spec) as provider:
            await provider(Request(prompt="what?", vars={"name": "a"}))
            (seen,) = server.seen
            kind, _, boundary = seen.headers["content-type"].partition("; boundary=")
            assert (seen.method, kind) == ("POST", "multipart/form-data")
            assert (
                seen.body
                == (
                    f'--{boundary}\r\ncontent-disposition: form-data; name="question"\r\n\r\nwhat?\r\n'
                    f'--{boundary}\r\ncontent-disposition: form-data; name="document"; '
                    'filename="a%22b.txt"\r\ncontent-type: text/plain\r\n\r\none\r\n--two\r\n'
                    f"--{boundary}--\r\n"
                ).encode()
            )
            for name in ("../secrets", "missing"):
                with pytest.raises(ProviderError, match=r"document.*(not found|outside of)"):
                    await provider(Request(prompt="what?", vars={"name": name}))

            monkeypatch.setattr(parts_module, "LARGEST", 3)
            with pytest.raises(ProviderError, match=r'"a.txt" is larger than 3 bytes'):
                await provider(Request(prompt="what?", vars={"name": "a"}))

    with_server(lambda _seen: as_json("ok"), body)


def test_credentials_stay_with_their_origin() -> None:
    """A redirect to another origin gets no key, cookie or auth header; other headers are sent."""

    async def main() -> None:
        with trio.fail_after(60):
            async with serve(lambda _seen: as_json("there")) as there:
                answer = redirect(307, f"{there.url}/b")
                async with serve(lambda _seen: answer) as here:
                    reply = await ask(
                        f"{here.url}/a",
                        body={"q": "{{prompt}}"},
                        followRedirects="any",
                        headers={"cookie": "c=1", "x-team": "blue", "x-session-token": SECRET},
                        auth={"type": "api_key", "keyName": "X-Who", "value": SECRET},
                    )
                    assert reply.output == "there"
                    assert here.seen[0].headers["x-who"] == SECRET
            (seen,) = there.seen
            assert (seen.method, seen.body) == ("POST", b'{"q": "hi"}')
            assert seen.headers["x-team"] == "blue"
            assert not {"x-who", "cookie", "x-session-token"} & seen.headers.keys()
            assert SECRET not in str(seen)

    trio.run(main)


def test_credentials_go_along_on_the_same_origin() -> None:
    """A redirected POST becomes a GET."""

    def respond(seen: Seen) -> Answer:
        return redirect(303, "/b?x=1 2") if seen.target == "/a" else as_json("done")

    async def body(server: Server) -> None:
        reply = await ask(
            f"{server.url}/a", body={"q": "x"}, auth={"type": "bearer", "token": SECRET}
        )
        assert reply.output == "done"
        second = server.seen[1]
        assert (second.method, second.target, second.body) == ("GET", "/b?x=1%202", b"")
        assert second.headers["authorization"] == f"Bearer {SECRET}"
        assert "content-type" not in second.headers

    with_server(respond, body)


def test_redirect_loops_are_a_bad_request() -> None:
    """The loop is detected at the first repeated step."""

    def respond(seen: Seen) -> Answer:
        return redirect(302, "/b" if seen.target == "/a" else "/a")

    async def body(server: Server) -> None:
        error = await failing(f"{server.url}/a")
        assert str(error) == (
            f"bad_request: HTTP 302 from GET {server.url}/b: redirects lead back to {server.url}/a, a loop; "
            "check the URL"
        )
        assert len(server.seen) == 2

    with_server(respond, body)


def test_endless_redirects_are_a_bad_request() -> None:
    """At most ten redirects are followed."""

    def respond(seen: Seen) -> Answer:
        return redirect(302, f"/{int(seen.target[1:]) + 1}?token={SECRET}".partition("?")[0])

    async def body(server: Server) -> None:
        error = await failing(f"{server.url}/0")
        assert str(error) == (
            f"bad_request: HTTP 302 from GET {server.url}/10: more than 10 redirects, the last to "
            f"{server.url}/11; check the URL"
        )
        assert len(server.seen) == 11

    with_server(respond, body)


OAUTH = {"type": "oauth", "clientId": "me", "clientSecret": SECRET, "scopes": ["a", "b"]}


def test_calls_share_one_token() -> None:
    """The first call fetches it, while the others wait."""

    def respond(seen: Seen) -> Answer:
        if seen.target == "/token":
            return as_json({"access_token": "tok-1234", "expires_in": 3600})
        return as_json("token 7: yes")

    async def body(server: Server) -> None:
        auth = {**OAUTH, "tokenUrl": f"{server.url}/token"}
        outputs: list[Any] = []
        async with opened(generic(f"{server.url}/x", auth=auth)) as provider:

            async def call() -> None:
                outputs.append((await provider(Request(prompt="a"))).output)

            async with trio.open_nursery() as nursery:
                for _ in range(8):
                    nursery.start_soon(call)
        assert outputs == ["token 7: yes"] * 8
        assert {seen.headers["authorization"] for seen in server.seen[1:]} == {"Bearer tok-1234"}
        (token_request,) = [seen for seen in server.seen if seen.target == "/token"]
        assert token_request.body == b"grant_type=client_credentials&scope=a+b"
        assert token_request.headers["authorization"].startswith("Basic ")

    with_server(respond, body)


def test_a_refused_client_is_reported_without_its_secret() -> None:
    """All waiting calls fail with the same refusal."""

    def respond(_seen: Seen) -> Answer:
        return as_json({"error": {"message": f"no {SECRET}"}}, 401)

    async def body(server: Server) -> None:
        auth = {**OAUTH, "tokenUrl": f"{server.url}/token"}
        errors: list[ProviderError] = []
        async with opened(generic(f"{server.url}/x", auth=auth)) as provider:

            async def call() -> None:
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="a"))
                errors.append(caught.value)

            async with trio.open_nursery() as nursery:
                for _ in range(4):
                    nursery.start_soon(call)
        assert {str(error) for error in errors} == {
            (
                f"auth: no OAuth token: HTTP 401 from POST {server.url}/token: "
                "check clientId and clientSecret; no [hidden]"
            )
        }
        assert len(server.seen) == 1

    with_server(respond, body)


def test_an_expired_token_is_replaced_once() -> None:
    """A token that was never accepted is not replaced."""
    good: list[str] = ["Bearer t1"]
    given = iter(["t1", "t2", "t3"])

    def respond(seen: Seen) -> Answer:
        if seen.target == "/token":
            return as_json({"access_token": next(given)})
        is_good = seen.headers["authorization"] in good
        return as_json("ok") if is_good else as_json({}, 401)

    async def body(server: Server) -> None:
        auth = {**OAUTH, "tokenUrl": f"{server.url}/token"}
        async with opened(generic(f"{server.url}/x", auth=auth)) as provider:

            async def refused() -> ProviderError:
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="a"))
                return caught.value

            assert (await provider(Request(prompt="a"))).output == "ok"
            good[:] = ["Bearer t3"]
            error = await refused()
            assert (error.kind, error.fault, error.retries) == ("auth", Fault.TRANSIENT, 1)
            assert (await refused()).fault is Fault.FATAL
            assert (await provider(Request(prompt="a"))).output == "ok"

    with_server(respond, body)


def test_a_private_authority_is_trusted_if_configured(
    tmp_path: Path,
) -> None:
    """With another authority, or none, its certificate is invalid; a client can present its own."""
    ours, theirs = trustme.CA(), trustme.CA()
    ours.cert_pem.write_to_path(tmp_path / "ours.pem")
    theirs.cert_pem.write_to_path(tmp_path / "theirs.pem")
    ours.issue_cert("me.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "me.pem")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    ours.issue_cert("localhost").configure_cert(context)
    ours.configure_trust(context)
    context.verify_mode = ssl.CERT_REQUIRED

    async def main() -> None:
        with trio.fail_after(60):
            async with serve(lambda _seen: as_json("hello"), context) as server:
                tls = {"ca": "ours.pem", "cert": "me.pem", "key": "me.pem"}
                async with opened(generic(f"{server.url}/x", tmp_path, tls=tls)) as provider:
                    assert (await provider(Request(prompt="a"))).output == "hello"
                wrong = generic(f"{server.url}/x", tmp_path, tls={**tls, "ca": "theirs.pem"})
                async with opened(wrong) as provider:
                    with pytest.raises(ProviderError) as caught:
                        await provider(Request(prompt="a"))
                assert caught.value.kind == "tls"
                assert caught.value.message.startswith("invalid certificate of ")

    trio.run(main)


@pytest.mark.parametrize(
    ("answer", "transform", "message"),
    [
        (
            Answer(200, b"<html>Sorry</html>", {"content-type": "text/html"}),
            None,
            (
                "malformed_reply: {source}: the reply is an HTML page; check the URL; "
                "if that is intended, set transformResponse: text"
            ),
        ),
        (
            Answer(200, b"<html>Sorry</html>", {"content-type": "text/html"}),
            "json.answer",
            (
                "malformed_reply: {source}: the reply is not JSON, which json.answer needs; "
                "check the URL and transformResponse"
            ),
        ),
        (
            Answer(200, b"{", {"content-type": "application/json"}),
            None,
            (
                "malformed_reply: {source}: the reply is not JSON, despite its content-type; check the URL; "
                "if that is intended, set transformResponse: text"
            ),
        ),
        (
            as_json({"answers": []}),
            "json.answers[0]",
            (
                "malformed_reply: {source}: json.answers[0] finds nothing in the reply; "
                "check the URL and transformResponse"
            ),
        ),
        (
            Answer(204),
            None,
            "empty_reply: {source}: the reply has no body; check the URL and the request",
        ),
        (
            as_json(None),
            None,
            "empty_reply: {source}: the reply is null; check the URL and the request",
        ),
        (
            as_json({"error": {"code": "rate_limit_exceeded", "message": "slow"}}),
            None,
            "rate_limited: {source}: slow",
        ),
        (as_json({"e": "bad"}), "jmespath:{error: e}", "unexpected: the reply: bad"),
    ],
)
def test_an_invalid_reply_is_a_failure_that_shows_the_body(
    answer: Answer, transform: str | None, message: str
) -> None:
    """An HTML page, incomplete JSON, and a path that finds nothing are not an output."""

    async def body(server: Server) -> None:
        error = await failing(f"{server.url}/x", transformResponse=transform)
        source = f"HTTP {answer.status} from {server.seen[0].method} {server.url}/x"
        assert str(error) == message.format(source=source)
        if error.kind == "malformed_reply":
            assert error.body_excerpt == answer.body.decode()

    with_server(lambda _seen: answer, body)


def test_a_failure_names_the_url_without_its_query_and_secrets() -> None:
    """A query may contain a key under any name, and a path one that is also in the headers."""

    async def body(server: Server) -> None:
        headers = {"x-api-key": "hunter22hunter22"}
        error = await failing(f"{server.url}/hunter22hunter22/x?k=topsecret", headers=headers)
        place = f"{server.seen[0].method} {server.url}/[hidden]/x"
        assert str(error) == f"not_found: HTTP 404 from {place}: check the URL"

    with_server(lambda _seen: Answer(404), body)


def test_an_html_page_is_an_output_if_configured() -> None:
    """JSON is JSON, whatever its content type."""

    def respond(seen: Seen) -> Answer:
        return Answer(200, b"[1]", {"content-type": "text/html; charset=latin-1"})

    async def body(server: Server) -> None:
        assert (await ask(f"{server.url}/x", transformResponse="text")).output == "[1]"
        assert (await ask(f"{server.url}/x")).output == [1]

    with_server(respond, body)


def test_a_function_of_python_reads_the_reply(tmp_path: Path) -> None:
    """It runs in a worker, and may return more than the output."""
    (tmp_path / "read.py").write_text(
        "def transform(json, text, context):\n"
        "    status = context['response']['status']\n"
        "    return {'output': [json['a'], status], 'tokenUsage': {'total': 3}, 'cost': 0.5}\n"
    )

    async def body(server: Server) -> None:
        spec = generic(f"{server.url}/x", tmp_path, transformResponse="file://read.py")
        async with opened(spec) as provider:
            reply = await provider(Request(prompt="a"))
        assert (reply.output, reply.usage.total, reply.cost) == (["b", 200], 3, 0.5)
        assert reply.raw == {"a": "b"}

    with_server(lambda _seen: as_json({"a": "b"}), body)


@pytest.mark.slow
def test_code_without_a_result_is_a_failure(tmp_path: Path) -> None:
    """A failing transform is a malformed reply, a failing transformRequest a bad request."""
    (tmp_path / "read.py").write_text("def nothing(json, text, context):\n    return None\n")

    async def body(server: Server) -> None:
        requests: list[str] = []
        for key, code in [
            ("transformResponse", "file://read.py:nothing"),
            ("transformRequest", "() => null"),
            ("transformRequest", "(prompt) => prompt.no.no"),
        ]:
            async with opened(generic(f"{server.url}/x", tmp_path, **{key: code})) as provider:
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="a"))
                requests.append(str(caught.value))
        assert requests == [
            (
                f"malformed_reply: HTTP 200 from {server.seen[0].method} {server.url}/x: the function of "
                "transformResponse returned nothing; check the URL and transformResponse"
            ),
            'bad_request: transformRequest returns nothing: "() => null"',
            (
                "bad_request: transformRequest fails: "
                "TypeError: cannot read property 'no' of undefined"
            ),
        ]
        assert len(server.seen) == 1

    with_server(lambda _seen: as_json("ok"), body)


@pytest.mark.slow
def test_an_endless_script_is_ended_and_delays_no_other_call() -> None:
    """JavaScript does not delay other calls, and its time is limited."""

    async def body(server: Server) -> None:
        order: list[str] = []

        async def endless() -> None:
            error = await failing(f"{server.url}/x", transformResponse="() => { while (true) ; }")
            assert (
                " fails: it took longer than 2 seconds; check the URL and transformResponse"
                in error.message
            )
            order.append("endless")

        async def quick() -> None:
            for _ in range(3):
                await ask(f"{server.url}/x", transformResponse="(json) => json.a")
            order.append("quick")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(endless)
            nursery.start_soon(quick)
        assert order == ["quick", "endless"]

    with_server(lambda _seen: as_json({"a": "b"}), body)


def test_a_script_creates_the_prompt_and_a_template_wraps_it() -> None:
    """An object is merged over the body."""

    async def body(server: Server) -> None:
        config: dict[str, Any] = {"body": {"m": 1, "q": "{{prompt}}"}}
        script = "(prompt, vars) => ({ q: prompt + vars.x, n: 2 })"
        for rewrite in (script, "<{{prompt}}>"):
            await ask(f"{server.url}/x", given={"x": "!"}, transformRequest=rewrite, **config)
        bodies = [json.loads(seen.body) for seen in server.seen]
        assert bodies == [{"m": 1, "q": "hi!", "n": 2}, {"m": 1, "q": "<hi>"}]

    with_server(lambda _seen: as_json("ok"), body)


def test_a_silent_server_times_out() -> None:
    """The time limit is for token, redirects and reply together."""

    async def body(server: Server) -> None:
        error = await failing(f"{server.url}/x", timeoutMs=60)
        assert str(error) == (
            f"attempt_timeout: no complete reply within 0.06 seconds from GET {server.url}/x: "
            "raise timeoutMs, or check that the server is not overloaded"
        )

    with_server(lambda _seen: None, body)


def test_a_cancelled_call_leaves_a_provider_that_serves_the_next() -> None:
    """This also holds for the call that fetched the token for others."""
    requests = 0
    waits: list[trio.Event] = []

    def respond(seen: Seen) -> Answer | None:
        nonlocal requests
        if seen.target != "/token":
            return as_json("ok")
        requests += 1
        waits[0].set()
        return None if requests == 1 else as_json({"access_token": "tok-1234"})

    async def body(server: Server) -> None:
        waits.append(trio.Event())
        auth = {**OAUTH, "tokenUrl": f"{server.url}/token"}
        async with opened(generic(f"{server.url}/x", auth=auth)) as provider:
            outputs: list[Any] = []

            async def call(scope: trio.CancelScope) -> None:
                with scope:
                    outputs.append((await provider(Request(prompt="a"))).output)

            first, second = trio.CancelScope(), trio.CancelScope(deadline=math.inf)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(call, first)
                await waits[0].wait()
                nursery.start_soon(call, second)
                await trio.testing.wait_all_tasks_blocked(0.001)
                first.cancel()
            assert outputs == ["ok"]
            assert requests == 2

    with_server(respond, body)


def test_no_secret_appears_in_the_result() -> None:
    """Secrets of headers, parameters, URLs and auth are hidden, wherever they come from."""

    def respond(seen: Seen) -> Answer:
        return as_json({"echo": [seen.target, *seen.headers.values()]})

    async def body(server: Server) -> None:
        in_query = {"type": "api_key", "keyName": "key", "value": f"{SECRET}&/"}
        configs: list[dict[str, Any]] = [
            {"auth": {"type": "basic", "username": "me", "password": SECRET}},
            {"auth": {**in_query, "placement": "query"}},
            {"headers": {"X-Api-Key": SECRET}},
            {"queryParams": {"access_token": SECRET}},
        ]
        for number, config in enumerate(configs):
            spec = generic(f"{server.url}/x?sig={SECRET}{number}", **config)
            assert SECRET not in repr(spec.settings) + spec.lane_key
            async with opened(spec) as provider:
                reply = await provider(Request(prompt="a"))
            text = repr(reply) + json.dumps([reply.output, reply.raw, dict(reply.metadata)])
            assert SECRET not in text
            assert "[hidden]" in text
            assert "bWU6c2stdmVye" not in text

    with_server(respond, body)


def test_values_in_a_secret_header_are_hidden() -> None:
    """A fetched token is hidden as well."""

    def respond(seen: Seen) -> Answer:
        if seen.target == "/token":
            return as_json({"access_token": f"{SECRET}-2"})
        return as_json({"output": dict(seen.headers)}, x_echo=str(dict(seen.headers)))

    async def body(server: Server) -> None:
        auth = {**OAUTH, "tokenUrl": f"{server.url}/token", "clientSecret": "other-secret"}
        spec = generic(f"{server.url}/x", auth=auth, headers={"x-api-key": "{{key}}"})
        async with opened(spec) as provider:
            reply = await provider(Request(prompt="a", vars={"key": f"{SECRET}-1"}))
        text = repr(reply) + json.dumps([reply.output, reply.raw, dict(reply.metadata)])
        assert SECRET not in text
        assert reply.output["x-api-key"] == "[hidden]"
        assert server.seen[1].headers["x-api-key"] == f"{SECRET}-1"
        assert server.seen[1].headers["authorization"] == f"Bearer {SECRET}-2"

    with_server(respond, body)


def test_a_call_may_have_other_options() -> None:
    """Request and reading may differ for a call, but not the account."""

    async def body(server: Server) -> None:
        spec = generic(f"{server.url}/x", body={"q": "{{prompt}}"}, transformResponse="json.a")
        async with opened(spec) as provider:
            options = {"body": {"other": "{{prompt}}"}, "transform_response": "json.b"}
            reply = await provider(Request(prompt="p", options=options))
            assert reply.output == 2
            assert json.loads(server.seen[0].body) == {"other": "p"}
            refused: list[tuple[dict[str, Any], str]] = [
                ({"url": "http://a.example"}, "the id already has a URL"),
                ({"timeoutMs": 1}, "timeoutMs cannot differ for one call"),
                ({"bodi": 1}, 'did you mean "body"'),
            ]
            for wrong, message in refused:
                with pytest.raises(ProviderError, match=message) as caught:
                    await provider(Request(prompt="p", options=wrong))
                assert caught.value.kind == "bad_request"

    with_server(lambda _seen: as_json({"a": 1, "b": 2}), body)


def test_a_provider_without_workers_reports_a_bug() -> None:
    """The error reports a fault of trioeval, not of the suite."""
    answer = TransformAnswer(json=1, text="1", context={})

    async def main() -> None:
        async with open_code(Path.cwd(), {}, None) as code:
            with pytest.raises(RuntimeError, match="please report this"):
                await code.call(answer, 1.0)

    trio.run(main)


def test_values_of_the_environment_stay_with_their_origin() -> None:
    """The names of header and variable do not matter."""

    async def main() -> None:
        with trio.fail_after(60):
            async with serve(lambda _seen: as_json("there")) as there:
                answer = redirect(307, f"{there.url}/b")
                async with serve(lambda _seen: answer) as here:
                    headers = {"x-acct": "{{env.MY_TOKEN}}", "x-lang": "en", "x-say": "{{v}}"}
                    spec = generic(f"{here.url}/a", headers=headers, followRedirects="any")
                    async with opened(spec) as provider:
                        await provider(Request(prompt="p", vars={"v": "tok-from-env"}))
                    assert here.seen[0].headers["x-acct"] == "tok-from-env"
                    body = {"a": "{{env.MY_TOKEN}}"}
                    error = await failing(f"{here.url}/a", body=body, followRedirects="any")
                    assert "and the body contains a secret" in error.message
            (seen,) = there.seen
            assert seen.headers["x-lang"] == "en"
            assert not {"x-acct", "x-say"} & seen.headers.keys()

    trio.run(main)


async def longest_stall(work: Callable[[], Awaitable[None]]) -> float:
    """Return the longest time in which no other task ran, in seconds of this process's processor time.

    Processor time of other programs does not count.
    """
    stall = 0.0
    async with trio.open_nursery() as nursery:

        async def beat() -> None:
            nonlocal stall
            while True:
                before = time.process_time()
                await trio.sleep(0.01)
                stall = max(stall, time.process_time() - before)

        nursery.start_soon(beat)
        await work()
        nursery.cancel_scope.cancel()
    return stall


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transform", "status"),
    [
        (None, 200),
        ("json.rows[7].text", 200),
        ("$.rows[*].text", 200),
        ("jmespath:rows[?n > `5`].text", 200),
        ("(json) => json.rows.length", 200),
        (None, 500),
    ],
)
def test_a_large_reply_does_not_block_other_tasks(
    transform: str | None, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five megabytes are read without delaying others, even if secrets are searched."""
    patient = partial(apply_query, limit=60.0)  # takes some seconds
    monkeypatch.setattr("trioeval.providers.generic.http.apply_query", patient)
    rows = [{"n": n, "text": f"row {n} " + "x" * 60, "tags": ["a", "b"]} for n in range(48_000)]
    large = as_json({"rows": rows}, status)
    assert len(large.body) > 5_000_000

    async def body(server: Server) -> None:
        spec = generic(
            f"{server.url}/x",
            headers={"x-api-key": "{{key}}"},
            transformResponse=transform,
            maxResponseBytes=16 * 1024 * 1024,
        )
        async with opened(spec) as provider:

            async def call() -> None:
                with pytest.raises(ProviderError) if status == 500 else nullcontext():
                    await provider(Request(prompt="p", vars={"key": f"{SECRET}-1"}))

            await call()  # workers start, libraries are imported
            # The minimum of three: other programs delay this one as well.
            assert min([await longest_stall(call) for _ in range(3)]) < 0.8

    with_server(lambda _seen: large, body)


@pytest.mark.slow
def test_the_time_of_a_script_excludes_other_scripts() -> None:
    """Two concurrent scripts do not count each other's time, nor that of this process."""
    script = (
        "() => { let n = 0; const end = %d; for (let i = 0; i < end; i++) n += i %% 7; return n }"
    )

    async def body(server: Server) -> None:
        own = await measured(script % 1_000_000)
        code = script % int(1_000_000 * 1.1 / own)  # more than half of the limit
        async with opened(generic(f"{server.url}/x", transformResponse=code)) as provider:
            outputs: list[Any] = []

            async def call() -> None:
                outputs.append((await provider(Request(prompt="p"))).output)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(call)
                nursery.start_soon(call)
            assert len(outputs) == 2

    with_server(lambda _seen: as_json("ok"), body)


async def measured(code: str) -> float:
    """Return the processor seconds of a script."""
    before = time.process_time()
    result = await trio.to_thread.run_sync(program.run, Script(code, ()).source, [])
    assert "error" not in result
    return time.process_time() - before


def test_variables_of_a_script_are_data() -> None:
    """A date becomes its text."""

    async def body(server: Server) -> None:
        rewrite = "(prompt, vars) => prompt + vars.day"
        spec = generic(f"{server.url}/x", body="{{prompt}}", transformRequest=rewrite)
        async with opened(spec) as provider:
            await provider(Request(prompt="on ", vars={"day": dt.date(2026, 11, 1)}))
        assert server.seen[0].body == b"on 2026-11-01"

    with_server(lambda _seen: as_json("ok"), body)
