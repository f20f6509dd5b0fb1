"""Vertex AI: places, models and access tokens; `test_every_vendor` tests what Gemini sends and reads."""

import json
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import trio
import trio.testing
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import crypt
from loopback import Answer, Seen, as_json, opened, serve

from trioeval.errors import ProviderError, SuiteError
from trioeval.providers import Request, resolve
from trioeval.providers.abilities import abilities
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.http.wire import HttpReply, HttpRequest
from trioeval.providers.resolve import ProviderSpec
from trioeval.providers.vendor_hosts import vendor_of
from trioeval.providers.vendors import vertex
from trioeval.providers.vendors.google_tokens import (
    AuthorizedClient,
    GoogleAccount,
    credentials_fault,
)
from trioeval.templates import Templates

PROJECT = {"GOOGLE_CLOUD_PROJECT": "proj-1"}
CLAUDE = "vertex:claude-sonnet-4-5@20250929"
TOKEN = "ya29.first-token"  # noqa: S105 - for the test
GEMINI_REPLY = {"candidates": [{"content": {"parts": [{"text": "4"}]}, "finishReason": "STOP"}]}
CLAUDE_REPLY = {
    "type": "message",
    "content": [{"type": "text", "text": "4"}],
    "stop_reason": "end_turn",
    "usage": {"input_tokens": 3, "output_tokens": 1},
}


@pytest.fixture(scope="module")
def private_key() -> str:
    """The text of a new RSA key."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def account(private_key: str, **more: str) -> dict[str, str]:
    return {
        "type": "service_account",
        "client_email": "robot@proj-2.iam.gserviceaccount.com",
        "private_key": private_key,
        "project_id": "proj-2",
        **more,
    }


def user(url: str) -> dict[str, str]:
    return {
        "type": "authorized_user",
        "client_id": "client-1",
        "client_secret": "client-secret-1",
        "refresh_token": "refresh-token-1",
        "token_uri": f"{url}/token",
    }


def spec_of(
    entry: str,
    environ: Mapping[str, str] = PROJECT,
    directory: Path = Path(),
    **config: Any,
) -> ProviderSpec:
    return resolve(
        entry, config, environ=environ, directory=directory, templates=Templates(), custom={}
    )


def problems(entry: str, environ: Mapping[str, str], directory: Path, **config: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        spec_of(entry, environ, directory, **config)
    return [str(problem) for problem in caught.value.problems]


def sent(spec: ProviderSpec, prompt: str = "Hi") -> tuple[str, Any]:
    assert isinstance(spec.settings, AdapterSettings)
    request = spec.settings.adapter.build(Request(prompt=prompt))
    return request.url, json.loads(request.body or b"")


# --- places and bodies ---------------------------------------------------------


@pytest.mark.parametrize(
    ("environ", "config", "place"),
    [
        (PROJECT, {}, "aiplatform.googleapis.com/v1/projects/proj-1/locations/global"),
        (
            {"VERTEX_PROJECT_ID": "p2", **PROJECT},
            {"region": "europe-west4"},
            "europe-west4-aiplatform.googleapis.com/v1/projects/p2/locations/europe-west4",
        ),
        (
            {"GOOGLE_CLOUD_LOCATION": "eu", **PROJECT},
            {"projectId": "p3"},
            "aiplatform.eu.rep.googleapis.com/v1/projects/p3/locations/eu",
        ),
        (
            {"VERTEX_REGION": "us", "GOOGLE_CLOUD_LOCATION": "eu", "VERTEX_API_VERSION": "v2"},
            {"projectId": "p3"},
            "aiplatform.us.rep.googleapis.com/v2/projects/p3/locations/us",
        ),
        (
            {"VERTEX_API_HOST": "proxy.example", **PROJECT},
            {"apiVersion": "v1beta1"},
            "proxy.example/v1beta1/projects/proj-1/locations/global",
        ),
    ],
)
def test_project_and_region_are_part_of_the_url(
    environ: dict[str, str], config: dict[str, Any], place: str
) -> None:
    """The config precedes the environment; the order of the variables is promptfoo's."""
    url, _ = sent(spec_of("vertex:chat:gemini-2.5-pro", environ, **config))
    assert url == f"https://{place}/publishers/google/models/gemini-2.5-pro:generateContent"


