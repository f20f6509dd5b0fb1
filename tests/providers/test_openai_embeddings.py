import json
import struct
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest
from damaged import JSON, check_parse, damaged
from fake_runs import with_raw_server
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import ProviderError
from trioeval.providers import HttpReply, Request, Usage
from trioeval.providers.http.adapter import AdapterSettings, HttpProvider, ServerEvent
from trioeval.providers.vendors.openai_other import EmbeddingAdapter, read_embedding, read_vector
from trioeval.providers.vendors.services import SERVICES
from trioeval.rates.throttle import Allowance, RateHint

OPENAI = SERVICES["openai"]
KEY = {"OPENAI_API_KEY": "sk-1234"}
VECTOR = [0.5, -0.25, 1.0]
PACKED = b64encode(struct.pack("<3f", *VECTOR)).decode()


def adapter(**config: Any) -> EmbeddingAdapter:
    read = read_embedding(OPENAI, "embed-1", config, KEY)
    assert isinstance(read, AdapterSettings)
    assert isinstance(read.adapter, EmbeddingAdapter)
    return read.adapter


def whole(vector: object, **more: Any) -> dict[str, Any]:
    usage = {"prompt_tokens": 4, "total_tokens": 4}
    data = [{"object": "embedding", "index": 0, "embedding": vector}]
    return {"object": "list", "data": data, "model": "embed-1", "usage": usage, **more}


def ok(data: object, **headers: str) -> HttpReply:
    return HttpReply(200, headers, json.dumps(data).encode())


def sent(request: Request, **config: Any) -> Any:
    return json.loads(adapter(**config).build(request).body or b"")


def test_the_prompt_is_the_text_whose_vector_is_asked_for() -> None:
    """Nothing but model and input, and the input is text whatever it looks like."""
    prompt = '[{"role": "user", "content": "Hi"}]'
    ready = adapter().build(Request(prompt=prompt))
    assert (ready.method, ready.url) == ("POST", "https://api.openai.com/v1/embeddings")
    assert ready.headers == {"authorization": "Bearer sk-1234"}
    assert json.loads(ready.body or b"") == {"model": "embed-1", "input": prompt}


def test_parameters_and_options_are_in_the_body() -> None:
    """Options of a call stand over the config, what is passed through over both."""
    config = {
        "dimensions": 3,
        "encodingFormat": "base64",
        "user": "u",
        "passthrough": {"a": 1, "user": "v"},
    }
    start = {"model": "embed-1", "input": "Hi"}
    assert sent(Request(prompt="Hi"), **config) == {
        **start,
        "dimensions": 3,
        "encoding_format": "base64",
        "user": "v",
        "a": 1,
    }
    options = {"dimensions": 2, "encoding_format": None, "passthrough": None}
    assert sent(Request(prompt="Hi", options=options), **config) == {
        **start,
        "dimensions": 2,
        "user": "u",
    }


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"dimensions": 0}, ".config.dimensions: must be a whole number of at least 1, got 0"),
        (
            {"encoding_format": "int8"},
            '.config.encoding_format: must be "float" or "base64", got "int8"',
        ),
        (
            {"passthrough": {"input": []}},
            '.config.passthrough: must be an object without input, got {"input": []}',
        ),
        (
            {"metrics": "ttft"},
            '.config.metrics: "metrics" is not a key\n  known are apiBaseUrl, apiHost, apiKey, apiKeyEnvar,',
        ),
    ],
)
def test_mistakes_in_the_config_are_told(config: Mapping[str, Any], told: str) -> None:
    """Each with its key, its value, and what would be right."""
    (problem,) = read_embedding(OPENAI, "embed-1", config, KEY)  # type: ignore[misc] # a list, or the test fails
    assert str(problem).startswith(told)


def test_wrong_options_are_not_sent() -> None:
    """The call fails before anything is sent."""
    with pytest.raises(ProviderError) as caught:
        sent(Request(prompt="Hi", options={"dimensions": "many"}))
    assert str(caught.value) == (
        "bad_request: the options of the call are not right: "
        'dimensions: must be a whole number of at least 1, got "many"'
    )


