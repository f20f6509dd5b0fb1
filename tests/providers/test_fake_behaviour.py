import json
from random import Random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.cli.commands.fake_provider import choose_hints
from trioeval.errors import ProviderError, UsageError
from trioeval.providers import HttpReply, Usage
from trioeval.providers.fake import (
    FakeSettings,
    FillerReplies,
    GarbageReplies,
    Hints,
    RecordedReplies,
    ScriptedReplies,
)
from trioeval.providers.fake.replies import KEPT_STARTS, FakeModel, FakeReply, FakeStatistics
from trioeval.providers.http.failures import classify
from trioeval.providers.local.recordings import RecordedError, Recording


def model(**settings: Any) -> FakeModel:
    rng = Random(1)  # noqa: S311 - nothing to keep secret
    return FakeModel.of(FakeSettings(**settings), rng, 100.0)


def body(prompt: object = "Hello", **more: Any) -> bytes:
    messages = [{"role": "system", "content": "Be brief"}, {"role": "user", "content": prompt}]
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def ask(fake: FakeModel, prompt: object = "Hello", now: float = 100.0) -> FakeReply:
    answer = fake.begin(now, body(prompt))
    fake.end(now, answer, "sent")
    return answer


def text(answer: FakeReply) -> Any:
    return json.loads(answer.body)["choices"][0]["message"]["content"]