def test_an_api_key_needs_no_project() -> None:
    """Credentials in the config, and `expressMode: false`, precede a key of the environment."""
    environ = {"GOOGLE_API_KEY": "key-12345678"}
    spec = spec_of("vertex:gemini-2.5-pro", environ)
    host = "https://us-central1-aiplatform.googleapis.com"
    assert sent(spec)[0] == f"{host}/v1/publishers/google/models/gemini-2.5-pro:generateContent"
    assert spec.secrets == ("key-12345678",)
    spec = spec_of("vertex:gemini-2.5-pro", environ | PROJECT, expressMode=False)
    assert "/projects/proj-1/" in sent(spec)[0]
    assert isinstance(spec.settings, vertex.VertexSettings)


def test_claude_has_its_version_in_the_body_and_its_model_in_the_url() -> None:
    """The defaults are promptfoo's for Vertex: 512 tokens, 2048 with thinking, no temperature."""
    url, body = sent(spec_of(CLAUDE))
    place = "https://aiplatform.googleapis.com/v1/projects/proj-1/locations/global"
    assert url == f"{place}/publishers/anthropic/models/claude-sonnet-4-5@20250929:rawPredict"
    messages = [{"role": "user", "content": "Hi"}]
    version = "vertex-2023-10-16"
    assert body == {"anthropic_version": version, "max_tokens": 512, "messages": messages}
    spec = spec_of(
        CLAUDE,
        maxOutputTokens=9,
        topP=0.5,
        topK=3,
        anthropicVersion="v",
        systemInstruction={"parts": [{"text": "Be brief."}]},
    )
    assert sent(spec)[1] == {
        "anthropic_version": "v",
        "max_tokens": 9,
        "top_p": 0.5,
        "top_k": 3,
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": messages,
    }
    thinking = {"type": "adaptive"}
    assert sent(spec_of(CLAUDE, thinking=thinking))[1]["max_tokens"] == 2048
    url, body = sent(spec_of(CLAUDE, metrics="ttft"))
    assert url.endswith(":streamRawPredict")
    assert body["stream"] is True


def test_llama_is_called_with_chat_completions() -> None:
    """Its safety settings are on unless they are switched off."""
    url, body = sent(spec_of("vertex:llama-4-scout", maxOutputTokens=9, topK=3))
    host = "https://us-central1-aiplatform.googleapis.com"
    place = f"{host}/v1beta1/projects/proj-1/locations/us-central1/endpoints/openapi"
    assert url == f"{place}/chat/completions"
    safety = {"enabled": True, "llama_guard_settings": {}}
    assert body == {
        "model": "meta/llama-4-scout",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "top_k": 3,
        "extra_body": {"google": {"model_safety_settings": safety}},
    }
    off = {"safetySettings": {"enabled": False}}
    body = sent(spec_of("vertex:llama-4-scout", llamaConfig=off))[1]
    assert body["extra_body"]["google"]["model_safety_settings"]["enabled"] is False


def test_embeddings_have_their_own_region() -> None:
    """The environment does not change it, as in promptfoo."""
    spec = spec_of("vertex:embedding:text-embedding-005", PROJECT | {"VERTEX_REGION": "eu"})
    url, body = sent(spec)
    place = "/v1/projects/proj-1/locations/us-central1/publishers/google/models"
    assert url.endswith(f"{place}/text-embedding-005:predict")
    assert body == {"parameters": {"autoTruncate": False}, "instances": [{"content": "Hi"}]}
    assert abilities(spec.settings) == {"embedding"}


def test_listed_prices_apply_where_they_are_true() -> None:
    """Those of Claude are raised by regions."""
    for entry, region, has_price in (
        (CLAUDE, "global", True),
        (CLAUDE, "europe-west1", False),
        ("vertex:gemini-2.5-pro", "europe-west1", True),
    ):
        spec = spec_of(entry, region=region)
        assert (spec.metering.price is not None) == has_price
        assert spec.metering.is_paid


# --- credentials ---------------------------------------------------------------


