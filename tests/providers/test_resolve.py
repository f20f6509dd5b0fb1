import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.errors import Problem, SuiteError
from trioeval.providers import Provider, ProviderSpec, Reply, Request, open_providers, resolve
from trioeval.providers.resolve import MODULES, find_reader
from trioeval.templates import Templates

KEY = {"OPENAI_API_KEY": "sk-1234"}


async def mine(request: Request) -> str:
    return request.prompt.upper()


def resolved(
    entry_id: str,
    directory: Path = Path(),
    custom: dict[str, Provider] | None = None,
    **config: Any,
) -> ProviderSpec:
    return resolve(
        entry_id,
        config,
        environ=KEY,
        directory=directory,
        templates=Templates(),
        custom=custom or {},
    )


def problems(entry_id: str, custom: dict[str, Provider] | None = None, **config: Any) -> Any:
    with pytest.raises(SuiteError) as caught:
        resolved(entry_id, custom=custom, **config)
    return caught.value.problems


def ask(spec: ProviderSpec, prompt: str) -> Reply:
    async def main() -> Reply:
        async with open_providers([spec], Templates()) as [provider]:
            return await provider(Request(prompt=prompt))

    return trio.run(main)


def test_local_providers_answer_without_a_network(tmp_path: Path) -> None:
    """Echoes, replays and callables need no client."""
    (tmp_path / "r.jsonl").write_text(json.dumps({"prompt": "a", "output": "b"}))
    specs = {
        "a": resolved("echo"),
        "b": resolved("replay:r.jsonl", tmp_path, latency="real"),
        "A": resolved("mine", custom={"mine": mine}),
    }
    assert [ask(spec, "a").output for spec in specs.values()] == [*specs]
    assert [spec.lane_key for spec in specs.values()] == ["echo", "replay:r.jsonl", "mine"]


def test_a_spec_does_not_show_its_key() -> None:
    """The representation contains no secret."""
    spec = resolved("openai:gpt-4.1")
    assert spec.secrets == ("sk-1234",)
    assert "sk-1234" not in repr(spec)


@pytest.mark.parametrize(
    ("entry_id", "model"),
    [
        ("openai:gpt-4.1", "gpt-4.1"),
        ("openai:chat:gpt-4.1", "gpt-4.1"),
        ("openai:ft:gpt-4.1:acme", "ft:gpt-4.1:acme"),
        ("openai:chat:ft:gpt-4.1:acme", "ft:gpt-4.1:acme"),
    ],
)
def test_everything_after_the_kind_is_the_model(entry_id: str, model: str) -> None:
    """A model's name may contain colons."""
    assert resolved(entry_id).lane_key.endswith(f"|{model}")


def test_a_callable_overrides_a_known_id() -> None:
    """The caller's callables take precedence."""
    assert ask(resolved("echo", custom={"echo": mine}), "a").output == "A"


FORM = 'an id is <vendor>:<model>, such as "openai:gpt-4.1-mini"'


def unknown(entry_id: str, hint: str) -> Problem:
    return Problem(".id", f'unknown provider "{entry_id}"', hint)


@pytest.mark.parametrize(
    ("entry_id", "problem"),
    [
        ("ecko", unknown("ecko", 'did you mean "echo"?')),
        ("mime", unknown("mime", 'did you mean "mine"?')),
        (
            "opanai:chat:gpt-4.1",
            unknown("opanai:chat:gpt-4.1", 'did you mean "openai:chat:gpt-4.1"?'),
        ),
        ("mistralai:large", unknown("mistralai:large", 'did you mean "mistral:large"?')),
        ("llamacp:x", unknown("llamacp:x", 'did you mean "llamacpp:x"?')),
        ("llamafile:x", unknown("llamafile:x", 'did you mean "llamacpp:x"?')),
        ("antropic", unknown("antropic", 'did you mean "anthropic:<model>"?')),
        ("openai/gpt-4.1", unknown("openai/gpt-4.1", 'did you mean "openai:gpt-4.1"?')),
        ("", unknown("", FORM)),
        ("zzz:x", unknown("zzz:x", FORM)),
        ("openai:", Problem(".id", '"openai:" has no model name', "write openai:<model>")),
        (
            "openai:chat:",
            Problem(".id", '"openai:chat:" has no model name', "write openai:<model>"),
        ),
        ("openai:chat", Problem(".id", '"openai:chat" has no model name', "write openai:<model>")),
        ("openai", Problem(".id", '"openai:" has no model name', "write openai:<model>")),
        (
            "openai:realtime",
            Problem(".id", '"openai:realtime" has no model name', "write openai:realtime:<model>"),
        ),
        (
            "google:video",
            Problem(".id", '"google:video" has no model name', "write google:video:<model>"),
        ),
        (
            "promptfoo:simulated-users",
            Problem(
                ".id",
                '"promptfoo:simulated-users" is not supported',
                'did you mean "promptfoo:simulated-user"?',
            ),
        ),
    ],
)
def test_an_unknown_id_suggests_the_nearest(entry_id: str, problem: Problem) -> None:
    """Unknown, incomplete and unsupported ids are problems of the entry."""
    assert problems(entry_id, custom={"mine": mine}) == (problem,)


