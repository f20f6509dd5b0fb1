import json
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from trioeval.errors import Problem, SuiteError
from trioeval.providers import Request
from trioeval.providers.config import EntryContext, ProviderSettings
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.http.endpoint import Endpoint, Service
from trioeval.providers.resolve import MODULES, resolve
from trioeval.providers.vendors.openai import read
from trioeval.providers.vendors.services import SERVICES
from trioeval.templates import Templates

KEY = "sk-1234"


def environ(service: Service) -> dict[str, str]:
    """Return the variables that a service needs."""
    if service.default_url is not None:
        url = {}
    elif service.url_template is not None:
        variables = (part.variable for part in service.parts.values())
        url = {name: "mine.example" for name in variables if name is not None}
    else:
        url = {service.url_variables[0]: "https://mine.example"}
    return {service.key_variables[0]: KEY, **url}


def surroundings(environ: Mapping[str, str]) -> EntryContext:
    return EntryContext(environ=environ, directory=Path(), templates=Templates())


def settings(entry_id: str, environ: Mapping[str, str], **config: Any) -> ProviderSettings:
    prefix, _, rest = entry_id.partition(":")
    found = read(prefix, rest, config, surroundings(environ))
    assert not isinstance(found, list), found
    return found


def problems(entry_id: str, environ: Mapping[str, str], **config: Any) -> list[Problem]:
    prefix, _, rest = entry_id.partition(":")
    found = read(prefix, rest, config, surroundings(environ))
    assert isinstance(found, list), found
    return found


def endpoint(entry_id: str, environ: Mapping[str, str], **config: Any) -> Endpoint:
    found = settings(entry_id, environ, **config)
    assert isinstance(found, AdapterSettings)
    return found.adapter.endpoint


def url(entry_id: str, environ: Mapping[str, str], **config: Any) -> str:
    """Return the URL of a request."""
    found = settings(entry_id, environ, **config)
    assert isinstance(found, AdapterSettings)
    return found.adapter.build(Request(prompt="Hi")).url


def is_loopback(url: str) -> bool:
    try:
        return ip_address(urlsplit(url).hostname or "").is_loopback
    except ValueError:
        return False


