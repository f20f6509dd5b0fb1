"""Bedrock through boto3: threads, credentials, bytes."""

import json
from pathlib import Path

import attrs
import pytest
import trio
from botocore import exceptions  # type: ignore[import-untyped]
from sdk_runs import CASES, KEY, Answer, Echo, Hold, Server, opened, with_server

from trioeval.errors import ProviderError
from trioeval.providers.base import Request
from trioeval.providers.http.adapter import HttpProvider
from trioeval.providers.sdk.bedrock import BedrockSettings
from trioeval.providers.sdk.boto import MAX_THREADS, BotoClient, _explain

pytestmark = [pytest.mark.network, pytest.mark.slow]  # importing boto3 takes its time

BEDROCK = CASES[-1]
HELLO = Request(prompt="Say hello")
NO_CREDENTIALS = "no AWS credentials for"
SET_THEM = (
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment or in a file given with "
    "--env-file, or config.profile"
)


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Use no proxies, and no credentials except those of the test."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)


async def failure(provider: object, request: Request = HELLO) -> ProviderError:
    assert isinstance(provider, HttpProvider)
    with pytest.raises(ProviderError) as caught:
        await provider(request)
    return caught.value


def test_cancelled_threads_are_bounded_and_release_their_slots() -> None:
    """Further calls wait; abandoned threads count until they end."""
    hold = Hold()

    async def body(server: Server) -> None:
        async with opened(BEDROCK.read(server.url)) as provider:
            assert isinstance(provider, HttpProvider)
            client = provider._client
            assert isinstance(client, BotoClient)
            async with trio.open_nursery() as nursery:
                for _ in range(MAX_THREADS + 6):
                    nursery.start_soon(provider, HELLO)
                while len(server.received) < MAX_THREADS:
                    await server.request_arrived.wait()
                assert client.threads.statistics().tasks_waiting == 6
                nursery.cancel_scope.cancel()
            assert client.threads.borrowed_tokens == MAX_THREADS
            server.answers = [Answer(body=BEDROCK.good)]
            hold.until.set()
            reply = await provider(HELLO)
            assert reply.output == "Four"
            assert len(server.received) == MAX_THREADS + 1

    with_server([hold], body)


def test_a_missing_credential_is_a_failure_of_authentication() -> None:
    """It is found at the first call: boto3 searches many places."""

    async def body(server: Server) -> None:
        settings = BEDROCK.read(server.url, accessKeyId=None, secretAccessKey=None)
        async with opened(settings) as provider:
            error = await failure(provider)
        assert isinstance(settings, BedrockSettings)
        source = f"POST {settings.adapter.url}"
        assert (
            str(error)
            == f"auth: {NO_CREDENTIALS} {source}: {SET_THEM}; Unable to locate credentials"
        )
        assert not server.received

    with_server([Answer()], body)


def test_a_missing_profile_is_reported_on_opening() -> None:
    """The error is raised before any call."""

    async def body(server: Server) -> None:
        settings = BEDROCK.read(
            server.url, accessKeyId=None, secretAccessKey=None, profile="missing"
        )
        with pytest.raises(ProviderError) as caught:
            async with opened(settings):
                pass
        detail = "The config profile (missing) could not be found"
        assert (
            str(caught.value) == f"auth: {NO_CREDENTIALS} POST {server.url}/: {SET_THEM}; {detail}"
        )

    with_server([Answer()], body)


def test_credentials_of_the_entry_sign_the_request() -> None:
    """The secret itself is never sent."""

    async def body(server: Server) -> None:
        async with opened(BEDROCK.read(server.url, sessionToken="token-1")) as provider:
            await provider(HELLO)
        (request,) = server.received
        assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIA/")
        assert request.headers["x-amz-security-token"] == "token-1"
        assert KEY not in str(request)

    with_server([Answer(body=BEDROCK.good)], body)


def test_a_model_with_colons_and_slashes_is_called_by_its_full_name() -> None:
    """Model ids and ARNs contain both."""
    arn = "arn:aws:bedrock:us-east-1:1234:inference-profile/us.maker.model-v1:0"
    entry = attrs.evolve(BEDROCK, model=arn)

    async def body(server: Server) -> None:
        async with opened(entry.read(server.url)) as provider:
            await provider(HELLO)
        assert server.received[0].target == (
            "/model/arn%3Aaws%3Abedrock%3Aus-east-1%3A1234%3Ainference-profile"
            "%2Fus.maker.model-v1%3A0/converse"
        )

    with_server([Answer(body=BEDROCK.good)], body)