@pytest.mark.parametrize(
    ("model", "meant"),
    [
        ("gpt-4.1-mini", ["openai"]),
        ("o1", ["openai"]),
        ("o3-mini", ["openai"]),
        ("o4-mini", ["openai"]),
        ("claude-haiku-4-5", ["anthropic"]),
        ("gemini-2.5-pro", ["google"]),
        ("mistral-large-latest", ["mistral"]),
        ("deepseek-chat", ["deepseek"]),
        ("grok-4", ["xai"]),
        ("llama3:8b", ["ollama", "groq"]),
        ("meta-llama/Llama-3-8b", ["openrouter", "together"]),
    ],
)
def test_a_model_without_its_vendor_suggests_the_vendor(model: str, meant: list[str]) -> None:
    """A well-known model name suggests ids that exist, with its vendors."""
    ids = " or ".join(f'"{vendor}:{model}"' for vendor in meant)
    assert problems(model) == (unknown(model, f"did you mean {ids}?"),)
    assert all(find_reader(vendor) for vendor in meant)


@pytest.mark.parametrize(
    ("brand", "vendor"),
    [("claude", "anthropic"), ("grok", "xai"), ("gpt", "openai"), ("ChatGPT", "openai")],
)
def test_a_product_in_place_of_its_vendor_suggests_the_vendor(brand: str, vendor: str) -> None:
    """The rest of the id is kept."""
    assert problems(f"{brand}:x") == (unknown(f"{brand}:x", f'did you mean "{vendor}:x"?'),)


def test_at_most_three_ids_are_suggested() -> None:
    """The nearest ids that exist, never the whole list."""
    custom: dict[str, Provider] = {f"model-{letter}": mine for letter in "abcdefgh"}
    (problem,) = problems("model-x", custom)
    assert problem.hint is not None
    assert problem.hint.count('"') == 2 * 3


@pytest.mark.parametrize("label", [None, "small"])
def test_a_missing_key_names_the_provider_and_the_variable(label: str | None) -> None:
    """The provider has the name that the user gave it."""
    name = label or "openai:gpt-4.1-mini"
    with pytest.raises(SuiteError) as caught:
        resolve(
            "openai:gpt-4.1-mini",
            {},
            environ={},
            directory=Path(),
            templates=Templates(),
            custom={},
            label=label,
        )
    assert caught.value.problems == (
        Problem(
            ".config.apiKey",
            f"{name} needs an API key",
            "set OPENAI_API_KEY in the environment or in a file given with --env-file, or config.apiKey",
        ),
    )