@pytest.mark.parametrize("prefix", SERVICES)
def test_every_service_can_be_reached(prefix: str) -> None:
    """Its prefix leads to it, over HTTPS or on this machine, with its own key alone."""
    service = SERVICES[prefix]
    assert service.family == prefix
    assert MODULES[prefix] == "vendors.openai"
    spec = resolve(
        f"{prefix}:m:1",
        {},
        environ={**environ(service), "OPENAI_ORGANIZATION": "acme"},
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    assert isinstance(spec.settings, AdapterSettings)
    found = spec.settings.adapter.endpoint
    assert found.model == "m:1"
    assert found.base_url.startswith("https://") or is_loopback(found.base_url)
    carried = f"Bearer {KEY}" if service.key_header == "authorization" else KEY
    organization = {"openai-organization": "acme"} if prefix == "openai" else {}
    assert found.headers == {service.key_header: carried, **organization}
    assert spec.secrets == (KEY,)
    assert KEY not in repr(spec)
    assert KEY not in spec.lane_key


@pytest.mark.parametrize("prefix", SERVICES)
def test_a_service_on_this_machine_needs_no_key_and_any_other_does(prefix: str) -> None:
    """Local servers work without any setting."""
    service = SERVICES[prefix]
    runs_here = is_loopback(service.default_url or "https://mine.example")
    if not (service.is_router and service.default_url is None):
        assert service.needs_key is not runs_here
    config = {} if service.default_url else {"apiBaseUrl": "https://mine.example"}
    if service.needs_key:
        (problem,) = problems(f"{prefix}:m", {}, **config)
        assert problem.message == "this provider needs an API key"
        assert service.key_variables[0] in (problem.hint or "")
    else:
        assert endpoint(f"{prefix}:m", {}, **config).headers == {}


@pytest.mark.parametrize("prefix", SERVICES)
def test_models_share_a_lane_if_they_share_limits(prefix: str) -> None:
    """Other models have separate lanes."""
    service = SERVICES[prefix]
    one, other = (endpoint(f"{prefix}:{model}", environ(service)) for model in "ab")
    assert (one.lane_key != other.lane_key) is service.limits_per_model


def test_keys_and_organizations_have_separate_lanes() -> None:
    """Other settings of the entries do not matter."""
    (one, same, *others) = (
        endpoint("openai:m", {"OPENAI_API_KEY": "sk-1"}),
        endpoint("openai:chat:m", {}, apiKey="sk-1", temperature=1),
        endpoint("openai:m", {"OPENAI_API_KEY": "sk-2"}),
        endpoint("openai:m", {}, apiKey="sk-1", organization="acme"),
        endpoint("openai:m", {}, apiKey="sk-1", project="moon"),
        endpoint("groq:m", {}, apiKey="sk-1"),
    )
    assert one.lane_key == same.lane_key
    assert len({one.lane_key, *(other.lane_key for other in others)}) == 5


@pytest.mark.parametrize("name", ["organization", "project"])
def test_only_openai_has_organisations_and_projects(name: str) -> None:
    """Elsewhere they have no effect, which is reported."""
    assert endpoint("openai:m", {}, apiKey=KEY, **{name: "x"}).headers[f"openai-{name}"] == "x"
    found = settings("groq:m", {}, apiKey=KEY, **{name: "x"})
    assert found.warnings == (
        Problem(f".config.{name}", f'"{name}" has no effect', "groq has none"),
    )
    assert found.lane_key == settings("groq:m", {}, apiKey=KEY).lane_key


AZURE = {"AZURE_OPENAI_API_KEY": KEY, "AZURE_OPENAI_ENDPOINT": "https://a.openai.azure.com/"}
AZURE_URL = "https://a.openai.azure.com/openai"


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, f"{AZURE_URL}/v1/chat/completions"),
        ({"apiBaseUrl": AZURE_URL}, f"{AZURE_URL}/v1/chat/completions"),
        ({"apiBaseUrl": f"{AZURE_URL}/v1/"}, f"{AZURE_URL}/v1/chat/completions"),
        ({"apiHost": "a.openai.azure.com"}, f"{AZURE_URL}/v1/chat/completions"),
        (
            {"apiVersion": "2024-10-21"},
            f"{AZURE_URL}/deployments/my%2Fone/chat/completions?api-version=2024-10-21",
        ),
        (
            {"api_version": "a&b", "apiBaseUrl": f"{AZURE_URL}/v1"},
            f"{AZURE_URL}/deployments/my%2Fone/chat/completions?api-version=a%26b",
        ),
    ],
)
def test_azure_is_called_with_or_without_a_version(
    config: Mapping[str, Any], expected: str
) -> None:
    """With a version the deployment is in the URL; without one, in the body."""
    assert url("azure:my/one", AZURE, **config) == expected


def test_azure_takes_a_token_in_place_of_a_key() -> None:
    """The token then identifies the lane."""
    one, other = (
        endpoint("azure:m", {}, apiHost="a", headers={"Authorization": f"Bearer {token}"})
        for token in ("t-1", "t-2")
    )
    assert one.headers == {"authorization": "Bearer t-1"}
    assert "t-1" in one.secrets
    assert one.lane_key != other.lane_key


