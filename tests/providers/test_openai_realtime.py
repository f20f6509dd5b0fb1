"""OpenAI Realtime over a WebSocket: sessions, texts, audio, calls, usage, prices and failures."""

import json
from base64 import b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from socket_server import Peer, Refusal, SocketServer, hear, serve_sockets

from trioeval.errors import Fault, ProviderError, SuiteError
from trioeval.providers import OpenProvider, Reply, Request, open_providers, resolve
from trioeval.providers.media import decode_media
from trioeval.providers.resolve import ProviderSpec
from trioeval.providers.vendors.openai_realtime import to_items
from trioeval.providers.vendors.realtime_events import REALTIME_PRICES, realtime_price
from trioeval.templates import Templates

pytestmark = pytest.mark.network

Talk = Callable[[Peer], Awaitable[None]]

USAGE = {
    "total_tokens": 150,
    "input_tokens": 100,
    "output_tokens": 50,
    "input_token_details": {
        "text_tokens": 100,
        "audio_tokens": 0,
        "cached_tokens": 40,
        "cached_tokens_details": {"text_tokens": 40, "audio_tokens": 0},
    },
    "output_token_details": {"text_tokens": 10, "audio_tokens": 40},
}


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


def spec_of(entry: str = "openai:realtime:gpt-realtime", **config: Any) -> ProviderSpec:
    """Return the spec of an entry."""
    return resolve(
        entry,
        {"apiBaseUrl": "http://127.0.0.1:9/v1", **config},
        environ={},
        directory=Path(),
        templates=Templates(),
        custom={},
    )


def problems(entry: str = "openai:realtime:gpt-realtime", **config: Any) -> list[str]:
    """Return the problems of an entry."""
    with pytest.raises(SuiteError) as caught:
        spec_of(entry, **config)
    return [str(one) for one in caught.value.problems]


@attrs.frozen
class Heard:
    """A finished call: its reply, and what the server received."""

    reply: Reply
    events: list[dict[str, Any]]
    peer: Peer

    @property
    def session(self) -> dict[str, Any]:
        """The session that was asked for."""
        session: dict[str, Any] = self.events[0]["session"]
        return session

    @property
    def items(self) -> list[Any]:
        """The items of the conversation."""
        return [one["item"] for one in self.events if one["type"] == "conversation.item.create"]


def answers(*events: Any) -> tuple[Talk, list[dict[str, Any]]]:
    """Return a conversation that sends these events when a response is asked for."""
    heard: list[dict[str, Any]] = []

    async def talk(peer: Peer) -> None:
        await peer.say({"type": "session.created", "session": {}})
        while (event := await peer.receive_json()) is not None:
            heard.append(event)
            if event["type"] == "response.create":
                await peer.say(*events)

    return talk, heard


def run(
    talk: Talk,
    use: Callable[[OpenProvider, SocketServer], Awaitable[Any]],
    *refusals: Refusal,
    entry: str = "openai:realtime:gpt-realtime",
    **config: Any,
) -> Any:
    """Use a provider whose server holds a conversation."""

    async def main() -> Any:
        with trio.fail_after(30):
            async with serve_sockets(talk, None, *refusals) as server:
                given = {"apiKey": "sk-very-secret", **config}
                if "apiBaseUrl" not in config:
                    given["apiBaseUrl"] = f"{server.base_url}/v1"
                spec = spec_of(entry, **given)
                async with open_providers([spec], Templates()) as [provider]:
                    return await use(provider, server)

    return trio.run(main)


def asked(*events: Any, prompt: str = "Hi", entry: str = "", **config: Any) -> Heard:
    """Return a call that the server answers with some events."""
    talk, heard = answers(*events)

    async def use(provider: OpenProvider, server: SocketServer) -> Heard:
        reply = await provider(Request(prompt=prompt))
        await server.wait_finished(1)
        return Heard(reply, heard, server.peers[0])

    found: Heard = run(talk, use, entry=entry or "openai:realtime:gpt-realtime", **config)
    return found


def refused(talk: Talk, *refusals: Refusal, **config: Any) -> ProviderError:
    """Return the failure of a call."""

    async def use(provider: OpenProvider, _: SocketServer) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await provider(Request(prompt="Hi"))
        assert "sk-very-secret" not in f"{caught.value}{caught.value.body_excerpt}"
        return caught.value

    error: ProviderError = run(talk, use, *refusals, **config)
    return error


