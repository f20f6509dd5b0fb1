"""Calls through SDKs, over real sockets: requests, replies, and the number of requests."""

import json
from collections.abc import Iterator
from typing import Any

import attrs
import openai
import pytest
import trio
from sdk_runs import CASES, KEY, Answer, Case, Echo, HangUp, Hold, Server, opened, with_server

import trioeval
from trioeval.errors import ProviderError
from trioeval.kernel import Calls, Done, Job, Lanes, LaneSpec, Metered, Plan, collect
from trioeval.providers.base import Provider, Reply, Request
from trioeval.providers.http.adapter import HttpProvider
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpRequest
from trioeval.providers.sdk.entries import SdkSettings
from trioeval.providers.sdk.google import wrap as wrap_google
from trioeval.providers.sdk.transport import exchange_through, open_client

pytestmark = [pytest.mark.network, pytest.mark.slow]  # importing an SDK takes a second

HELLO = Request(prompt="Say hello")
THROUGH = [case for case in CASES if case.plain is not None]

every_sdk = pytest.mark.parametrize("case", CASES, ids=lambda case: case.prefix)
every_wrapped_sdk = pytest.mark.parametrize("case", THROUGH, ids=lambda case: case.prefix)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


async def ask(provider: Provider, request: Request = HELLO) -> Reply:
    reply = await provider(request)
    assert isinstance(reply, Reply)
    return reply


async def failure(provider: Provider) -> ProviderError:
    """Return the error of a call, after asserting that it and its causes do not contain the key."""
    with pytest.raises(ProviderError) as caught:
        await provider(HELLO)
    for error in chain(caught.value):
        assert KEY not in f"{error} {error!r}"
    return caught.value


def chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


@every_sdk
def test_a_call_through_an_sdk_gives_a_reply(case: Case) -> None:
    """Output, usage and finish reason are those of every provider."""

    async def body(server: Server) -> None:
        async with opened(case.read(server.url)) as provider:
            reply = await ask(provider)
        answer = case.vendor.answer
        assert (reply.output, reply.usage, reply.finish_reason) == ("Four", answer.usage, "stop")
        assert reply.metadata["http"]["status"] == 200

    with_server([Answer(body=case.good)], body)


@every_wrapped_sdk
def test_the_request_is_the_same_with_and_without_the_sdk(case: Case) -> None:
    """URL and body are equal, and so are all headers of the plain request except the key's."""
    assert case.plain is not None
    own = {"host", "user-agent", "accept", "content-length", "authorization", "x-api-key"}

    async def body(server: Server) -> None:
        config = {"headers": {"X-Team": "blue"}, "temperature": 0.5}
        chat = Request(
            prompt=json.dumps(
                [{"role": "system", "content": "Be brief"}, {"role": "user", "content": "Hi"}]
            )
        )
        async with opened(case.read_plain(server.url, **config)) as provider:
            without = await ask(provider, chat)
        async with opened(case.read(server.url, **config)) as provider:
            assert undated(await ask(provider, chat)) == undated(without)
        plain, through = server.received
        assert (through.method, through.target, through.body) == (
            plain.method,
            plain.target,
            plain.body,
        )
        assert through.headers["x-team"] == "blue"
        for name, value in plain.headers.items():
            assert name in own or through.headers[name] == value

    with_server([Answer(body=case.good)], body)


def undated(reply: Reply) -> Reply:
    """Return a reply without the time at which the server sent it."""
    http = {**reply.metadata["http"], "headers": {**reply.metadata["http"]["headers"], "date": ""}}
    return attrs.evolve(reply, metadata={**reply.metadata, "http": http})


@every_wrapped_sdk
def test_a_call_through_an_sdk_uses_the_lane_of_the_plain_entry(case: Case) -> None:
    """The service counts both together; neither name contains the key."""
    url = "http://127.0.0.1:1"
    plain, through = case.read_plain(url), case.read(url)
    assert not isinstance(plain, list)
    assert not isinstance(through, list)
    assert through.lane_key == plain.lane_key
    assert KEY not in through.lane_key
    assert through.secrets == plain.secrets