@pytest.mark.parametrize(
    ("entry_id", "environ", "expected"),
    [
        ("ollama:llama3:8b", {}, "http://127.0.0.1:11434/v1/chat/completions"),
        (
            "ollama:llama3:8b",
            {"OLLAMA_BASE_URL": "http://10.0.0.1:11434"},
            "http://10.0.0.1:11434/v1/chat/completions",
        ),
        (
            "databricks:m",
            {"DATABRICKS_TOKEN": KEY, "DATABRICKS_HOST": "https://d.example"},
            "https://d.example/serving-endpoints/chat/completions",
        ),
        (
            "openai-api:my-cloud:org/m:1",
            {"MY_CLOUD_API_KEY": KEY, "MY_CLOUD_BASE_URL": "https://c.example/v2"},
            "https://c.example/v2/chat/completions",
        ),
        (
            "openai-api:my-cloud:embedding:m",
            {"MY_CLOUD_API_KEY": KEY, "MY_CLOUD_BASE_URL": "https://c.example/v2"},
            "https://c.example/v2/embeddings",
        ),
        ("openai:gpt-5.6", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1/responses"),
        ("openai:gpt-5", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1/chat/completions"),
        (
            "openai:chat:gpt-5.6",
            {"OPENAI_API_KEY": KEY},
            "https://api.openai.com/v1/chat/completions",
        ),
        ("openai:responses:m", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1/responses"),
        ("openai:embeddings:m", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1/embeddings"),
        ("openai:embedding:m", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1/embeddings"),
        ("openai:moderation:m", {"OPENAI_API_KEY": KEY}, "https://api.openai.com/v1/moderations"),
        ("azure:gpt-5.6", AZURE, f"{AZURE_URL}/v1/responses"),
        (
            "openrouter:openai/gpt-5.6",
            {"OPENROUTER_API_KEY": KEY},
            "https://openrouter.ai/api/v1/chat/completions",
        ),
        (
            "groq:moderation-tool:1",
            {"GROQ_API_KEY": KEY},
            "https://api.groq.com/openai/v1/chat/completions",
        ),
    ],
)
def test_the_id_determines_kind_and_endpoint(
    entry_id: str, environ: Mapping[str, str], expected: str
) -> None:
    """Kinds may be omitted; then the names of OpenAI's own models decide."""
    assert url(entry_id, environ) == expected


def test_a_version_of_azure_is_one_of_chat_completions() -> None:
    """A model of another endpoint is called there only if the id says so."""
    config = {"apiVersion": "2024-10-21"}
    assert url("azure:gpt-5.6", AZURE, **config).endswith(
        "/deployments/gpt-5.6/chat/completions?api-version=2024-10-21"
    )
    assert problems("azure:responses:gpt-5.6", AZURE, **config) == [
        Problem(
            ".config.apiVersion",
            "responses of azure have no API version",
            "leave it out",
        )
    ]


@pytest.mark.parametrize(
    ("entry_id", "config", "expected"),
    [
        ("groq:", {}, [Problem(".id", '"groq:" has no model name', "write groq:<model>")]),
        (
            "openai:chat: ",
            {"seeed": 3},
            [
                Problem(".id", '"openai:chat: " has no model name', "write openai:<model>"),
                Problem(".config.seeed", '"seeed" is not a key', 'did you mean "seed"?'),
            ],
        ),
        (
            "openai:response:m",
            {},
            [
                Problem(
                    ".id",
                    '"response" is not a kind of request',
                    'did you mean "openai:responses:m"?',
                )
            ],
        ),
        (
            "groq:m",
            {"apiVersion": "1"},
            [Problem(".config.apiVersion", "groq has no API versions", "leave it out")],
        ),
        (
            "openai-api:m",
            {},
            [
                Problem(".id", '"openai-api:m:" has no model name', "write openai-api:m:<model>"),
                Problem(
                    ".config.apiBaseUrl",
                    "this provider needs a base URL",
                    "set config.apiBaseUrl, "
                    "or M_BASE_URL in the environment or in a file given with --env-file",
                ),
            ],
        ),
        (
            "openai-api:my cloud:m",
            {},
            [
                Problem(
                    ".id",
                    '"openai-api:my cloud" has no valid service name',
                    "write openai-api:<service>:<model>",
                )
            ],
        ),
    ],
)
def test_incomplete_ids_are_reported(
    entry_id: str, config: Mapping[str, Any], expected: list[Problem]
) -> None:
    """The hint says what to write, and all other problems are reported too."""
    assert problems(entry_id, {}, apiKey=KEY, **config) == expected


@pytest.mark.parametrize(
    ("entry_id", "meant"),
    [("opnrouter:a/b:free", "openrouter:a/b:free"), ("mistal:m", "mistral:m")],
)
def test_a_misspelt_service_suggests_the_nearest(entry_id: str, meant: str) -> None:
    """The hint has the whole id, to be copied."""
    with pytest.raises(SuiteError) as caught:
        resolve(entry_id, {}, environ={}, directory=Path(), templates=Templates(), custom={})
    (problem,) = caught.value.problems
    assert (problem.hint or "").startswith(f'did you mean "{meant}"?')


def test_a_request_to_mistral_has_only_known_keys() -> None:
    """One unknown key in the body would fail every call."""
    found = settings("mistral:m", {"MISTRAL_API_KEY": KEY}, seed=3, metrics="ttft")
    assert isinstance(found, AdapterSettings)
    body = json.loads(found.adapter.build(Request(prompt="Hi")).body or b"")
    assert body.keys() == {
        "model",
        "messages",
        "temperature",
        "max_tokens",
        "random_seed",
        "stream",
    }