def failed_with(*events: Any, **config: Any) -> ProviderError:
    """Return the failure of a call that the server answers with some events."""
    return refused(answers(*events)[0], **config)


def done(*items: Any, **facts: Any) -> dict[str, Any]:
    """The event at the end of a response."""
    response = {"id": "resp_1", "status": "completed", "output": [*items], "usage": USAGE, **facts}
    return {"type": "response.done", "response": response}


def said(words: str, kind: str = "output_text", name: str = "text") -> dict[str, Any]:
    """An item with one part."""
    return {"type": "message", "role": "assistant", "content": [{"type": kind, name: words}]}


def encoded(data: bytes) -> str:
    """Base64."""
    return b64encode(data).decode()


def test_a_text_is_one_response_of_a_session_of_its_own() -> None:
    """Session, item and request are sent at once; the end is a closing handshake."""
    heard = asked(
        {"type": "response.output_text.delta", "delta": "Hel"},
        {"type": "response.output_text.delta", "delta": "lo."},
        done(said("Hello.")),
        modalities=["text"],
        instructions="Be brief.",
        max_response_output_tokens=100,
    )
    assert [one["type"] for one in heard.events] == [
        "session.update",
        "conversation.item.create",
        "response.create",
    ]
    assert heard.session == {
        "type": "realtime",
        "model": "gpt-realtime",
        "output_modalities": ["text"],
        "instructions": "Be brief.",
        "audio": {
            "input": {"format": {"type": "audio/pcm", "rate": 24000}},
            "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "alloy"},
        },
        "max_output_tokens": 100,
    }
    part = {"type": "input_text", "text": "Hi"}
    assert heard.items == [{"type": "message", "role": "user", "content": [part]}]
    assert heard.peer.target == "/v1/realtime?model=gpt-realtime"
    assert heard.peer.headers["authorization"] == "Bearer sk-very-secret"
    assert heard.peer.closed_with == 1000
    reply = heard.reply
    assert (reply.output, reply.text, reply.finish_reason) == ("Hello.", "Hello.", "stop")
    assert (reply.usage.prompt, reply.usage.completion, reply.usage.total) == (100, 50, 150)
    assert reply.usage.cached == 40
    assert reply.metadata["http"]["status"] == 101
    assert reply.metadata["id"] == "resp_1"


def test_audio_is_a_file_and_its_transcript_is_the_output() -> None:
    """The parts of the audio are joined, and get the header of a WAV file."""
    samples = bytes(range(200))
    heard = asked(
        {"type": "response.output_audio.delta", "delta": encoded(samples[:100])},
        {"type": "response.output_audio_transcript.delta", "delta": "Hello."},
        {"type": "response.output_audio.delta", "delta": encoded(samples[100:])},
        done(said("Hello.", "output_audio", "transcript")),
        voice="marin",
    )
    assert heard.session["output_modalities"] == ["audio"]
    assert heard.session["audio"]["output"]["voice"] == "marin"
    [media] = heard.reply.media
    assert media.mime_type == "audio/wav"
    assert media.read().endswith(samples)
    assert heard.reply.output == "Hello."
    assert heard.reply.raw["output"][0]["content"][0]["audio"] == media.uri


def test_audio_without_a_transcript_is_its_uri() -> None:
    """As with speech; the names of the events before the API's release are read too."""
    heard = asked({"type": "response.audio.delta", "delta": encoded(b"\1\2")}, done())
    [media] = heard.reply.media
    assert heard.reply.output == media.uri


@pytest.mark.parametrize(("name", "tag"), [("g711_ulaw", 7), ("g711_alaw", 6)])
def test_audio_of_telephony_becomes_a_wav_file(name: str, tag: int) -> None:
    """With its tag, and 8000 bytes a second."""
    audio = {"type": "response.output_audio.delta", "delta": encoded(b"\x11" * 3)}
    heard = asked(audio, done(said("Hi.", "output_audio", "transcript")), output_audio_format=name)
    data = heard.reply.media[0].read()
    assert data[:4] == b"RIFF"
    assert int.from_bytes(data[4:8], "little") == len(data) - 8
    assert int.from_bytes(data[20:22], "little") == tag
    assert int.from_bytes(data[24:28], "little") == 8000
    assert data.endswith(b"\x11" * 3 + b"\0")
    assert decode_media(encoded(b"\x11" * 3), name).sha256 == heard.reply.media[0].sha256