def test_an_echo_has_the_form_of_a_chat_completion() -> None:
    """The last user message is returned, with tokens of four characters each."""
    assert json.loads(ask(model()).body) == {
        "id": "chatcmpl-fake00000001",
        "object": "chat.completion",
        "created": 100,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "Hello", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 4,
            "completion_tokens": 2,
            "total_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def test_the_text_of_message_parts_is_read() -> None:
    """Content may be a list of parts; parts without text are ignored."""
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert text(ask(model(), parts)) == "ab"
    assert text(ask(model(), None)) == ""


def test_a_script_is_returned_in_order_and_its_end_repeated() -> None:
    """Requests get the texts in turn."""
    fake = model(replies=ScriptedReplies(("a", "b")))
    assert [text(ask(fake)) for _ in range(3)] == ["a", "b", "b"]


def test_filler_has_the_configured_size() -> None:
    """The reply has the configured size."""
    assert len(text(ask(model(replies=FillerReplies(1000))))) == 1000


def test_garbage_is_not_json() -> None:
    """A success may contain a body that no client can read."""
    with pytest.raises(UnicodeDecodeError):
        ask(model(replies=GarbageReplies("invalid_utf8"))).body.decode()
    with pytest.raises(json.JSONDecodeError):
        json.loads(ask(model(replies=GarbageReplies("not_json"))).body)


RECORDED = RecordedReplies(
    (
        Recording(
            prompt="a",
            output="first",
            latency_ms=500,
            usage=Usage(prompt=9, completion=3, cached=2, reasoning=1),
            finish_reason="length",
        ),
        Recording(prompt="a", output={"x": 1}),
        Recording(prompt="b", error=RecordedError("connection", "gone")),
        Recording(prompt="c", output="of another", model="n"),
    )
)


def test_recordings_are_returned_unchanged() -> None:
    """Output, tokens, reason and time are those of the recording, in order."""
    fake = model(replies=RECORDED, latency_s=2)
    first, second = ask(fake, "a"), ask(fake, "a")
    data = json.loads(first.body)
    assert first.delay == 0.5
    assert text(first) == "first"
    assert data["choices"][0]["finish_reason"] == "length"
    assert data["usage"]["total_tokens"] == 12
    assert data["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
    assert second.delay == 2
    assert text(second) == '{"x": 1}'
    assert ask(fake, "b").is_cut
    missing = ask(fake, "c")
    assert missing.status == 404
    assert json.loads(missing.body)["error"]["code"] == "recording_not_found"


@pytest.mark.parametrize(
    "kind",
    [
        "auth",
        "permission",
        "not_found",
        "unsupported",
        "bad_request",
        "context_window",
        "rate_limited",
        "overloaded",
        "quota_exhausted",
        "server",
    ],
)
def test_a_recorded_error_keeps_its_kind(kind: Any) -> None:
    """Replayed over HTTP, a failure is classified as the kind it was recorded with."""
    recording = Recording(prompt="Hello", error=RecordedError(kind, "as recorded"))
    answer = ask(model(replies=RecordedReplies((recording,))))
    error = classify(HttpReply(answer.status, dict(answer.headers), answer.body))
    assert isinstance(error, ProviderError)
    assert error.kind == kind
    assert error.message.endswith((": as recorded", "; as recorded"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xff", "the body is not JSON"),
        (b"[]", "the body is not an object"),
        (b"{}", "model must be text"),
        (b'{"model": "m"}', "messages must be a non-empty list"),
        (b'{"model": "m", "messages": [1]}', "messages must be objects with a role"),
    ],
)
def test_a_bad_request_gets_the_reason(content: bytes, message: str) -> None:
    """An invalid request gets a 400 with the reason, and does not count as in flight."""
    answer = model(rpm=1).begin(100.0, content)
    assert (answer.status, answer.is_let_in) == (400, False)
    assert json.loads(answer.body)["error"] == {
        "message": message,
        "type": "invalid_request_error",
        "param": None,
        "code": None,
    }


LIMITS = [f"x-ratelimit-{fact}-requests" for fact in ("limit", "remaining", "reset")]


def test_too_many_requests_in_a_window_are_refused_with_the_wait() -> None:
    """A refused request gets the wait, after which it fits."""
    fake = model(rpm=2, window_s=60)
    assert [ask(fake, now=at).status for at in (100.0, 110.5)] == [200, 200]
    answer = ask(fake, now=120.25)
    assert answer.status == 429
    assert dict(answer.headers) == {
        "retry-after": "40",
        "retry-after-ms": "39750",
        "x-ratelimit-limit-requests": "2",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "50.25s",
    }
    assert json.loads(answer.body)["error"] == {
        "message": (
            "Rate limit reached for m on requests: the limit is 2. Please try again in 39.750s."
        ),
        "type": "requests",
        "param": None,
        "code": "rate_limit_exceeded",
    }
    assert ask(fake, now=120.25 + 39.75).status == 200


@pytest.mark.parametrize(
    ("hints", "names", "wait"),
    [
        ("all", ["retry-after", "retry-after-ms", *LIMITS], 39.75),
        ("limits", LIMITS, 50.25),
        ("retry_after", ["retry-after"], 40.0),
        ("none", [], None),
    ],
)
def test_a_refusal_has_only_the_configured_hints(
    hints: Any, names: list[str], wait: float | None
) -> None:
    """Neither a header nor the message reveals a hidden wait."""
    fake = model(rpm=2, window_s=60, hints=hints)
    served = [ask(fake, now=at) for at in (100.0, 110.5)]
    answer = ask(fake, now=120.25)
    assert answer.status == 429
    assert [name for name, _ in answer.headers] == names
    assert {name for one in served for name, _ in one.headers} == {*names} & {*LIMITS}
    error = classify(HttpReply(answer.status, dict(answer.headers), answer.body))
    assert error.retry_after == wait


def test_a_bucket_of_requests_is_refilled_evenly() -> None:
    """With a burst the limit is a bucket, not a window: units are refilled one by one."""
    fake = model(rpm=60, burst=2)
    served = [ask(fake, now=at).status for at in (100, 100, 100, 100.5, 101, 101, 102)]
    assert served == [200, 200, 429, 429, 200, 429, 200]
    assert fake.statistics.to_json()["by_status"] == {"200": 4, "429": 3}


def test_throttling_has_its_rate_and_no_hint() -> None:
    """A random refusal is a bare 429, uses nothing, and does not shift other random numbers."""

    def run(**settings: Any) -> list[FakeReply]:
        fake = model(**settings)
        return [ask(fake) for _ in range(200)]

    seen = run(throttle_rate=0.2, failure_rate=0.2, rpm=1000)
    refused = [answer for answer in seen if answer.status == 429]
    assert 20 <= len(refused) <= 60
    assert {(answer.headers, answer.delay, answer.is_let_in) for answer in refused} == {
        ((), 0.0, False)
    }
    error = classify(HttpReply(429, {}, refused[0].body))
    assert (error.kind, error.retry_after) == ("rate_limited", None)
    others = [answer.status for answer in seen if answer.status != 429]
    assert others == [answer.status for answer in run(failure_rate=0.2)][: len(others)]
    last = dict(seen[-1].headers or seen[-2].headers)
    assert last["x-ratelimit-remaining-requests"] >= str(1000 - len(others))


def test_a_crowded_server_slows_down_in_proportion() -> None:
    """Up to the threshold the latency is constant; twice as many requests take twice as long."""
    fake = model(latency_s=0.5, slow_from=2)
    delays = [fake.begin(100.0, body()).delay for _ in range(6)]
    assert delays == [0.5, 0.5, 0.75, 1.0, 1.25, 1.5]


def test_tokens_of_prompt_and_reply_count() -> None:
    """The token limit counts the tokens that replies report."""
    fake = model(tpm=11, window_s=60)
    assert [ask(fake).status for _ in range(2)] == [200, 429]
    assert json.loads(ask(fake).body)["error"]["type"] == "tokens"


def test_a_refused_request_uses_nothing_up() -> None:
    """Script, limits and random numbers are unchanged by a refusal."""
    fake = model(rpm=1, window_s=60, replies=ScriptedReplies(("a", "b")))
    assert [ask(fake, now=at).status for at in (100, 101, 102, 160)] == [200, 429, 429, 200]
    assert text(ask(fake, now=220)) == "b"


def test_the_number_of_concurrent_requests_is_limited() -> None:
    """Requests above the limit are refused without a hint, until one is finished."""
    fake = model(max_in_flight=1)
    first = fake.begin(100.0, body())
    refused = fake.begin(100.0, body())
    assert (first.status, refused.status, refused.headers) == (200, 429, ())
    fake.end(101.0, refused, "sent")
    fake.end(101.0, first, "sent")
    assert fake.begin(101.0, body()).status == 200


def test_a_slot_is_free_before_the_client_has_its_reply() -> None:
    """A client may send its next request at once.

    The slot is free when the end of the reply is about to be sent, and it is released once.
    """
    fake = model(max_in_flight=1)
    first = fake.begin(100.0, body())
    fake.reply(first)
    second = fake.begin(100.0, body())
    fake.end(100.0, first, "sent", replied=True)
    assert [second.status, fake.begin(100.0, body()).status] == [200, 429]


def test_faults_have_their_rates_and_are_repeatable_for_a_seed() -> None:
    """Faults are repeatable, and one rate does not shift the random numbers of another."""

    def run(**settings: Any) -> list[tuple[int, bool]]:
        fake = model(**settings)
        return [(answer.status, answer.is_cut) for answer in (ask(fake) for _ in range(200))]

    both = run(failure_rate=0.2, disconnect_rate=0.1)
    assert both == run(failure_rate=0.2, disconnect_rate=0.1)
    assert [status for status, _ in both] == [status for status, _ in run(failure_rate=0.2)]
    assert [cut for _, cut in both] == [cut for _, cut in run(disconnect_rate=0.1)]
    assert 20 <= sum(status == 500 for status, _ in both) <= 60
    assert 8 <= sum(cut for _, cut in both) <= 35
    assert run(failure_rate=1) == [(500, False)] * 200


@pytest.mark.slow
@given(st.floats(0, 1), st.floats(0, 10))
def test_jitter_is_a_share_of_the_latency(jitter: float, latency: float) -> None:
    """Delays stay within the jitter in both directions."""
    fake = model(latency_s=latency, jitter=jitter)
    for _ in range(5):
        delay = ask(fake).delay
        assert latency * (1 - jitter) - 1e-9 <= delay <= latency * (1 + jitter) + 1e-9


@pytest.mark.slow
@given(st.lists(st.sampled_from(["sent", "cut", "abandoned", "open"]), max_size=20))
def test_every_request_is_counted_once(endings: list[Any]) -> None:
    """The number of requests is the sum of their endings."""
    fake = model(max_in_flight=3)
    for ending in endings:
        answer = fake.begin(100.0, body())
        if ending != "open":
            fake.end(102.0, answer, ending)
    seen = fake.statistics.to_json()
    still_open = endings.count("open")
    assert seen["requests"] == len(endings) == len(seen["started_at"])
    assert seen["requests"] == (
        sum(seen["by_status"].values()) + seen["disconnects"] + seen["abandoned"] + still_open
    )
    assert seen["in_flight"] <= seen["max_in_flight"] <= 3
    assert seen["ok"] == seen["by_status"].get("200", 0)


def test_the_number_of_stored_request_times_is_bounded() -> None:
    """Memory does not grow with the number of requests."""
    statistics = FakeStatistics(0.0)
    for _ in range(KEPT_STARTS + 5):
        statistics.arrive(1.0)
    seen = statistics.to_json()
    assert (seen["requests"], len(seen["started_at"])) == (KEPT_STARTS + 5, KEPT_STARTS)


def test_a_reset_clears_the_statistics() -> None:
    """A reset clears everything except the requests in flight."""
    fake = model(rpm=1, replies=ScriptedReplies(("a", "b")))
    pending = fake.begin(100.0, body())
    fake.reset(150.0)
    assert fake.statistics.to_json() == {
        "requests": 0,
        "ok": 0,
        "by_status": {},
        "in_flight": 1,
        "max_in_flight": 1,
        "disconnects": 0,
        "abandoned": 0,
        "first_request_at": None,
        "last_reply_at": None,
        "started_at": [],
    }
    fake.end(151.0, pending, "sent")
    assert text(ask(fake, now=152.5)) == "a"
    seen = fake.statistics.to_json()
    assert (seen["in_flight"], seen["first_request_at"], seen["last_reply_at"]) == (0, 2.5, 2.5)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"port": 70_000}, "port must be between 0 and 65535, got 70000"),
        ({"latency_s": -1}, "latency_s must be at least 0 and finite, got -1"),
        ({"window_s": 0}, "window_s must be more than 0 and finite, got 0"),
        ({"jitter": 1.5}, "jitter must be between 0 and 1, got 1.5"),
        ({"failure_rate": -0.5}, "failure_rate must be between 0 and 1, got -0.5"),
        ({"disconnect_rate": 2}, "disconnect_rate must be between 0 and 1, got 2"),
        ({"rpm": 0}, "rpm must be at least 1, got 0"),
        ({"tpm": 0}, "tpm must be at least 1, got 0"),
        ({"max_body_bytes": 0}, "max_body_bytes must be at least 1, got 0"),
        ({"max_in_flight": 0}, "max_in_flight must be at least 1, got 0"),
        ({"slow_from": 0}, "slow_from must be at least 1, got 0"),
        ({"rpm": 9, "burst": 0}, "burst must be at least 1, got 0"),
        ({"burst": 9}, "burst must be omitted without rpm, got 9"),
        ({"throttle_rate": 2}, "throttle_rate must be between 0 and 1, got 2"),
        (
            {"hints": "some"},
            "hints must be one of all, limits, retry_after, none, got 'some'",
        ),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], text: str) -> None:
    """The message has the setting, the range and the value."""
    with pytest.raises(UsageError) as caught:
        FakeSettings(**settings)
    assert str(caught.value) == text


def test_hints_are_chosen_by_name() -> None:
    """The command line accepts the same names as the settings."""
    names = ("all", "limits", "retry_after", "none")
    assert tuple(map(choose_hints, names)) == get_args(Hints) == names
    with pytest.raises(UsageError) as caught:
        choose_hints("some")
    expected = "--hints must be one of all, limits, retry_after, none, got 'some'"
    assert str(caught.value) == expected


def test_replies_out_of_range_are_refused() -> None:
    """Replies must exist and have a possible size."""
    with pytest.raises(UsageError, match=r"^scripted replies must have at least one text$"):
        ScriptedReplies(())
    with pytest.raises(UsageError, match=r"^reply_bytes must be at least 0, got -1$"):
        FillerReplies(-1)