@every_sdk
def test_one_call_is_one_request_in_every_case(case: Case) -> None:
    """An SDK's retry would send a second request, and hide the failure from the lane."""
    answers: list[Answer | Echo | HangUp | Hold] = [
        Answer(500, {"message": "oops"}),
        Answer(503, {"message": "oops"}),
        case.overloaded,
        HangUp(),
        Answer(302, {}, {"location": "/elsewhere"}),
        Answer(408, {}),
        Answer(409, {}),
    ]

    async def body(server: Server) -> None:
        async with opened(case.read(server.url)) as provider:
            for index in range(len(answers)):
                await failure(provider)
                assert len(server.received) == index + 1

    with_server(answers, body)


@every_sdk
def test_failures_are_classified_by_the_common_table(case: Case) -> None:
    """Status, headers and body decide, not the SDK's own exceptions."""
    kinds = ["server", "rate_limited", "connection", "auth"]
    answers: list[Answer | Echo | HangUp | Hold] = [
        Answer(500, {}),
        case.overloaded,
        HangUp(),
        Answer(401, {"message": "who?"}),
    ]

    async def body(server: Server) -> None:
        async with opened(case.read(server.url)) as provider:
            errors = [await failure(provider) for _ in kinds]
        assert [error.kind for error in errors] == kinds
        assert [error.status for error in errors] == [500, 429, None, 401]
        assert errors[1].retry_after == 7
        assert "slow down" in str(errors[1])

    with_server(answers, body)


@every_sdk
def test_only_the_lane_retries(case: Case) -> None:
    """Two retries are three requests, and not one more."""

    async def body(server: Server) -> None:
        spec = LaneSpec("lane", 1, retries=2, retry_delay=0.0)
        async with opened(case.read(server.url)) as provider:

            async def send() -> Metered[object]:
                reply = await ask(provider)
                return Metered(reply.output, tokens=reply.usage.total, hint=reply.hint)

            async def perform(_: Job[None], calls: Calls[None]) -> object:
                return await calls("lane", send)

            plan = Plan.of([Job(0, "lane", None)])
            (outcome,) = await collect(plan, perform, lanes=Lanes([spec]))
        assert isinstance(outcome, Done)
        assert outcome.value == "Four"
        assert len(server.received) == 3

    oops = Answer(500, {"message": "oops"})
    with_server([oops, oops, Answer(body=case.good)], body)


@every_sdk
def test_a_lane_without_retries_sends_one_request(case: Case) -> None:
    """No lower layer retries instead."""

    async def body(server: Server) -> None:
        spec = LaneSpec("lane", 1, max_retries=0)
        async with opened(case.read(server.url)) as provider:

            async def perform(_: Job[None], calls: Calls[None]) -> Reply:
                return await calls("lane", ask, provider)

            await collect(Plan.of([Job(0, "lane", None)]), perform, lanes=Lanes([spec]))
        assert len(server.received) == 1

    with_server([case.overloaded], body)


@every_sdk
def test_a_hundred_cancelled_calls_leave_the_sdk_usable(case: Case) -> None:
    """Neither connections nor threads are used up."""
    hold = Hold()

    async def body(server: Server) -> None:
        async with opened(case.read(server.url)) as provider:
            for wave in range(2):
                async with trio.open_nursery() as nursery:
                    for _ in range(50):
                        nursery.start_soon(provider, HELLO)
                    while len(server.received) < 50 * (wave + 1):
                        await server.request_arrived.wait()
                    nursery.cancel_scope.cancel()
                hold.until.set()
                hold.until = trio.Event()
            server.answers = [Answer(body=case.good)]
            assert [(await ask(provider)).output for _ in range(3)] == ["Four"] * 3

    with_server([hold], body)