def test_texts_and_calls_of_events_count_if_the_last_one_omits_them() -> None:
    """Services that are compatible send the final response without its items."""
    call = {"type": "function_call", "name": "add", "call_id": "c1", "arguments": '{"a": 2}'}
    heard = asked(
        {"type": "response.text.delta", "delta": "Wait"},
        {"type": "response.output_item.done", "item": call},
        {"type": "response.done", "response": {"status": "completed"}},
    )
    assert heard.reply.text == "Wait"
    assert heard.reply.tool_calls[0].arguments == {"a": 2}


def test_the_call_of_a_tool_is_the_output() -> None:
    """Tools in the form of chat completions are sent in the API's own."""
    parameters = {"type": "object", "properties": {"a": {"type": "number"}}}
    function = {"name": "add", "description": "Adds.", "parameters": parameters}
    heard = asked(
        done(
            {"type": "function_call", "name": "add", "call_id": "c1", "arguments": '{"a": 2}'},
        ),
        tools=[{"type": "function", "function": function}, {"type": "function", "name": "own"}],
        tool_choice={"type": "function", "function": {"name": "add"}},
        parallel_tool_calls=False,
    )
    assert heard.session["tools"] == [
        {"type": "function", **function},
        {"type": "function", "name": "own"},
    ]
    assert heard.session["tool_choice"] == {"type": "function", "name": "add"}
    assert heard.session["parallel_tool_calls"] is False
    assert heard.reply.output == [
        {
            "id": "c1",
            "type": "function",
            "function": {"name": "add", "arguments": '{"a": 2}'},
        }
    ]
    assert heard.reply.finish_reason == "tool_calls"