@pytest.mark.parametrize("vector", [VECTOR, PACKED])
def test_both_forms_of_a_vector_are_numbers(vector: object) -> None:
    """The output is the same list, with usage, hint and origin."""
    limits = {"x-ratelimit-limit-requests": "50", "x-ratelimit-remaining-requests": "49"}
    reply = adapter(price={"input": 10, "output": 0}).parse(ok(whole(vector), **limits))
    assert reply.output == VECTOR
    assert reply.usage == Usage(prompt=4, total=4)
    assert reply.cost == pytest.approx(40 / 1e6)
    assert reply.hint == RateHint(Allowance(50, 49))
    assert reply.finish_reason is None
    assert reply.metadata == {"http": {"status": 200, "headers": limits}, "model": "embed-1"}
    assert reply.raw["data"][0]["embedding"] == vector


def test_cost_is_known_only_with_price_and_tokens() -> None:
    """A total is that of the prompt: vectors have no tokens."""
    priced = adapter(price={"input": 10, "output": 0})
    assert adapter().parse(ok(whole(VECTOR))).cost is None
    assert priced.parse(ok(whole(VECTOR, usage=None))).cost is None
    reply = priced.parse(ok(whole(VECTOR, usage={"total_tokens": 3})))
    assert reply.usage == Usage(total=3)
    assert reply.cost == pytest.approx(30 / 1e6)


@pytest.mark.slow
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_a_packed_vector_is_the_vector(numbers: list[float]) -> None:
    """Every 32-bit float comes back as it was."""
    assert read_vector(b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()) == numbers


@pytest.mark.parametrize(
    "vector",
    [
        None,
        [],
        "",
        {},
        [1, "2"],
        [True],
        [float("nan")],
        [10**400],
        "no base64",
        "ü",
        "AAA=",
        b64encode(struct.pack("<f", float("inf"))).decode(),
    ],
)
def test_what_is_no_vector_is_malformed(vector: object) -> None:
    """Nothing is made up for a number that is missing."""
    with pytest.raises(ProviderError) as caught:
        adapter().parse(ok(whole(vector)))
    assert str(caught.value) == "malformed_reply: the reply holds no vector"


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (ok(whole(VECTOR, data=[])), "empty_reply: the reply holds no vector"),
        (ok(whole(VECTOR, data={})), "malformed_reply: the reply holds no vector"),
        (ok({}), "malformed_reply: the reply holds no vector"),
        (HttpReply(200, {}, b"<html>"), "malformed_reply: the reply is not JSON"),
        (
            HttpReply(401, {}, b'{"error": {"message": "bad key sk-1234"}}'),
            "auth: HTTP 401 Unauthorized: bad key [hidden]",
        ),
    ],
)
def test_what_is_no_answer_is_an_error(reply: HttpReply, told: str) -> None:
    """Each way of not answering has its kind."""
    with pytest.raises(ProviderError) as caught:
        adapter().parse(reply)
    assert str(caught.value) == told


def test_vectors_do_not_come_in_streams() -> None:
    """There is no first token to wait for."""
    assert not adapter().streams
    assert not adapter().speaks(ServerEvent("{}"))


@pytest.mark.slow
@given(
    st.sampled_from([200, 200, 400, 500]), damaged(whole(VECTOR)) | damaged(whole(PACKED)) | JSON
)
def test_any_json_is_read_or_fails_in_a_known_way(status: int, data: Any) -> None:
    """Nothing that a service says breaks the adapter."""
    reply = HttpReply(status, {}, json.dumps(data).encode())
    check_parse(adapter(price={"input": 1, "output": 0}), reply)


@pytest.mark.slow
@given(st.binary())
def test_any_bytes_are_read_or_fail_in_a_known_way(raw: bytes) -> None:
    """Not even their encoding is trusted."""
    check_parse(adapter(), HttpReply(200, {}, raw))


@pytest.mark.network
def test_a_vector_over_a_socket() -> None:
    """What was built is sent, and what comes is parsed."""
    data = json.dumps(whole(PACKED)).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(data)}\r\n\r\n".encode()

    async def ask(address: Any, client: Any) -> None:
        ready = adapter(apiBaseUrl=address.base_url)
        assert (await HttpProvider(ready, client)(Request(prompt="Hi"))).output == VECTOR

    with_raw_server(head + data, ask)
