import hashlib
from collections.abc import Mapping
from typing import Any

import attrs
import pytest

from trioeval.errors import Problem
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.http.endpoint import Endpoint
from trioeval.providers.vendors.openai_chat import ChatAdapter
from trioeval.providers.vendors.services import SERVICES

KEY = {"OPENAI_API_KEY": "sk-env"}
NO_KEY = Problem(
    ".config.apiKey",
    "this provider needs an API key",
    "set OPENAI_API_KEY in the environment or in a file given with --env-file, or config.apiKey",
)


def endpoint(
    config: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    service: str = "openai",
) -> Endpoint:
    read = ChatAdapter.read_entry(
        SERVICES[service], "gpt-4.1", config or {}, KEY if environ is None else environ
    )
    assert isinstance(read, AdapterSettings), read
    return read.adapter.endpoint


def problems(
    config: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    service: str = "openai",
) -> list[Problem]:
    read = ChatAdapter.read_entry(
        SERVICES[service], "gpt-4.1", config or {}, KEY if environ is None else environ
    )
    assert isinstance(read, list), read
    return read


@pytest.mark.parametrize(
    ("config", "environ", "base_url"),
    [
        ({}, {}, "https://api.openai.com/v1"),
        ({}, {"OPENAI_BASE_URL": "http://a/v1/"}, "http://a/v1"),
        ({}, {"OPENAI_BASE_URL": "  "}, "https://api.openai.com/v1"),
        ({}, {"OPENAI_BASE_URL": "http://a", "OPENAI_API_BASE_URL": "http://b"}, "http://b"),
        ({}, {"OPENAI_API_BASE_URL": "http://b", "OPENAI_API_HOST": "c"}, "https://c/v1"),
        ({"apiBaseUrl": "http://d"}, {"OPENAI_API_HOST": "c"}, "http://d"),
        ({"apiBaseUrl": "http://d", "apiHost": "e:8443"}, {}, "https://e:8443/v1"),
    ],
)
def test_the_base_url_of_the_config_takes_precedence(
    config: Mapping[str, Any], environ: Mapping[str, str], base_url: str
) -> None:
    """It precedes the environment, and a host precedes a URL."""
    assert endpoint(config, {**KEY, **environ}).base_url == base_url


@pytest.mark.parametrize(
    ("config", "environ", "key"),
    [
        ({}, KEY, "sk-env"),
        ({"apiKey": " sk-config\n"}, KEY, "sk-config"),
        ({"apiKeyEnvar": "MINE"}, {**KEY, "MINE": "sk-mine"}, "sk-mine"),
        ({"apiKey": "sk-config", "apiKeyEnvar": "MINE"}, {"MINE": "sk-mine"}, "sk-config"),
    ],
)
def test_the_key_of_the_config_takes_precedence(
    config: Mapping[str, Any], environ: Mapping[str, str], key: str
) -> None:
    """It precedes its variable, and that precedes the default one."""
    read = endpoint(config, environ)
    assert read.headers["authorization"] == f"Bearer {key}"
    assert read.credential == key


def test_headers_and_organisation_are_sent() -> None:
    """Configured headers take precedence, whatever their case."""
    headers = {"X-Title": "evals", "Authorization": "Token abc"}
    read = endpoint({"organization": "acme", "headers": headers}, {})
    assert read.headers == {
        "openai-organization": "acme",
        "x-title": "evals",
        "authorization": "Token abc",
    }
    assert endpoint({}, {**KEY, "OPENAI_ORGANIZATION": "org"}).organization == "org"


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:8080", "http://127.9.9.9/v1", "http://[::1]:80/v1", "http://localhost"],
)
def test_a_local_service_needs_no_key(url: str) -> None:
    """Local services get a key only if one is set."""
    assert "authorization" not in endpoint({"apiBaseUrl": url}, {}).headers
    assert endpoint({"apiBaseUrl": url}).credential == "sk-env"