def test_the_messages_of_a_chat_are_the_items_of_the_conversation() -> None:
    """All of them, with the kinds of parts that the API has."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    audio = {"type": "input_audio", "input_audio": {"data": "AAA=", "format": "pcm16"}}
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    chat = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is it?"}, image, audio]},
        {"role": "assistant", "content": "A cat.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "4"}]},
    ]
    heard = asked(done(said("Yes.")), prompt=json.dumps(chat))
    assert heard.items == [
        {
            "type": "message",
            "role": "system",
            "content": [{"type": "input_text", "text": "Be brief."}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [
                {"type": "input_text", "text": "What is it?"},
                {"type": "input_image", "image_url": "data:image/png;base64,AA=="},
                {"type": "input_audio", "audio": "AAA="},
            ],
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "A cat."}],
        },
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
    ]


def test_a_prompt_may_be_an_object_with_a_prompt() -> None:
    """As in promptfoo; any other object is a text."""
    assert to_items('{"prompt": "Hi"}')[0]["content"][0]["text"] == "Hi"
    assert to_items('{"other": 1}')[0]["content"][0]["text"] == '{"other": 1}'


def test_audio_in_a_file_is_refused_before_it_is_sent() -> None:
    """The API takes samples without a header."""
    audio = {"type": "input_audio", "input_audio": {"data": "AAA=", "format": "mp3"}}
    with pytest.raises(ProviderError) as caught:
        to_items(json.dumps([{"role": "user", "content": [audio]}]))
    assert caught.value.kind == "bad_request"
    assert "must be pcm16 or g711_ulaw or g711_alaw without a header" in caught.value.message


def test_tokens_are_priced_as_texts_and_audio() -> None:
    """60 new and 40 cached tokens of text, 10 of text and 40 of audio in the reply."""
    heard = asked(done(said("Hello.")))
    assert heard.reply.cost == pytest.approx((60 * 4 + 40 * 0.4 + 10 * 16 + 40 * 64) / 1e6)


def test_images_have_a_price_of_their_own() -> None:
    """Tokens of images are neither those of texts nor those of audio."""
    details = {**USAGE["input_token_details"], "text_tokens": 70, "image_tokens": 30}  # type: ignore[dict-item]
    usage = {**USAGE, "input_token_details": details}
    heard = asked(done(said("Hello."), usage=usage))
    new, seen = 70 - 40, 30
    dollars = new * 4 + 40 * 0.4 + seen * 5 + 10 * 16 + 40 * 64
    assert heard.reply.cost == pytest.approx(dollars / 1e6)


def test_a_price_in_the_config_replaces_the_table() -> None:
    """Then texts and audio cost the same."""
    heard = asked(done(said("Hello.")), price={"input": 1, "output": 2})
    assert heard.reply.cost == pytest.approx((100 + 2 * 50) / 1e6)


def test_an_unknown_price_stays_unknown() -> None:
    """Of a model, and of a usage that does not separate audio and texts."""
    assert asked(done(said("Hello.")), entry="openai:realtime:mine").reply.cost is None
    bare = {"input_tokens": 1, "output_tokens": 1}
    assert asked(done(said("Hello."), usage=bare)).reply.cost is None
    assert realtime_price("gpt-4o-realtime-preview-2024-12-17") == REALTIME_PRICES.get(
        "gpt-4o-realtime-preview"
    )
    assert realtime_price("gpt-4o-realtime-preview-2024-10-01") != realtime_price(
        "gpt-4o-realtime-preview"
    )


def test_a_budget_assumes_the_price_of_audio() -> None:
    """No call exceeds it; the length of a response is that of the config."""
    known = spec_of(max_response_output_tokens=100).metering
    assert known.price is not None
    assert (known.price.input, known.price.output) == (32, 64)
    assert (known.longest_reply, known.is_bounded) == (100, True)
    assert not spec_of().metering.is_bounded
    assert spec_of("openai:realtime:mine").metering.price is None
    own = spec_of(price={"input": 1, "output": 2}).metering.price
    assert own is not None
    assert own.output == 2


def test_the_limits_of_a_session_are_hints() -> None:
    """As the headers of other APIs are."""
    limits = [
        {"name": "requests", "limit": 500, "remaining": 0, "reset_seconds": 1.5},
        {"name": "tokens", "limit": 40_000, "remaining": 39_000, "reset_seconds": 0.1},
        {"name": "other"},
        7,
    ]
    updated = {"type": "rate_limits.updated", "rate_limits": limits}
    reply = asked(updated, done(said("Hello."))).reply
    assert reply.hint is not None
    assert "limit=500" in repr(reply.hint)
    assert "rate_limits" not in reply.raw
    assert not [name for name in reply.metadata["http"]["headers"] if "ratelimit" in name]


def test_a_response_that_was_cut_off_says_so() -> None:
    """Its text is a reply nevertheless."""
    cut = {"type": "incomplete", "reason": "max_output_tokens"}
    reply = asked(done(said("Hel"), status="incomplete", status_details=cut)).reply
    assert (reply.output, reply.finish_reason) == ("Hel", "length")


def test_a_filtered_response_is_a_refusal() -> None:
    """With what its usage cost."""
    cut = {"type": "incomplete", "reason": "content_filter"}
    reply = asked(done(said(""), status="incomplete", status_details=cut)).reply
    assert reply.is_refusal
    assert reply.finish_reason == "content_filter"
    assert reply.usage.total == 150


def test_an_empty_response_is_a_failure_with_its_cost() -> None:
    """It has been paid."""
    error = failed_with(done())
    assert error.kind == "empty_reply"
    assert error.usage.total == 150


@pytest.mark.parametrize(
    ("error", "kind", "fault"),
    [
        (
            {"type": "invalid_request_error", "code": "rate_limit_exceeded", "message": "Slow."},
            "bad_request",
            Fault.REFUSED,
        ),
        ({"type": "rate_limit_error", "message": "Slow."}, "rate_limited", Fault.RATE_LIMITED),
        ({"code": "invalid_api_key", "message": "No key."}, "auth", Fault.FATAL),
        ({"code": "insufficient_quota", "message": "Pay."}, "quota_exhausted", None),
        ({"type": "server_error", "message": "Oh."}, "server", Fault.TRANSIENT),
        ({"type": "invalid_request_error", "message": "What?"}, "bad_request", Fault.REFUSED),
        ("No.", "server", Fault.TRANSIENT),
    ],
)
def test_an_error_event_is_classified_by_its_codes(
    error: Any, kind: str, fault: Fault | None
) -> None:
    """As an error in the body of a reply is."""
    found = failed_with({"type": "error", "event_id": "e1", "error": error})
    assert found.kind == kind
    assert fault is None or found.fault == fault
    words = error if isinstance(error, str) else error["message"]
    assert words in found.message


def test_a_rate_limit_in_an_event_asks_for_its_wait() -> None:
    """The message names it, in place of headers."""
    message = "Rate limit reached. Please try again in 1.5s."
    error = {"type": "tokens", "code": "rate_limit_exceeded", "message": message}
    found = failed_with({"type": "error", "error": error})
    assert (found.kind, found.retry_after) == ("rate_limited", 1.5)


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        (
            {"status": "failed", "status_details": {"error": {"type": "server_error"}}},
            "server",
        ),
        (
            {"status": "failed", "status_details": {"error": {"code": "insufficient_quota"}}},
            "quota_exhausted",
        ),
        ({"status": "failed"}, "server"),
        ({"status": "cancelled"}, "server"),
    ],
)
def test_a_response_that_did_not_finish_is_a_failure(facts: Any, kind: str) -> None:
    """With the usage that it reports."""
    error = failed_with(done(**facts))
    assert error.kind == kind
    assert error.usage.total == 150


@pytest.mark.parametrize(
    ("status", "kind", "fault"),
    [
        (401, "auth", Fault.FATAL),
        (403, "permission", Fault.FATAL),
        (429, "rate_limited", Fault.RATE_LIMITED),
        (503, "server", Fault.TRANSIENT),
    ],
)
def test_a_refused_handshake_is_classified(status: int, kind: str, fault: Fault) -> None:
    """With the wait that it asks for."""
    body = json.dumps({"error": {"message": "Not now, sk-very-secret."}}).encode()
    error = refused(hear, Refusal(status, body, {"retry-after": "3"}))
    assert (error.kind, error.fault, error.status, error.retry_after) == (kind, fault, status, 3)
    assert f"HTTP {status} from GET ws://127.0.0.1" in error.message


@pytest.mark.parametrize("message", ["<html>", "[1]", '{"a": ', b"\xff"])
def test_a_message_that_is_not_an_event_is_malformed(message: str | bytes) -> None:
    """The beginning of it is shown."""
    error = failed_with(message)
    assert error.kind == "malformed_reply"
    assert "a message of the service is not JSON" in error.message


def test_audio_that_is_not_base64_is_malformed() -> None:
    """It cannot be kept as a file."""
    error = failed_with({"type": "response.output_audio.delta", "delta": "!"})
    assert error.kind == "malformed_reply"
    assert "not valid base64" in error.message


def test_a_server_that_ends_half_way_is_a_lost_connection() -> None:
    """The parts that have arrived are not a reply."""

    async def talk(peer: Peer) -> None:
        await peer.receive()
        await peer.say({"type": "response.output_text.delta", "delta": "Hel"})

    assert refused(talk).kind == "connection"


def test_a_server_that_never_answers_is_given_up() -> None:
    """The time limit is that of the config, by either name; the socket is closed."""

    async def use(provider: OpenProvider, server: SocketServer) -> None:
        with pytest.raises(ProviderError) as caught:
            await provider(Request(prompt="Hi"))
        assert caught.value.kind == "attempt_timeout"
        assert "no complete reply within 0.05 seconds from GET ws://" in caught.value.message
        assert "raise websocketTimeout or timeoutMs" in caught.value.message
        await server.wait_finished(1)

    run(hear, use, websocketTimeout=50)


def test_the_time_limit_is_that_of_all_providers_by_default() -> None:
    """300 seconds; promptfoo's are 30."""
    endpoint = spec_of().settings.endpoint
    assert endpoint is not None
    assert endpoint.timeout == 300