def test_credentials_may_be_in_the_config_a_file_or_the_environment(
    tmp_path: Path, private_key: str
) -> None:
    """The project of a service account is used if none is named."""
    info = account(private_key)
    (tmp_path / "key.json").write_text(json.dumps(info))
    forms: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "key.json")}, {}),
        ({}, {"keyFilename": "key.json"}),
        ({}, {"credentials": "file://key.json"}),
        ({}, {"credentials": json.dumps(info)}),
        ({}, {"credentials": info}),
        ({}, {"googleAuthOptions": {"keyFilename": "key.json"}}),
    ]
    lanes = set()
    for environ, config in forms:
        spec = spec_of("vertex:gemini-2.5-pro", environ, tmp_path, **config)
        assert "/projects/proj-2/" in sent(spec)[0]
        lanes.add(spec.lane_key)
        assert private_key in spec.secrets
        assert "robot" not in spec.lane_key
    assert len(lanes) == 1


def test_a_login_of_gcloud_is_found(tmp_path: Path) -> None:
    """Without it, and without anything else, the machine's own account is used."""
    folder = tmp_path / ".config" / "gcloud"
    folder.mkdir(parents=True)
    (folder / "application_default_credentials.json").write_text(json.dumps(user("http://x")))
    spec = spec_of("vertex:gemini-2.5-pro", PROJECT | {"HOME": str(tmp_path)})
    assert {"client-secret-1", "refresh-token-1"} <= {*spec.secrets}
    assert spec_of("vertex:gemini-2.5-pro").secrets == ()


def test_mistakes_of_credentials_are_found_at_load(tmp_path: Path) -> None:
    """Their values are not shown."""
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "other.json").write_text('{"type": "external_account"}')
    name, entry = "GOOGLE_APPLICATION_CREDENTIALS", "vertex:gemini-2.5-pro"
    path = tmp_path / "none.json"
    missing = f'the environment variable {name}: cannot read "{path}": No such file or directory'
    found = problems(entry, PROJECT | {name: str(path)}, tmp_path)
    assert found == [f".config.credentials: {missing}"]
    kinds = 'service_account or authorized_user, got "external_account"'
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"keyFilename": "bad.json"}, f'.config.keyFilename: "{tmp_path}/bad.json" is not JSON'),
        (
            {"keyFilename": "other.json"},
            f".config.keyFilename: the credentials must be of type {kinds}",
        ),
        (
            {"credentials": "{secret"},
            ".config.credentials: must be a JSON object (its value is not shown)",
        ),
        (
            {"credentials": {"type": "service_account"}},
            ".config.credentials: the credentials have no client_email and no private_key",
        ),
    )
    for config, message in cases:
        assert problems(entry, PROJECT, tmp_path, **config) == [message]
    assert "outside of" in problems(entry, PROJECT, tmp_path, keyFilename="../key.json")[0]
    assert credentials_fault([]) == "are not a JSON object"


@pytest.mark.parametrize(
    ("written", "meant"),
    [("regoin", "region"), ("projctId", "projectId"), ("credentails", "credentials")],
)
@pytest.mark.parametrize("entry", ["vertex:gemini-2.5-pro", "vertex:claude-sonnet-4"])
def test_a_misspelt_key_of_the_place_is_not_sent(
    entry: str, written: str, meant: str, tmp_path: Path
) -> None:
    """Unknown keys go into the body, and must not take credentials there."""
    environ = PROJECT | {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "none.json")}
    found = problems(entry, environ, tmp_path, **{written: "a"})
    assert f'.config.{written}: "{written}" is not a key\n  did you mean "{meant}"?' in found


def test_keys_and_tokens_belong_to_google() -> None:
    """An untrusted suite cannot send them elsewhere."""
    for variable in ("VERTEX_API_KEY", "GOOGLE_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS"):
        vendor = vendor_of(variable)
        assert vendor is not None
        assert vendor.owns("europe-west1-aiplatform.googleapis.com")
        assert vendor.owns("aiplatform.eu.rep.googleapis.com")
        assert not vendor.owns("aiplatform.googleapis.com.example")
    spec = spec_of("vertex:gemini-2.5-pro", apiHost="other.example")
    assert spec.settings.endpoint is not None
    assert spec.settings.endpoint.sent_variables == ("GOOGLE_APPLICATION_CREDENTIALS",)


def test_a_file_named_by_the_suite_is_a_choice_of_credentials(
    tmp_path: Path, private_key: str
) -> None:
    """An untrusted suite may not make it."""
    (tmp_path / "key.json").write_text(json.dumps(account(private_key)))
    for key, value in (("keyFilename", "key.json"), ("credentials", "file://key.json")):
        spec = spec_of("vertex:gemini-2.5-pro", {}, tmp_path, **{key: value})
        assert [*spec.settings.credential_choices] == [key]


