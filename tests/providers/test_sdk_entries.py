import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from sdk_runs import CASES, KEY, Case, context

from trioeval.providers.base import Request
from trioeval.providers.http.endpoint import Endpoint, Service
from trioeval.providers.http.wire import HttpRequest
from trioeval.providers.sdk import bedrock, entries
from trioeval.providers.sdk.bedrock import BedrockSettings
from trioeval.providers.sdk.transport import PLACEHOLDER, other_headers, own_key

URL = "http://127.0.0.1:1"

every_sdk = pytest.mark.parametrize("case", CASES, ids=lambda case: case.prefix)


def problems_of(case: Case, rest: str | None = None, **config: Any) -> list[str]:
    """Return the problems of an entry, as shown to the user."""
    case = case if rest is None else attrs.evolve(case, model=rest)
    found = case.read(URL, **config)
    assert isinstance(found, list), found
    return [str(problem) for problem in found]


@every_sdk
def test_a_missing_sdk_is_reported_with_all_other_problems(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The problem names the extra, and all other problems are reported too."""
    package = "boto3" if case.prefix == "bedrock" else entries.SDKS[case.prefix].package
    extra = "bedrock" if case.prefix == "bedrock" else entries.SDKS[case.prefix].name
    monkeypatch.setitem(sys.modules, package, None)
    missing, other = problems_of(case, temperature="hot")
    assert missing == (
        f'.id: "{case.prefix}:" needs the extra "{extra}"\n  pip install \'trioeval[{extra}]\''
    )
    assert other.startswith(".config.temperature: must be a number")


def test_a_missing_package_around_an_sdk_is_a_missing_sdk() -> None:
    """`google.genai` is searched inside of `google`, which may be missing as well."""
    (problem,) = entries.check_extra("x-sdk", "no_such_package.inside", "x")
    assert problem.hint == "pip install 'trioeval[x]'"


@every_sdk
def test_an_entry_names_its_model(case: Case) -> None:
    """The hint has the right id."""
    (problem,) = problems_of(case, rest="")
    assert problem == (f'.id: "{case.prefix}:" has no model name\n  write {case.prefix}:<model>')


def test_unsupported_features_of_an_sdk_suggest_the_plain_id() -> None:
    """The problem is reported before the first call."""
    google = CASES[2]
    assert problems_of(google, rest="embedding:e-1") == [
        ".id: the SDK does not support embeddings\n  use google:embedding:e-1"
    ]
    assert problems_of(google, metrics="ttft") == [
        ".config.metrics: this SDK cannot measure the time to the first token\n  use google:m-1"
    ]


def test_a_provider_of_several_requests_is_not_for_an_sdk() -> None:
    """A response in the background is polled."""
    (problem,) = problems_of(CASES[0], rest="responses:m-1", background=True)
    assert problem == (
        ".id: this needs several requests, and the SDK sends only one\n  use openai:responses:m-1"
    )
    [google] = [case for case in CASES if case.prefix == "google-sdk"]
    (problem,) = problems_of(google, rest="video:veo-3.1-generate-preview")
    assert problem.endswith("use google:video:veo-3.1-generate-preview")


@pytest.mark.slow
def test_an_entry_is_read_without_importing_its_sdk() -> None:
    """SDKs take up to a second to import; checking a suite does not need them."""
    probe = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from sdk_runs import CASES
for case in CASES:
    assert not isinstance(case.read("http://127.0.0.1:1"), list)
print({{"openai", "anthropic", "google.genai", "boto3"}} & set(sys.modules))
"""
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def endpoint(header: str, credential: str, value: str) -> Endpoint:
    return Endpoint(
        service=Service(family="x", default_url=URL, key_variables=(), key_header=header),
        model="m",
        base_url=URL,
        headers={header: value},
        credential=credential,
    )


@pytest.mark.parametrize(
    ("header", "credential", "value", "key", "passed_on"),
    [
        ("authorization", "sk-1", "Bearer sk-1", "sk-1", False),
        ("authorization", "Bearer sk-1", "Bearer sk-1", "sk-1", True),
        ("authorization", "Basic abc", "Basic abc", "abc", True),
        ("x-api-key", "sk-1", "sk-1", "sk-1", False),
        ("authorization", "", "", PLACEHOLDER, True),
    ],
)
def test_the_sdk_gets_the_key_and_the_request_the_other_headers(
    header: str,
    credential: str,
    value: str,
    key: str,
    passed_on: bool,  # noqa: FBT001
) -> None:
    """Only a complete authorization in the config is passed on unchanged."""
    where = endpoint(header, credential, value)
    request = HttpRequest(URL, {header: value, "x-team": "blue"}, b"{}")
    assert own_key(where) == key
    headers = other_headers(where, request)
    assert headers.pop("x-team") == "blue"
    assert headers == ({header: value} if passed_on else {})


def read_bedrock(
    config: Mapping[str, Any], environ: Mapping[str, str] | None = None
) -> BedrockSettings | list[str]:
    here = attrs.evolve(context(), environ=environ or {})
    found = bedrock.read("bedrock", "maker.m-1", config, here)
    if isinstance(found, BedrockSettings):
        return found
    assert isinstance(found, list)
    return [str(problem) for problem in found]


def test_the_region_of_bedrock_is_required() -> None:
    """The config takes precedence over the environment."""
    hint = "set config.region, or AWS_REGION in the environment or in a file given with --env-file"
    assert read_bedrock({}) == [f".config.region: this provider needs a region\n  {hint}"]
    fault = 'the environment variable AWS_REGION is "the moon", which is not a valid region'
    assert read_bedrock({}, {"AWS_REGION": "the moon"}) == [
        f".config.region: {fault}\n  use a region such as us-east-1"
    ]
    found = read_bedrock({"region": "eu-west-1"}, {"AWS_REGION": "us-east-1"})
    assert isinstance(found, BedrockSettings)
    assert found.access.region == "eu-west-1"
    assert found.access.url is None
    assert found.lane_key == "bedrock|https://bedrock-runtime.eu-west-1.amazonaws.com|-|-|maker.m-1"


def test_half_of_a_credential_of_bedrock_is_reported() -> None:
    """The problem names the missing half."""
    problems = read_bedrock({"region": "us-east-1", "secretAccessKey": KEY})
    fault = "accessKeyId and secretAccessKey must both be set"
    assert problems == [f".config.accessKeyId: {fault}\n  set accessKeyId as well"]


def test_an_invalid_url_of_bedrock_is_reported_at_its_own_key() -> None:
    """The problem names Bedrock's key, not that of other services."""
    (problem,) = read_bedrock({"region": "us-east-1", "endpointUrl": "ftp://x"})  # type: ignore[misc]
    assert str(problem).startswith(".config.endpointUrl: must be an http or https URL")


def test_credentials_of_bedrock_come_from_the_config_and_then_from_the_environment() -> None:
    """A profile in the config takes precedence over environment keys; secrets are known."""
    environ = {
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "AKIA-env",
        "AWS_SECRET_ACCESS_KEY": "env-secret",
        "AWS_SESSION_TOKEN": "env-token",
    }
    found = read_bedrock({}, environ)
    assert isinstance(found, BedrockSettings)
    assert found.access.access_key_id == "AKIA-env"
    assert found.secrets == ("env-secret", "env-token")
    profiled = read_bedrock({"profile": "team"}, environ)
    assert isinstance(profiled, BedrockSettings)
    assert (profiled.access.profile, profiled.access.access_key_id) == ("team", None)
    own = read_bedrock({"accessKeyId": "AKIA-own", "secretAccessKey": KEY}, environ)
    assert isinstance(own, BedrockSettings)
    assert own.secrets == (KEY,)
    assert len({found.lane_key, profiled.lane_key, own.lane_key}) == 3
    for settings in (found, own):
        assert KEY not in settings.lane_key + repr(settings)
        assert "env-secret" not in settings.lane_key + repr(settings)


def test_the_config_of_bedrock_becomes_the_arguments_of_its_calls() -> None:
    """Keys are accepted in any spelling; a null is not sent."""
    found = read_bedrock(
        {
            "region": "us-east-1",
            "max_tokens": 7,
            "temperature": None,
            "stopSequences": ["END"],
            "guardrailConfig": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
            "price": {"input": 1, "output": 2},
            "timeoutMs": 1500,
        }
    )
    assert isinstance(found, BedrockSettings)
    adapter = found.adapter
    assert adapter.body["inferenceConfig"] == {"maxTokens": 7, "stopSequences": ["END"]}
    assert set(adapter.body) == {"inferenceConfig", "guardrailConfig"}
    assert adapter.endpoint.timeout == 1.5
    assert adapter.endpoint.price is not None
    assert adapter.build(Request(prompt="Hi")).url.endswith("/model/maker.m-1/converse")


def test_all_mistakes_of_a_bedrock_entry_are_reported_at_once() -> None:
    """Problems of keys, values and missing settings are reported together."""
    problems = read_bedrock({"maxToken": 3, "topP": "x", "region": "nowhere"})
    assert isinstance(problems, list)
    assert [problem.partition(": ")[0] for problem in problems] == [
        ".config.maxToken",
        ".config.topP",
        ".config.region",
        ".config.region",
    ]


def test_the_page_about_sdks_lists_all_ids_and_keys() -> None:
    """The page has every id, every extra, and every key of Bedrock with its meaning, in order."""
    page = (Path(__file__).parents[2] / "docs" / "reference" / "providers" / "sdk.md").read_text()
    ids = re.findall(r"^\| `([\w-]+):<model>` \| `trioeval\[(\w+)\]`", page, re.MULTILINE)
    through = [(prefix, sdk.name) for prefix, sdk in entries.SDKS.items()]
    assert ids == [*through, ("bedrock", "bedrock")]
    keys = re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
    assert keys == [(key.name, key.right) for key in bedrock.KEYS]