def test_a_reply_that_is_too_large_is_refused() -> None:
    """All events together count."""
    delta = {"type": "response.output_text.delta", "delta": "x" * 200}
    error = failed_with(*[delta] * 10, max_response_bytes=1000)
    assert error.kind == "malformed_reply"
    assert "maxResponseBytes: 1000" in error.message


def test_the_time_to_the_first_part_is_measured_on_request() -> None:
    """It ends with the first text or audio."""
    delta = {"type": "response.output_text.delta", "delta": "Hello."}
    heard = asked(delta, done(said("Hello.")), metrics="ttft")
    assert heard.reply.first_token is not None
    assert asked(delta, done(said("Hello."))).reply.first_token is None


def test_azure_has_the_same_api_with_its_own_key() -> None:
    """The deployment is the model."""
    talk, heard = answers(done(said("Hello.")))

    async def use(provider: OpenProvider, server: SocketServer) -> Peer:
        await provider(Request(prompt="Hi"))
        return server.peers[0]

    peer = run(talk, use, entry="azure:realtime:my-voice")
    assert peer.target == "/v1/openai/v1/realtime?model=my-voice"
    assert peer.headers["api-key"] == "sk-very-secret"
    assert "authorization" not in peer.headers
    assert heard[0]["session"]["model"] == "my-voice"