@every_sdk
def test_cancelling_at_any_moment_leaves_the_sdk_usable(case: Case) -> None:
    """Calls are cancelled before the request, while it is sent, and while the reply is read."""

    async def body(server: Server) -> None:
        async with opened(case.read(server.url)) as provider:
            await ask(provider)
            for step in range(100):
                with trio.move_on_after(step * 0.00004):
                    await provider(HELLO)
            assert [(await ask(provider)).output for _ in range(20)] == ["Four"] * 20

    with_server([Answer(body=case.good)], body)


@every_sdk
def test_a_call_that_exceeds_our_time_limit_is_ended(case: Case) -> None:
    """The config sets the limit; that of the SDK does not apply before it."""

    async def body(server: Server) -> None:
        async with opened(case.read(server.url, timeoutMs=500)) as provider:
            error = await failure(provider)
        title = "attempt_timeout: no complete reply within 0.5 seconds from"
        assert str(error).startswith(f"{title} POST {server.url}/")
        assert str(error).endswith(": raise timeoutMs, or check that the server is not overloaded")
        assert len(server.received) <= 1  # none if this process was stopped until then

    with_server([Hold()], body)


@every_wrapped_sdk
def test_limits_in_replies_reach_the_lane(case: Case) -> None:
    """The SDK does not lose headers."""
    headers, hint = case.vendor.limits

    async def body(server: Server) -> None:
        async with opened(case.read(server.url)) as provider:
            reply = await ask(provider)
        assert reply.hint == hint

    with_server([Answer(body=case.good, headers=dict(headers))], body)


@pytest.mark.parametrize("prefix", ["openai-sdk", "anthropic-sdk"])
def test_the_first_token_is_timed_through_an_sdk(prefix: str) -> None:
    """The parts of a stream are observed as they arrive, although the SDK gets the whole."""
    (case,) = [case for case in CASES if case.prefix == prefix]
    stream = case.vendor.stream
    assert stream is not None
    events = stream.write(stream.cases[0].events)

    async def body(server: Server) -> None:
        async with opened(case.read(server.url, metrics="ttft")) as provider:
            reply = await ask(provider)
        assert reply.output == "Four"
        assert reply.first_token is not None
        assert server.received[0].body["stream"] is True

    headers = {"content-type": "text/event-stream"}
    with_server([Answer(body=events, headers=dict(headers))], body)


@every_sdk
def test_an_sdk_is_configured_not_to_retry(case: Case) -> None:
    """It would wait between its attempts, and hold a slot."""

    async def body(server: Server) -> None:
        async with opened(case.read(server.url)) as provider:
            assert isinstance(provider, HttpProvider)
            client: Any = provider._client
            match case.prefix:
                case "google-sdk":
                    retries = client._sdk._api_client._http_options.retry_options.attempts - 1
                case "bedrock":
                    retries = client._client.meta.config.retries["total_max_attempts"] - 1
                case _:
                    retries = client._sdk.max_retries
        assert retries == 0

    with_server([Answer()], body)


def test_a_retry_of_an_sdk_sends_no_second_request() -> None:
    """The lane sees the first reply; no further request is sent."""

    async def body(server: Server) -> None:
        async with open_http() as client:
            sdk = openai.AsyncOpenAI(
                api_key=KEY,
                base_url=f"{server.url}/v1",
                max_retries=3,
                http_client=open_client(client),
            )

            async def call() -> None:
                await sdk.models.list()

            reply = await exchange_through("openai", call)
        assert reply.status == 500
        assert len(server.received) == 1

    with_server([Answer(500, {}, {"retry-after-ms": "1"})], body)


def test_cookies_of_a_reply_do_not_affect_the_next_call() -> None:
    """An SDK's client would keep them."""
    case = CASES[0]

    async def body(server: Server) -> None:
        async with opened(case.read(server.url)) as provider:
            await ask(provider)
            await ask(provider)
        assert "cookie" not in server.received[1].headers

    with_server([Answer(body=case.good, headers={"set-cookie": "a=b"})], body)


