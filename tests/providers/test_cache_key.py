"""Two requests have the same key if and only if everything that determines their replies is equal."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import SuiteError
from trioeval.providers import Reply, Request, open_providers, resolve
from trioeval.providers.cache_key import CacheIdentity, name_in
from trioeval.providers.http.wire import HttpRequest
from trioeval.templates import Templates

ENVIRON = {
    "OPENAI_API_KEY": "sk-one-0123456789",
    "ANTHROPIC_API_KEY": "sk-ant-0123456789",
    "GOOGLE_API_KEY": "goog-0123456789ab",
    "AWS_ACCESS_KEY_ID": "AKIA0123456789ABCDEF",
    "AWS_SECRET_ACCESS_KEY": "very-secret-0123456789",
    "AWS_REGION": "eu-west-1",
}


def key(
    entry_id: str,
    config: Mapping[str, Any] | None = None,
    *,
    environ: Mapping[str, str] = ENVIRON,
    custom: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    **fields: Any,
) -> bytes | None:
    """Return the key of a request to one provider."""

    async def main() -> bytes | None:
        spec = resolve(
            entry_id,
            config or {},
            environ=environ,
            directory=folder or Path(),
            templates=Templates(),
            custom=custom or {},
        )
        async with open_providers([spec], Templates()) as [provider]:
            found = provider.cache_key(Request(**{"prompt": "Hi", **fields}))
            assert found is None or provider.is_cacheable
            return found

    return trio.run(main)


SERVICES = [
    ("openai:chat:gpt-4.1", {}),
    ("openai:responses:gpt-4.1", {}),
    ("openai:responses:gpt-4.1", {"background": True}),
    ("openai:embedding:text-embedding-3-small", {}),
    ("openai:moderation:omni-moderation-latest", {}),
    ("anthropic:claude-opus-4", {"max_tokens": 10}),
    ("google:gemini-2.5-flash", {}),
    ("google:embedding:gemini-embedding-001", {}),
    ("bedrock:amazon.nova-lite-v1:0", {}),
    ("http://host.example/ask", {"body": {"q": "{{prompt}}"}}),
]


@pytest.mark.parametrize(("entry_id", "config"), SERVICES, ids=lambda it: str(it)[:40])
def test_every_service_has_distinct_keys_for_distinct_requests(
    entry_id: str, config: Mapping[str, Any]
) -> None:
    """Keys differ by prompt and repeat, but not by position in the suite or unsent variables."""
    first = key(entry_id, config)
    assert first is not None
    assert len(first) > 32
    same = {
        key(entry_id, config, test_idx=3, prompt_idx=2, vars={"a": 1}),
        key(
            entry_id,
            {**config, "timeoutMs": 1, "maxRetries": 3, "price": {"input": 1, "output": 2}},
        ),
    }
    assert same == {first}
    others = {key(entry_id, config, prompt="Ho"), key(entry_id, config, repeat_index=1)}
    assert first not in others
    assert len(others) == 2


@pytest.mark.parametrize(
    "entry_id", ["echo", "sequence", "sim:m", "mine", "exec:date", "python:code.py"]
)
def test_providers_that_are_not_services_are_not_cached(entry_id: str, tmp_path: Path) -> None:
    """Other providers cost nothing, or may do anything, and are not cached."""
    (tmp_path / "code.py").write_text(
        "def call_api(prompt, options, context): return {'output': 1}"
    )

    async def mine(_request: Request) -> Reply:  # noqa: ASYNC124 - as providers are
        return Reply(output="x")

    config = {"inputs": ["a"]} if entry_id == "sequence" else {}
    assert key(entry_id, config, custom={"mine": mine}, folder=tmp_path) is None


def test_a_callable_may_define_its_key() -> None:
    """A callable that implements the protocol is cached like a service."""

    class Mine:
        async def __call__(self, request: Request) -> Reply:
            return Reply(output=request.prompt)

        def cache_identity(self, request: Request) -> CacheIdentity:
            sent = HttpRequest("mine:", {}, request.prompt.encode())
            return CacheIdentity(name="mine", service="mine", request=sent)

    found = key("mine", custom={"mine": Mine()})
    assert found is not None
    assert name_in(found) == "mine"
    assert key("mine", custom={"mine": Mine()}, prompt="Ho") != found


CHAT = "openai:chat:gpt-4.1"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({}, {"temperature": 0.5}),
        ({}, {"headers": {"x-variant": "b"}}),
        ({}, {"apiBaseUrl": "https://other.example/v1"}),
        ({}, {"organization": "org-1"}),
        ({}, {"showThinking": True}),
        ({}, {"metrics": ["ttft"]}),
        ({}, {"apiKey": "sk-two-0123456789"}),
        ({"headers": {"x-api-token": "one"}}, {"headers": {"x-api-token": "two"}}),
        ({"response_format": {"type": "json_object"}}, {}),
    ],
    ids=str,
)
def test_everything_that_determines_a_reply_is_in_the_key(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> None:
    """Body, headers, URL, account and the reading of the reply are part of the key."""
    try:
        assert key(CHAT, one) != key(CHAT, other)
    except SuiteError as error:
        pytest.fail(str(error))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"temperature": 0, "max_tokens": 5}, {"max_tokens": 5, "temperature": 0}),
        ({"headers": {"User-Agent": "a", "X-Request-ID": "1"}}, {}),
        ({"apiBaseUrl": "https://API.openai.com:443/v1/"}, {}),
        ({"apiKey": ENVIRON["OPENAI_API_KEY"]}, {}),
        ({"showThinking": False}, {}),
    ],
    ids=str,
)
def test_nothing_else_is_in_the_key(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """The order of a config, tracing headers and equal spellings do not change the key."""
    assert key(CHAT, one) == key(CHAT, other)


def test_options_of_a_call_count_like_the_config() -> None:
    """Options of a call count like the config, also those for reading the reply; invalid ones have no key."""
    assert key(CHAT, options={"temperature": 0.5}) == key(CHAT, {"temperature": 0.5})
    assert key(CHAT, options={"temprature": 1}) is None


def test_keys_that_are_not_ours_count() -> None:
    """They are part of the body; a key without an effect is not."""
    assert key(CHAT, {"logit_bias": {"1": 2}}) != key(CHAT)
    assert key(CHAT, {"logit_bias": {"1": 2}}) == key(
        CHAT, {"passthrough": {"logit_bias": {"1": 2}}}
    )
    assert key(CHAT, {"functionToolCallbacks": {}}) == key(CHAT)


def test_an_sdk_sends_the_request_of_the_plain_provider() -> None:
    """An SDK and the plain provider have equal keys."""
    pytest.importorskip("openai")
    assert key("openai-sdk:chat:gpt-4.1") == key(CHAT)


def test_the_order_of_a_schemas_properties_is_in_the_key() -> None:
    """Models write properties in the order of the schema; the order of other members does not matter."""

    def form(*names: str, first: str = "type") -> dict[str, Any]:
        members = {name: {"type": "string"} for name in names}
        schema = {"type": "object", "properties": members}
        ordered = {first: schema[first], **schema}
        inner = {"name": "n", "schema": ordered}
        return {"response_format": {"type": "json_schema", "json_schema": inner}}

    assert key(CHAT, form("a", "b")) != key(CHAT, form("b", "a"))
    assert key(CHAT, form("a", "b")) == key(CHAT, form("a", "b", first="properties"))


HTTP = "http://host.example/ask"


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ({"body": "{{prompt}} {{a}}"}, {"body": "{{prompt}} 1"}, True),
        ({"body": {"q": "{{prompt}}", "n": 1}}, {"body": {"n": 1, "q": "{{prompt}}"}}, True),
        ({"auth": {"type": "bearer", "token": "t-0123456789"}}, {}, False),
        (
            {"auth": {"type": "bearer", "token": "t-0123456789"}},
            {"auth": {"type": "bearer", "token": "u-0123456789"}},
            False,
        ),
        (
            {"queryParams": {"api_key": "one-012345678"}},
            {"queryParams": {"api_key": "two-012345678"}},
            False,
        ),
        ({"transformResponse": "json.a"}, {"transformResponse": "json.b"}, False),
        ({"transformRequest": "say {{prompt}}"}, {"body": "say {{prompt}}"}, True),
        ({"validateStatus": "status < 500"}, {}, False),
        ({"method": "GET"}, {}, False),
    ],
    ids=str,
)
def test_a_described_service_is_keyed_by_its_rendered_request(
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    is_same: bool,  # noqa: FBT001
) -> None:
    """The rendered request is in the key, not the form of the config."""
    body = {"body": "{{prompt}}", "method": "POST"}
    keys = [key(HTTP, {**body, **config}, vars={"a": 1}) for config in (one, other)]
    assert None not in keys
    assert (keys[0] == keys[1]) is is_same


SEE_VARIABLES = [
    "context.vars.a",
    "(json, text, context) => context.vars.a",
    "(json, text, ctx) => ctx.vars.a",
    "(json, text, String) => String.vars.a",
    "(json, ...rest) => rest[1].vars.a",
    "(...json) => json[2].vars.a",
    "(json, text = context.vars.a) => text",
    "function () { return arguments[2].vars.a }",
    "arguments[0]",
    "written",
    "eval('con' + 'text.vars.a')",
    r"cont\u0065xt.vars.a",
    "`${context.vars.a}`",
    "(json.list.constructor.of)",
    "(json.list['constructor']['of'])",
    "json.list.concat.bind(json.list)",
    "json['con' + 'structor']",
    "text.replace(/'/, context.vars.a + /'/)",
    "text.replace('a', json => json)",
]
SEE_NONE = [
    "json",
    "json.a",
    "text",
    "$.a",
    "jmespath: a",
    "json.list.constructor",
    "json.a.trim()",
    "json.choices[0]['message'].content ?? text",
    "(json) => json.a",
    "(json, text) => JSON.stringify(json.a, null, 2) + text.length",
    "data => data.a === 'context' ? 'it is the context' : data.b",
]


@pytest.mark.parametrize("transform", [*SEE_VARIABLES, *SEE_NONE])
def test_a_transform_that_may_read_variables_has_them_in_its_key(transform: str) -> None:
    """Other transforms do not."""
    config = {"body": "{{prompt}}", "transformResponse": transform}
    keys = [key(HTTP, config, vars={"a": value}) for value in (1, 2)]
    assert None not in keys
    assert (keys[0] == keys[1]) is (transform in SEE_NONE)


def test_a_script_before_the_request_is_keyed_by_its_arguments() -> None:
    """The result of the script is unknown before it runs, so its arguments are in the key."""
    config = {"body": {"q": "{{prompt}}"}, "transformRequest": "(prompt) => prompt + '!'"}
    first = key(HTTP, config)
    assert first is not None
    assert key(HTTP, config) == first
    assert key(HTTP, config, prompt="Ho") != first
    assert key(HTTP, config, vars={"a": 1}) != first
    assert key(HTTP, {**config, "transformRequest": "(prompt) => prompt"}) != first


def test_functions_in_files_and_sent_files_are_not_cached(tmp_path: Path) -> None:
    """Files may change, and the inputs of a function are unknown, so neither is cached."""
    (tmp_path / "t.py").write_text("def transform(json, text, context): return text")
    (tmp_path / "a.txt").write_text("a")
    function = {"body": "{{prompt}}", "transformResponse": "file://t.py"}
    part = {"kind": "file", "name": "f", "source": {"type": "path", "path": "a.txt"}}
    assert key(HTTP, function, folder=tmp_path) is None
    assert key(HTTP, {"multipart": {"parts": [part]}}, folder=tmp_path) is None


def test_the_text_of_a_key_is_the_documented_one() -> None:
    """The text of a key changes only together with its format number, because entries outlive versions."""
    sent = HttpRequest(
        "https://host.example/v1/chat?k=sk-secret-012345",
        {"x-b": "2", "authorization": "Bearer sk-secret-012345", "user-agent": "me"},
        b'{"b": [1.0, 1], "a": {"properties": {"z": 1, "y": "sk-secret-012345"}}}',
    )
    question = CacheIdentity(
        name="openai:m",
        service="openai",
        request=sent,
        account="sk-secret-012345",
        reading={"showThinking": True},
    )
    text = question.text(secrets=["sk-secret-012345", "short"], repeat=2)
    assert "sk-secret" not in text
    secret, header = (
        f"sha256:{hashlib.sha256(one.encode()).hexdigest()}"
        for one in ("sk-secret-012345", "Bearer sk-secret-012345")
    )
    assert text == (
        f'{{"account":"{secret}",'
        f'"content":{{"json":{{"a":{{"properties":{{"z":1,"y":"{secret}"}}}},"b":[1.0,1]}}}},'
        '"format":1,'
        f'"headers":{{"authorization":"{header}","x-b":"2"}},'
        '"method":"POST",'
        '"reading":{"showThinking":true},'
        '"repeat":2,'
        '"service":"openai",'
        f'"url":"https://host.example/v1/chat?k={secret}"}}'
    )
    found = question.key(secrets=["sk-secret-012345"], repeat=2)
    assert found == hashlib.sha256(text.encode()).digest() + b"openai:m"


def test_header_names_are_case_insensitive() -> None:
    """This applies to ignored and to secret headers."""

    def text(headers: Mapping[str, str]) -> str:
        sent = HttpRequest("http://h", headers, None)
        return CacheIdentity(name="", service="", request=sent).text()

    low = text({"authorization": "Bearer a", "x-b": "2"})
    assert text({"X-B": "2", "Authorization": "Bearer a", "X-Request-Id": "1"}) == low
    assert text({"X-B": "3", "x-b": "2"}) != text({"X-B": "4", "x-b": "2"})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES, VALUES, st.randoms(use_true_random=False))
def test_equal_bodies_have_equal_texts(one: Any, other: Any, random: Any) -> None:
    """The order of members does not matter, and different data have different texts."""

    def text(data: Any) -> str:
        request = HttpRequest("http://h", {}, json.dumps(data).encode())
        return CacheIdentity(name="", service="", request=request).text()

    def shuffled(data: Any) -> Any:
        match data:
            case dict():
                names = random.sample(list(data), len(data))
                return {name: shuffled(data[name]) for name in names}
            case list():
                return [shuffled(part) for part in data]
            case _:
                return data

    assert text(shuffled(one)) == text(one)
    # json.dumps distinguishes True from 1, unlike ==
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (text(one) == text(other)) is same


@pytest.mark.parametrize("body", [b"\xff\xfe", b"no json", b"[" * 100_000, b"", None])
def test_a_body_that_is_not_json_is_keyed_unchanged(body: bytes | None) -> None:
    """A body that is not JSON is in the key by its digest."""
    request = HttpRequest("http://h", {}, body)
    content = json.loads(CacheIdentity(name="", service="", request=request).text())["content"]
    assert content == (None if body is None else {"sha256": hashlib.sha256(body).hexdigest()})