def test_keys_without_an_effect_are_warned_about() -> None:
    """They are promptfoo's own; a passthrough is sent with the session."""
    spec = spec_of(
        temperature=0.5, maintainContext=True, functionCallHandler="x", passthrough={"speed": 2}
    )
    assert [one.path for one in spec.warnings] == [
        ".config.temperature",
        ".config.maintainContext",
        ".config.functionCallHandler",
    ]
    heard = asked(done(said("Hello.")), passthrough={"temperature": 0.5}, speed=2)
    assert heard.session["temperature"] == 0.5
    assert heard.session["speed"] == 2


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"modalities": ["video"]}, '.config.modalities: must be a list of "text" and "audio"'),
        ({"output_audio_format": "mp3"}, ".config.output_audio_format: must be pcm16 or"),
        (
            {"max_response_output_tokens": 0},
            ".config.max_response_output_tokens: must be a whole number of at least 1",
        ),
        (
            {"timeoutMs": 1, "websocketTimeout": 1},
            '.config.websocketTimeout: "timeoutMs" and "websocketTimeout" mean the same',
        ),
        ({"voise": "alloy"}, '.config.voise: "voise" is not a key'),
        ({"tools": "file.json"}, ".config.tools: must be a list"),
        ({"passthrough": {"items": []}}, ".config.passthrough: must be an object without items"),
    ],
)
def test_mistakes_are_found_before_the_first_call(config: Any, problem: str) -> None:
    """With their places."""
    [found] = problems(**config)
    assert found.startswith(problem)


def test_azure_has_no_api_version_here() -> None:
    """The API has one path for all versions."""
    [found] = problems("azure:realtime:m", apiVersion="2024-10-01", apiKey="sk-1")
    assert found.startswith(".config.apiVersion: the Realtime API of azure has no API version")


def test_options_of_a_call_replace_those_of_the_entry() -> None:
    """Those of the connection cannot differ."""
    talk, heard = answers(done(said("Hello.")))

    async def use(provider: OpenProvider, _: SocketServer) -> None:
        await provider(Request(prompt="Hi", options={"instructions": "Be long."}))
        with pytest.raises(ProviderError, match="websocketTimeout"):
            await provider(Request(prompt="Hi", options={"websocketTimeout": 1}))

    run(talk, use, instructions="Be brief.")
    assert heard[0]["session"]["instructions"] == "Be long."


def test_equal_requests_have_equal_cache_keys() -> None:
    """Everything in the session counts."""

    async def use(provider: OpenProvider, _: SocketServer) -> None:
        one, same = (provider.cache_key(Request(prompt="Hi")) for _ in range(2))
        options = {"voice": "marin"}
        other = provider.cache_key(Request(prompt="Hi", options=options))
        assert one == same != other

    run(hear, use)


def test_calls_side_by_side_have_connections_of_their_own() -> None:
    """Each ends with its call."""
    talk, _ = answers(done(said("Hello.")))

    async def use(provider: OpenProvider, server: SocketServer) -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(5):
                nursery.start_soon(provider, Request(prompt="Hi"))
        await server.wait_finished(5)
        assert {one.closed_with for one in server.peers} == {1000}

    run(talk, use)