@pytest.mark.parametrize(
    ("config", "environ", "problem"),
    [
        ({}, {}, NO_KEY),
        ({}, {"OPENAI_API_KEY": " "}, NO_KEY),
        ({"apiBaseUrl": "http://localhost.example"}, {}, NO_KEY),
        (
            {"apiKeyEnvar": "MINE"},
            KEY,
            Problem(
                ".config.apiKeyEnvar",
                "the environment variable MINE is not set",
                "set MINE in the environment or in a file given with --env-file",
            ),
        ),
        (
            {"apiKeyEnvar": "MINE", "apiBaseUrl": "http://127.0.0.1"},
            {},
            Problem(
                ".config.apiKeyEnvar",
                "the environment variable MINE is not set",
                "set MINE in the environment or in a file given with --env-file",
            ),
        ),
        (
            {"apiKey": "sk-1\nx"},
            {},
            Problem(".config.apiKey", "the key has characters that are not allowed in a header"),
        ),
        (
            {},
            {"OPENAI_API_KEY": "sk-…"},
            Problem(
                ".config.apiKey",
                "the key in OPENAI_API_KEY has characters that are not allowed in a header",
            ),
        ),
        (
            {"apiBaseUrl": "ftp://a"},
            KEY,
            Problem(".config.apiBaseUrl", "must be an http or https URL with a host"),
        ),
        (
            {"apiBaseUrl": "http://a:port"},
            KEY,
            Problem(".config.apiBaseUrl", "must be an http or https URL with a host"),
        ),
        (
            {"apiBaseUrl": "http://a b"},
            KEY,
            Problem(".config.apiBaseUrl", "must be a URL of printable ASCII characters"),
        ),
        (
            {"apiBaseUrl": "https://me:secret@a/v1"},
            KEY,
            Problem(
                ".config.apiBaseUrl",
                "must not hold a user or a password; use apiKey or headers",
            ),
        ),
        (
            {},
            {**KEY, "OPENAI_BASE_URL": "http://a?x=1"},
            Problem(
                ".config.apiBaseUrl",
                "the environment variable OPENAI_BASE_URL must not have a query or a fragment",
            ),
        ),
        (
            {"apiHost": "https://a"},
            KEY,
            Problem(".config.apiHost", "must be a host alone; a whole URL goes into apiBaseUrl"),
        ),
        (
            {"passthrough": {"stream": True}},
            KEY,
            Problem(
                ".config.passthrough.stream",
                "streaming is decided by metrics",
                'leave it out; metrics: ["ttft"] streams, and measures the time to the first token',
            ),
        ),
        (
            {"headers": {"x": "a\nb"}},
            KEY,
            Problem(
                ".config.headers",
                "must be an object of printable ASCII texts (its value is not shown)",
            ),
        ),
        (
            {},
            {**KEY, "OPENAI_ORGANIZATION": "é"},
            Problem(
                ".config.organization",
                "the environment variable OPENAI_ORGANIZATION must be printable ASCII text",
            ),
        ),
        (
            {"temprature": 1},
            KEY,
            Problem(
                ".config.temprature", '"temprature" is not a key', 'did you mean "temperature"?'
            ),
        ),
        (
            {"stop": [1]},
            KEY,
            Problem(".config.stop", "must be text or a list of texts, got [1]"),
        ),
    ],
)
def test_each_mistake_is_reported_before_the_first_call(
    config: Mapping[str, Any], environ: Mapping[str, str], problem: Problem
) -> None:
    """A problem has the place and what to do."""
    assert problems(config, environ) == [problem]


def test_a_broken_url_and_a_missing_key_are_reported_together() -> None:
    """A broken URL may or may not need a key, so both problems are reported."""
    assert problems({"apiBaseUrl": "http://[::1"}, {}) == [
        Problem(".config.apiBaseUrl", "must be an http or https URL with a host"),
        NO_KEY,
    ]


def test_all_mistakes_are_reported_together() -> None:
    """Problems of keys, base URL and parameters are reported together."""
    assert len(problems({"seed": "x", "apiHost": "a/b", "apiKeyEnvar": "X", "topP_": 1}, {})) == 4


def test_no_key_is_shown() -> None:
    """The representation of settings contains no credential."""
    read = endpoint({"headers": {"x-api-key": "hidden-1"}})
    assert "sk-env" not in repr(read)
    assert "hidden-1" not in repr(read)
    assert set(read.secrets) == {"sk-env", "hidden-1"}


@pytest.mark.parametrize(
    "header", ["x-auth", "api_key", "x-authtoken", "x-credential", "x-access-token", "Session"]
)
def test_headers_with_credentials_are_recognised_by_their_names(header: str) -> None:
    """Headers with secret names are credentials, whatever the service calls them."""
    read = endpoint({"headers": {header: "hidden-1"}})
    assert "hidden-1" in read.secrets