@pytest.mark.parametrize(
    ("entry_id", "named"),
    [
        ("openai:codex-sdk", "openai:codex-sdk"),
        ("openai:codex:gpt-5", "openai:codex"),
        ("azure:tts:tts-1", "azure:tts"),
        ("azure:image:dall-e-3", "azure:image"),
        ("openai:realtime:gpt-realtime-whisper", "openai:realtime:gpt-realtime-whisper"),
        ("openai:chat:gpt-4o-realtime-preview", "openai:chat:gpt-4o-realtime-preview"),
        ("openai:assistant:asst_1", "openai:assistant"),
        ("openai:chatkit:wf_1", "openai:chatkit"),
        ("openai-sdk:video:sora-2", "openai-sdk:video"),
        ("openai-api:groq:image:m", "openai-api:groq:image"),
        ("ollama:image:llama3:8b", "ollama:image"),
        ("anthropic:claude-agent-sdk", "anthropic:claude-agent-sdk"),
        ("anthropic:claude-code:m", "anthropic:claude-code"),
        ("anthropic:completion:claude-2", "anthropic:completion"),
        ("azure:assistant:asst_1", "azure:assistant"),
        ("azure:foundry-agent:a", "azure:foundry-agent"),
        ("azure:moderation", "azure:moderation"),
        ("bedrock:agents:ABC", "bedrock:agents"),
        ("bedrock:messages:anthropic.claude-fable-5", "bedrock:messages"),
        ("bedrock:kb:m", "bedrock:kb"),
        ("bedrock:knowledge-base:m", "bedrock:knowledge-base"),
        ("bedrock:amazon.nova-sonic-v1:0", "bedrock:amazon.nova-sonic-v1:0"),
        ("bedrock:video:amazon.nova-reel-v1:1", "bedrock:video"),
        ("google:live:gemini-2", "google:live"),
        ("google:audio:m", "google:audio"),
        ("xai:voice:grok", "xai:voice"),
        ("elevenlabs:tts:rachel", "elevenlabs:"),
        ("watsonx:ibm/granite", "watsonx:"),
        ("promptfoo:redteam", "promptfoo:"),
    ],
)
def test_provider_kinds_of_other_tools_are_refused_by_name(entry_id: str, named: str) -> None:
    """It must not be called as a model of that name."""
    [problem] = problems(entry_id)
    assert (problem.path, problem.message) == (".id", f'"{named}" is not supported')
    assert re.search(r"(write|use) [\w:-]+<|https://<url>", problem.hint)


@pytest.mark.parametrize("model", ["ft:gpt-4.1:org::id", "gpt-4o-transcribe-x", "videos"])
def test_a_model_name_is_not_taken_for_a_kind(model: str) -> None:
    """Names of models may contain colons, and begin like a kind."""
    assert resolved(f"openai:{model}").identity.model == model


def test_problems_of_id_and_config_come_together() -> None:
    """One loading reports all problems of an entry."""
    found = problems("openai:", seed="x", temprature=1)
    assert [problem.path for problem in found] == [".id", ".config.seed", ".config.temprature"]


def test_ignored_config_is_a_problem() -> None:
    """A key that would be ignored is reported."""
    (problem,) = problems("mine", custom={"mine": mine}, delay=3)
    assert str(problem) == '.config.delay: "delay" is not a key\n  known are maxTokens'


@pytest.mark.slow
def test_importing_providers_loads_no_http_library() -> None:
    """Runs without a network do not pay for the import."""
    code = "import sys, trioeval.providers as _; print({'httpx2', 'httpcore2', 'h11'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


@pytest.mark.parametrize("prefix", MODULES)
def test_every_prefix_has_a_reader(prefix: str) -> None:
    """The named modules exist and have a reader."""
    assert callable(find_reader(prefix))


@pytest.mark.parametrize("tail", ["", "x" * 80])
def test_values_of_variables_are_not_shown_in_problems(tail: str) -> None:
    """Not even its beginning is shown where the message shortens it."""
    with pytest.raises(SuiteError) as caught:
        resolve(
            "sim:x",
            {"seed": "{{env.MY_TOKEN}}", "maxRetries": "{{env.MY_TOKEN}}"},
            environ={"MY_TOKEN": f"tok-1234{tail}"},
            directory=Path(),
            templates=Templates(),
            custom={},
        )
    assert len(caught.value.problems) == 2
    assert "tok-" not in str(caught.value)


def test_the_representation_of_a_spec_shows_no_secret() -> None:
    """Neither a variable's value nor a key in a URL id is shown."""
    spec = resolve(
        "https://a.example/chat?key=sk-12345678",
        {"body": {"prompt": "{{prompt}}", "team": "{{env.MY_TOKEN}}"}},
        environ={"MY_TOKEN": "tok-1234"},
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    assert repr(spec) == "<ProviderSpec 'https://a.example/chat?key=[hidden]'>"