# --- tokens, over sockets ------------------------------------------------------


def token_of(number: int) -> Answer:
    return as_json({"access_token": f"{TOKEN}-{number}", "expires_in": 3600})


def decoded(part: str) -> Any:
    return json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))


@pytest.mark.network
def test_a_service_account_signs_a_request_for_a_token(private_key: str) -> None:
    """The token is used for all calls until it ends; concurrent first calls request one."""
    tokens = 0

    def respond(seen: Seen) -> Answer:
        nonlocal tokens
        if seen.target == "/token":
            tokens += 1
            return token_of(tokens)
        return as_json(CLAUDE_REPLY)

    async def main() -> list[Seen]:
        async with serve(respond) as server:
            info = account(private_key, token_uri=f"{server.url}/token")
            spec = spec_of(CLAUDE, {}, credentials=info, apiBaseUrl=server.url)
            async with opened(spec) as provider, trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(provider, Request(prompt="Hi"))
        return server.seen

    first, *others = trio.run(main)
    assert first.target == "/token"
    form = {name: one for name, (one,) in parse_qs(first.body.decode()).items()}
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    head, claims, signature = form["assertion"].split(".")
    assert decoded(head)["alg"] == "RS256"
    assert decoded(claims)["iss"] == "robot@proj-2.iam.gserviceaccount.com"
    assert decoded(claims)["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert decoded(claims)["exp"] - decoded(claims)["iat"] == 3600
    key = serialization.load_pem_private_key(private_key.encode(), None).public_key()
    public = key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    verifier = crypt.RSAVerifier.from_string(public)  # type: ignore[no-untyped-call]
    padded = signature + "=" * (-len(signature) % 4)
    assert verifier.verify(f"{head}.{claims}".encode(), urlsafe_b64decode(padded))
    assert len(others) == 3
    for seen in others:
        assert seen.headers["authorization"] == f"Bearer {TOKEN}-1"
        assert "anthropic-version" not in seen.headers


def test_a_token_is_replaced_before_it_ends() -> None:
    """A tenth of its lifetime is left, at most a minute."""
    tokens = 0

    class Client:
        async def send(self, request: HttpRequest, *, on_part: object = None) -> HttpReply:  # noqa: ARG002 - no streams
            nonlocal tokens
            await trio.lowlevel.checkpoint()
            if not request.url.endswith("/token"):
                return HttpReply(200, {}, request.headers["authorization"].encode())
            tokens += 1
            data = {"access_token": f"{TOKEN}-{tokens}", "expires_in": 100}
            return HttpReply(200, {}, json.dumps(data).encode())

    async def main() -> None:
        client = AuthorizedClient(Client(), GoogleAccount(info=user("http://x")), ())
        for instant, count in ((0.0, 1), (89.9, 1), (90.0, 2)):
            await trio.sleep_until(instant)
            reply = await client.send(HttpRequest("http://y", {}, b""))
            assert tokens == count
            assert reply.body == b"Bearer [hidden]"

    async def at_zero() -> None:
        assert trio.current_time() == 0
        await main()

    trio.run(at_zero, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.network
def test_a_revoked_token_is_requested_again() -> None:
    """It is not used after status 401, and not shown although the service repeats it."""
    tokens = 0

    def respond(seen: Seen) -> Answer:
        nonlocal tokens
        if seen.target == "/token":
            tokens += 1
            return token_of(tokens)
        if tokens == 1:
            return as_json({"error": {"code": 401, "message": f"bad {TOKEN}-1"}}, 401)
        return as_json(GEMINI_REPLY)

    async def main() -> list[Seen]:
        async with serve(respond) as server:
            spec = spec_of(
                "vertex:gemini-2.5-pro", credentials=user(server.url), apiBaseUrl=server.url
            )
            async with opened(spec) as provider:
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="Hi"))
                assert caught.value.kind == "auth"
                assert TOKEN not in f"{caught.value} {caught.value.body_excerpt}"
                assert (await provider(Request(prompt="Hi"))).output == "4"
        return server.seen

    seen = trio.run(main)
    assert [one.target.rpartition("/")[2] for one in seen] == [
        "token",
        "gemini-2.5-pro:generateContent",
    ] * 2
    assert seen[3].headers["authorization"] == f"Bearer {TOKEN}-2"
    assert parse_qs(seen[0].body.decode()) == {
        "grant_type": ["refresh_token"],
        "client_id": ["client-1"],
        "client_secret": ["client-secret-1"],
        "refresh_token": ["refresh-token-1"],
    }