def test_a_failure_before_the_request_is_reported() -> None:
    """The SDK's exception is the only information."""

    async def nothing() -> None:
        await trio.lowlevel.checkpoint()
        raise ValueError("no such option")

    async def forget() -> None:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        with pytest.raises(ProviderError) as caught:
            await exchange_through("openai", nothing)
        assert str(caught.value) == (
            "bad_request: the openai SDK did not send the request (ValueError: no such option)"
        )
        with pytest.raises(ProviderError, match="bad_request: the openai SDK sent no request"):
            await exchange_through("openai", forget)

    trio.run(main)


def test_the_environment_of_an_sdk_does_not_change_the_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Lane and request use the same account: variables that only the SDK knows are ignored."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-other")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-other")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:1")
    case = CASES[0]

    async def body(server: Server) -> None:
        async with opened(case.read(server.url, organization="org-1")) as provider:
            await ask(provider)
        headers = server.received[0].headers
        assert headers["openai-organization"] == "org-1"
        assert "openai-project" not in headers
        assert headers["authorization"] == f"Bearer {KEY}"

    with_server([Answer(body=case.good)], body)


def test_an_authorization_of_the_config_is_sent_as_it_is() -> None:
    """Some gateways require another scheme than the SDK's."""
    case = CASES[0]

    async def body(server: Server) -> None:
        settings = case.read(server.url, apiKey=None, headers={"authorization": "Basic abc"})
        async with opened(settings) as provider:
            await ask(provider)
        assert server.received[0].headers["authorization"] == "Basic abc"

    with_server([Answer(body=case.good)], body)


def test_a_local_service_without_a_key_is_called() -> None:
    """SDKs require a key; such a service ignores it."""
    case = CASES[0]

    async def body(server: Server) -> None:
        async with opened(case.read(server.url, apiKey=None)) as provider:
            assert (await ask(provider)).output == "Four"

    with_server([Answer(body=case.good)], body)


def test_a_request_beyond_one_call_is_refused_without_being_sent() -> None:
    """This also holds if the SDK treats the refusal as a lost connection."""

    async def body(server: Server) -> None:
        async with open_http() as client:
            shared = open_client(client)

            async def twice() -> None:
                await shared.get(server.url)
                with pytest.raises(ProviderError, match="a second request within one call"):
                    await shared.get(server.url)

            reply = await exchange_through("x", twice)
        assert (reply.status, len(server.received)) == (200, 1)

    with_server([Answer()], body)


def test_google_supports_only_generate_content() -> None:
    """The SDK would send any other request to another URL."""
    (case,) = [case for case in CASES if case.prefix == "google-sdk"]

    async def body(server: Server) -> None:
        settings = case.read(server.url)
        assert isinstance(settings, SdkSettings)
        async with open_http() as client:
            sdk = wrap_google(settings.adapter.endpoint, client)
            with pytest.raises(ProviderError, match="supports only generateContent"):
                await sdk.send(HttpRequest(f"{server.url}/v1beta/models/m:embedContent", {}, b"{}"))
        assert not server.received

    with_server([Answer()], body)


@every_sdk
def test_a_suite_selects_an_sdk_by_its_id(case: Case) -> None:
    """The id and config of the file lead to the output of a row."""

    async def body(server: Server) -> None:
        suite = trioeval.parse_suite(
            {
                "providers": [
                    {"id": f"{case.prefix}:{case.model}", "config": case.config(server.url)}
                ],
                "prompts": ["Say hello"],
                "tests": [{"assert": [{"type": "equals", "value": "Four"}]}],
            }
        )
        (row,) = await trioeval.collect(suite)
        assert (row.output, row.error) == ("Four", None)
        assert len(server.received) == 1

    with_server([Answer(body=case.good)], body)