def test_images_are_sent_as_in_the_prompt() -> None:
    """boto3 requires bytes, the request contains base64, and so does the prompt."""
    image = {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}
    prompt = json.dumps([{"role": "user", "content": [{"text": "What is it?"}, image]}])
    broken = prompt.replace("iVBORw==", "no base64")

    async def body(server: Server) -> None:
        async with opened(BEDROCK.read(server.url)) as provider:
            await provider(Request(prompt=prompt))
            error = await failure(provider, Request(prompt=broken))
        (request,) = server.received
        assert request.body["messages"][0]["content"][1] == image
        assert str(error).startswith("bad_request: the bytes of a message are not base64")

    with_server([Answer(body=BEDROCK.good)], body)


def test_requests_that_boto3_refuses_are_bad_requests() -> None:
    """boto3 validates arguments before it sends them."""
    prompt = json.dumps([{"role": "user", "content": [{"picture": "x"}]}])

    async def body(server: Server) -> None:
        async with opened(BEDROCK.read(server.url)) as provider:
            error = await failure(provider, Request(prompt=prompt))
        assert error.kind == "bad_request"
        assert "Unknown parameter" in str(error)
        assert not server.received

    with_server([Answer()], body)


@pytest.mark.parametrize(
    "body", ["[]", '{"output": 5}', '{"output": [1]}', '{"output": {"message": {"content": 5}}}']
)
def test_a_reply_that_boto3_cannot_read_is_malformed(body: str) -> None:
    """Its parser fails in a different way on each."""

    async def main(server: Server) -> None:
        async with opened(BEDROCK.read(server.url)) as provider:
            assert (await failure(provider)).kind == "malformed_reply"

    with_server([Answer(body=body.encode())], main)


def test_the_raw_reply_is_kept_as_received() -> None:
    """Bytes stay base64, and unknown blocks are kept."""
    hidden = {"reasoningContent": {"redactedContent": "c2VjcmV0"}}
    content = [hidden, {"text": "Hello"}, {"future": {"a": 1}}]
    good = {**BEDROCK.good, "output": {"message": {"role": "assistant", "content": content}}}

    async def body(server: Server) -> None:
        async with opened(BEDROCK.read(server.url)) as provider:
            assert isinstance(provider, HttpProvider)
            reply = await provider(HELLO)
        assert reply.output == 'Hello\n\n{"future": {"a": 1}}'
        assert reply.raw["output"]["message"]["content"] == content

    with_server([Answer(body=good)], body)


def test_concurrent_calls_get_their_own_replies() -> None:
    """Threads share only the client."""
    replies: dict[int, object] = {}

    async def body(server: Server) -> None:
        async with opened(BEDROCK.read(server.url)) as provider:
            assert isinstance(provider, HttpProvider)

            async def ask(number: int) -> None:
                reply = await provider(Request(prompt=str(number)))
                replies[number] = reply.output

            async with trio.open_nursery() as nursery:
                for number in range(40):
                    nursery.start_soon(ask, number)
        assert replies == {number: str(number) for number in range(40)}

    with_server([Echo(BEDROCK.good)], body)


def test_failures_without_a_reply_are_classified() -> None:
    """TLS errors and unexpected ones are classified."""
    certificate = exceptions.SSLError(endpoint_url="https://x", error="CERTIFICATE_VERIFY_FAILED")
    handshake = exceptions.SSLError(endpoint_url="https://x", error="EOF")
    errors = (certificate, handshake, ValueError("odd"))
    kinds = [_explain(error, "POST https://x").kind for error in errors]
    assert kinds == ["tls", "connection", "unexpected"]


def test_a_missing_server_is_a_lost_connection() -> None:
    """The server may exist later."""

    async def main() -> None:
        with trio.fail_after(60):
            (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
            port = listener.socket.getsockname()[1]
            await listener.aclose()
            async with opened(BEDROCK.read(f"http://127.0.0.1:{port}")) as provider:
                error = await failure(provider)
            assert error.kind == "connection"
            assert f"http://127.0.0.1:{port}" in str(error)

    trio.run(main)