@pytest.mark.network
def test_the_machine_may_have_an_account() -> None:
    """Its metadata server gives tokens."""

    def respond(seen: Seen) -> Answer:
        if seen.target.startswith("/computeMetadata/"):
            return token_of(1)
        return as_json({"predictions": [{"embeddings": {"values": [0.5, 1]}}]})

    async def main() -> None:
        async with serve(respond) as server:
            environ = PROJECT | {"GCE_METADATA_HOST": server.url.removeprefix("http://")}
            spec = spec_of("vertex:embeddings:text-embedding-005", environ, apiBaseUrl=server.url)
            async with opened(spec) as provider:
                assert (await provider(Request(prompt="Hi"))).output == [0.5, 1.0]
        token, _ = server.seen
        assert (token.method, token.headers["metadata-flavor"]) == ("GET", "Google")

    trio.run(main)


@pytest.mark.network
def test_a_machine_without_an_account_says_what_to_do() -> None:
    """Nothing listens at the address."""

    async def main() -> None:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        port = listener.socket.getsockname()[1]
        await listener.aclose()
        spec = spec_of(
            "vertex:gemini-2.5-pro", PROJECT | {"GCE_METADATA_HOST": f"127.0.0.1:{port}"}
        )
        async with opened(spec) as provider:
            with pytest.raises(ProviderError) as caught:
                await provider(Request(prompt="Hi"))
        assert caught.value.kind == "auth"
        assert "gcloud auth application-default login" in str(caught.value)

    trio.run(main)


@pytest.mark.network
@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (
            as_json({"error": "invalid_grant", "error_description": "no refresh-token-1"}, 400),
            "auth",
        ),
        (as_json({"error": "unavailable"}, 503), "server"),
        (as_json({}), "malformed_reply"),
        (Answer(200, b"<html>"), "malformed_reply"),
        (None, "attempt_timeout"),
    ],
)
def test_failures_of_the_token_have_their_kinds(answer: Answer | None, kind: str) -> None:
    """No model is called, and no secret is shown."""

    async def main() -> None:
        async with serve(lambda _: answer) as server:
            config: dict[str, Any] = {"timeoutMs": 50} if answer is None else {}
            spec = spec_of(CLAUDE, credentials=user(server.url), **config)
            async with opened(spec) as provider:
                with pytest.raises(ProviderError) as caught:
                    await provider(Request(prompt="Hi"))
        assert caught.value.kind == kind
        assert [seen.target for seen in server.seen] == ["/token"]
        assert "refresh-token-1" not in f"{caught.value} {caught.value.body_excerpt}"

    trio.run(main)


@pytest.mark.network
def test_a_cancelled_call_does_not_keep_others_from_the_token() -> None:
    """The next call requests the token itself."""

    async def main() -> None:
        arrived = trio.Event()

        def respond(seen: Seen) -> Answer | None:
            if seen.target == "/token" and not arrived.is_set():
                arrived.set()
                return None
            return token_of(1) if seen.target == "/token" else as_json(GEMINI_REPLY)

        with trio.fail_after(30):
            async with serve(respond) as server:
                spec = spec_of(
                    "vertex:gemini-2.5-pro", credentials=user(server.url), apiBaseUrl=server.url
                )
                async with opened(spec) as provider:
                    async with trio.open_nursery() as calls:
                        calls.start_soon(provider, Request(prompt="Hi"))
                        await arrived.wait()
                        calls.cancel_scope.cancel()
                    assert (await provider(Request(prompt="Hi"))).output == "4"

    trio.run(main)


@pytest.mark.network
def test_a_broken_private_key_fails_before_any_request() -> None:
    """It is refused when it is used for the first time."""

    async def main() -> None:
        spec = spec_of(CLAUDE, credentials=account("no key"))
        async with opened(spec) as provider:
            with pytest.raises(ProviderError, match="create a new key") as caught:
                await provider(Request(prompt="Hi"))
        assert caught.value.kind == "auth"

    trio.run(main)