def test_each_part_of_a_header_is_a_secret() -> None:
    """A server may return one of several cookies."""
    read = endpoint({"headers": {"cookie": "sid=SECRET123; theme=dark"}})
    assert set(read.secrets) == {"sk-env", "sid=SECRET123; theme=dark", "SECRET123", "dark"}


def test_the_representation_shows_no_value_of_a_variable() -> None:
    """The path may contain a token or an account name."""
    read = endpoint(
        {"apiBaseUrl": "http://a/tok-1/v1", "organization": "tok-2", "project": "tok-3"}
    )
    assert "tok-" not in repr(read)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"apiKey": "sk-1"}, {"headers": {"Authorization": "Bearer sk-1"}}),
        ({"apiKey": "sk-1"}, {"headers": {"AUTHORIZATION": "bearer  sk-1"}}),
        ({"organization": "acme"}, {"headers": {"OpenAI-Organization": "acme"}}),
        ({"project": "evals"}, {"headers": {"openai-project": "evals"}}),
        (
            {"organization": "acme"},
            {"organization": "other", "headers": {"OpenAI-Organization": "acme"}},
        ),
        ({}, {"apiBaseUrl": "HTTPS://API.OpenAI.com:443/v1//"}),
        ({"apiBaseUrl": "http://[::a]:80"}, {"apiBaseUrl": "http://[::A]/"}),
    ],
)
def test_equal_endpoints_share_a_lane(one: Mapping[str, Any], other: Mapping[str, Any]) -> None:
    """Spellings of the same endpoint and account are equal."""
    assert endpoint(one).lane_key == endpoint(other).lane_key
    assert endpoint(one).lane_key != endpoint({"apiKey": "sk-2"}).lane_key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"apiBaseUrl": "https://a/v1"}, {"apiBaseUrl": "https://a/V1"}),
        ({"apiBaseUrl": "https://a:80"}, {"apiBaseUrl": "https://a"}),
        ({"apiBaseUrl": "http://a"}, {"apiBaseUrl": "https://a"}),
        ({"headers": {"openai-organization": "a"}}, {}),
    ],
)
def test_different_endpoints_have_separate_lanes(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> None:
    """Paths are case-sensitive, and default ports differ by scheme."""
    assert endpoint(one).lane_key != endpoint(other).lane_key


def test_a_key_given_as_a_header_is_the_credential_without_its_scheme() -> None:
    """This also applies to services with their own key header."""
    config = {"apiHost": "acme.openai.azure.com", "headers": {"api-key": "k-1234"}}
    assert endpoint(config, {}, "azure").credential == "k-1234"


def test_a_lane_is_one_account_and_model() -> None:
    """The lane key distinguishes accounts, endpoints and models, and never contains the key."""
    digest = hashlib.sha256(b"sk-env").hexdigest()[:12]
    read = endpoint()
    assert read.lane_key == f"openai|https://api.openai.com/v1|{digest}|-|gpt-4.1"
    assert endpoint({"temperature": 1, "seed": 2}).lane_key == read.lane_key
    others = [
        endpoint({"apiKey": "sk-other"}),
        endpoint({"organization": "acme"}),
        endpoint({"apiHost": "other.example"}),
        attrs.evolve(read, model="gpt-4o"),
        endpoint({"apiBaseUrl": "http://127.0.0.1"}, {}),
    ]
    assert len({read.lane_key, *(other.lane_key for other in others)}) == 6


@pytest.mark.parametrize(
    ("config", "environ", "seconds"),
    [
        ({}, {}, 300),
        ({}, {"REQUEST_TIMEOUT_MS": "1500"}, 1.5),
        ({}, {"REQUEST_TIMEOUT_MS": " "}, 300),
        ({"timeoutMs": 20}, {"REQUEST_TIMEOUT_MS": "never"}, 0.02),
    ],
)
def test_a_call_is_limited_by_the_config_or_the_environment(
    config: dict[str, Any], environ: dict[str, str], seconds: float
) -> None:
    """The config takes precedence, and then the environment is ignored."""
    assert endpoint(config, KEY | environ).timeout == seconds


@pytest.mark.parametrize("written", ["never", "0", "-5", "inf", "nan"])
def test_a_limit_of_the_environment_must_be_valid(written: str) -> None:
    """An invalid variable is reported before the first call."""
    fault = "the environment variable REQUEST_TIMEOUT_MS must be a number of milliseconds above 0"
    assert problems({}, KEY | {"REQUEST_TIMEOUT_MS": written}) == [
        Problem(".config.timeoutMs", f'{fault}, got "{written}"')
    ]
