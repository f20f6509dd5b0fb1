"""Every kind of provider in promptfoo 0.123.1 is either one here, or refused; none is taken for a model."""

import re
from pathlib import Path

import pytest

import trioeval
from trioeval.errors import SuiteError
from trioeval.providers import Request, resolve
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.kinds import KINDS_NOT_SUPPORTED, PREFIXES_NOT_SUPPORTED, supported_forms
from trioeval.providers.resolve import MODULES
from trioeval.providers.vendors.services import ALIASES, SERVICES
from trioeval.templates import Templates

ENVIRON = {
    **{name: "sk-1234" for service in SERVICES.values() for name in service.key_variables},
    **{
        part.variable: "acme"
        for service in SERVICES.values()
        for part in service.parts.values()
        if part.variable
    },
    "CLOUDFLARE_GATEWAY_ID": "gate",
    "ANTHROPIC_API_KEY": "sk-1234",
    "GEMINI_API_KEY": "sk-1234",
    "AWS_REGION": "us-east-1",
    **{
        service.url_variables[0]: "https://mine.example"
        for service in SERVICES.values()
        if service.default_url is None and service.url_variables
    },
}

CHAT, RESPONSES, VECTOR, FLAGS = "chat/completions", "responses", "embeddings", "moderations"
TEXT = "v1/completions"

SUPPORTED = {
    "abliteration:m": CHAT,
    "abliteration:chat:m": CHAT,
    "ai21:jamba-mini": CHAT,
    "aimlapi:m": CHAT,
    "aimlapi:chat:m": CHAT,
    "aimlapi:embedding:m": VECTOR,
    "alibaba:qwen-max": CHAT,
    "alibaba:embedding:m": VECTOR,
    "alicloud:qwen-max": CHAT,
    "aliyun:qwen-max": CHAT,
    "dashscope:qwen-max": CHAT,
    "anthropic:claude-haiku-4-5": "messages",
    "anthropic:messages:claude-haiku-4-5": "messages",
    "atlascloud:m": CHAT,
    "azure:chat:m": CHAT,
    "azureopenai:chat:m": CHAT,
    "azure:embedding:m": VECTOR,
    "azure:embeddings:m": VECTOR,
    "azure:responses:m": RESPONSES,
    "azure:completion:m": TEXT,
    "azure:realtime:m": "openai/v1/realtime",
    "cloudflare-ai:completion:m": TEXT,
    "docker:completion:m": TEXT,
    "litellm:completion:m": TEXT,
    "localai:completion:m": TEXT,
    "novita:completion:m": TEXT,
    "nscale:completion:m": TEXT,
    "ollama:completion:llama3:8b": TEXT,
    "openai:completion:gpt-3.5-turbo-instruct": TEXT,
    "openai:gpt-3.5-turbo-instruct-0914": TEXT,
    "openai:davinci-002": TEXT,
    "bedrock:amazon.nova-lite-v1:0": "converse",
    "bedrock:converse:amazon.nova-lite-v1:0": "converse",
    "bedrock:completion:amazon.nova-lite-v1:0": "converse",
    "bedrock:us.anthropic.claude-haiku-4-5-20251001-v1:0": "converse",
    "bedrock:arn:aws:bedrock:us-east-1:123456789012:inference-profile/m": "converse",
    "cerebras:m": CHAT,
    "cloudera:m": CHAT,
    "cloudflare-ai:chat:@cf/meta/llama-3": CHAT,
    "cloudflare-ai:embedding:@cf/baai/bge": VECTOR,
    "cloudflare-gateway:openai:gpt-4.1": CHAT,
    "cloudflare-gateway:groq:m": CHAT,
    "cloudflare-gateway:workers-ai:@cf/meta/llama-3": CHAT,
    "cohere:command-r": CHAT,
    "cohere:chat:command-r": CHAT,
    "cohere:embedding:embed-v4": VECTOR,
    "cometapi:m": CHAT,
    "cometapi:embeddings:m": VECTOR,
    "databricks:m": CHAT,
    "deepseek:deepseek-chat": CHAT,
    "docker:chat:ai/llama3": CHAT,
    "docker:ai/llama3:latest": CHAT,
    "docker:embeddings:m": VECTOR,
    "envoy:m": CHAT,
    "f5:m": CHAT,
    "fireworks:accounts/fireworks/models/m": CHAT,
    "fireworks:embedding:m": VECTOR,
    "google:gemini-2.5-pro": ":generateContent",
    "google:embedding:gemini-embedding-001": ":embedContent",
    "google:image:imagen-4.0-generate-001": ":predict",
    "google:video:veo-3.1-generate-preview": ":predictLongRunning",
    "gemini:video:veo-3.1-generate-preview": ":predictLongRunning",
    "palm:gemini-2.5-pro": ":generateContent",
    "groq:m": CHAT,
    "groq:responses:m": RESPONSES,
    "helicone:openai/gpt-4.1": CHAT,
    "hyperbolic:m": CHAT,
    "jfrog:m": CHAT,
    "qwak:m": CHAT,
    "litellm:m": CHAT,
    "litellm:embedding:m": VECTOR,
    "llamaapi:chat:m": CHAT,
    "localai:chat:m": CHAT,
    "localai:embedding:m": VECTOR,
    "meta:m": RESPONSES,
    "meta:chat:m": CHAT,
    "minimax:MiniMax-M3": CHAT,
    "mistral:mistral-large": CHAT,
    "mistral:embedding:mistral-embed": VECTOR,
    "mistral:embed:mistral-embed": VECTOR,
    "mlflow-gateway:m": CHAT,
    "moonshot:chat:kimi-k3": CHAT,
    "novita:chat:m": CHAT,
    "novita:embedding:m": VECTOR,
    "nscale:m": CHAT,
    "nscale:embedding:m": VECTOR,
    "nvidia:m": CHAT,
    "ollama:chat:llama3": CHAT,
    "ollama:llama3:8b": CHAT,
    "ollama:embeddings:m": VECTOR,
    "openai:chat:gpt-4.1": CHAT,
    "openai:gpt-4.1": CHAT,
    "openai:gpt-4o-audio-preview": CHAT,
    "openai:llama-3.1-8b-instruct": CHAT,
    "openai:gpt-4o-transcribe-x": CHAT,
    "openai:ft:gpt-4.1:acme::id": CHAT,
    "openai:gpt-5.6": RESPONSES,
    "openai:responses:gpt-4.1": RESPONSES,
    "openai:embedding:text-embedding-3-small": VECTOR,
    "openai:embeddings:text-embedding-3-small": VECTOR,
    "openai:moderation:omni-moderation-latest": FLAGS,
    "openai:image:gpt-image-1": "images/generations",
    "openai:speech:tts-1": "audio/speech",
    "openai:realtime:gpt-realtime": "v1/realtime",
    "openrouter:meta-llama/llama-3:free": CHAT,
    "orcarouter:openai/gpt-4.1": CHAT,
    "perplexity:sonar": CHAT,
    "portkey:gpt-4.1": CHAT,
    "snowflake:m": CHAT,
    "togetherai:chat:m": CHAT,
    "togetherai:embedding:m": VECTOR,
    "truefoundry:openai-main/gpt-4.1": CHAT,
    "truefoundry:openai-main/text-embedding-3-large": VECTOR,
    "vercel:openai/gpt-4.1": CHAT,
    "vercel:embedding:openai/text-embedding-3-small": VECTOR,
    "voyage:voyage-3": VECTOR,
    "xai:grok-4": CHAT,
    "xai:responses:grok-4": RESPONSES,
}
"""Ids, and the ends of the URLs that are called for them."""

REFUSED = (
    *(f"openai:{kind}:m" for kind in sorted(KINDS_NOT_SUPPORTED["openai"])),
    *("openai:agents-api:a", "openai:codex-sdk", "openai:codex-security", "openai:chatkit"),
    *("openai:gpt-live-1", "openai:gpt-live-transcribe", "openai:chat:gpt-realtime"),
    *("openai:gpt-realtime-whisper", "openai:realtime:gpt-realtime-translate"),
    *("azure:realtime:gpt-realtime-whisper", "cloudflare-gateway:openai:realtime:m"),
    *("openai-sdk:realtime:m", "groq:realtime:m"),
    *("openai:whisper-1", "openai:gpt-4o-transcribe", "openai:gpt-4o-transcribe-diarize"),
    *("anthropic:claude-agent-sdk", "anthropic:claude-agent-sdk:m", "anthropic:claude-code"),
    *("anthropic:completion:claude-2.1", "azure:assistant:a", "azure:foundry-agent:a"),
    *("azure:image:m", "azure:live:m", "azure:video:m"),
    "azure:moderation:text-content-safety",
    *("bedrock:agents:A", "bedrock:kb:m", "bedrock:knowledge-base:m", "bedrock:nova-sonic:m"),
    *("bedrock:nova-sonic", "bedrock:video:amazon.nova-reel-v1:1", "bedrock:embeddings:m"),
    *("bedrock:embedding:m", "bedrock:messages:anthropic.claude-fable-5", "bedrock:mantle:m"),
    *("bedrock:responses:openai.gpt-oss-120b", "bedrock:amazon.nova-sonic-v1:0"),
    *("bedrock:amazon.nova-reel-v1:1", "bedrock:luma.ray-v2:0", "bedrock:anything:m"),
    "cloudflare-gateway:anthropic:m",
    *("cloudflare-gateway:replicate:m", "cometapi:image:m"),
    *("google:live:m", "google:gemini-2.0-flash-live-001", "hyperbolic:audio:m"),
    *("hyperbolic:image:m", "meta:messages:m", "meta:video:m"),
    "nscale:image:m",
    *("voyage:chat:m", "xai:voice:m", "xai:image:m", "xai:video:m", "xai:embedding:m"),
    *("vertex:live:m", "ai21:embedding:m", "snowflake:responses:m"),
    *(f"{prefix}:m" for prefix in sorted(PREFIXES_NOT_SUPPORTED)),
    *("a2a", "browser", "n8n", "openclaw", "opencode", "openinterpreter", "slack"),
    *("elevenlabs:tts:m", "fal:image:m", "promptfoo:manual-input"),
    *(
        "promptfoo:model:m",
        "promptfoo:redteam:goat",
        "replicate:image:m",
        "replicate:moderation:m",
        "slack:channel:c",
    ),
    *("transformers:text-generation:m", "watsonx:chat:m"),
)
"""Ids of kinds that promptfoo has and trioeval does not."""


@pytest.mark.parametrize(("entry_id", "end"), SUPPORTED.items())
def test_a_supported_kind_calls_its_endpoint(entry_id: str, end: str) -> None:
    """The URL is that of the kind, and the model's name is without it."""
    spec = resolve(
        entry_id, {}, environ=ENVIRON, directory=Path(), templates=Templates(), custom={}
    )
    assert isinstance(spec.settings, AdapterSettings)
    url = spec.settings.adapter.build(Request(prompt="Hi")).url
    assert url.partition("?")[0].endswith(end)
    model = spec.settings.adapter.endpoint.model
    assert entry_id.endswith(model)
    assert not re.match(
        r"(chat|responses|embeddings?|embed|moderation|completion|converse|messages):", model
    )


@pytest.mark.parametrize("entry_id", dict.fromkeys(REFUSED))
def test_any_other_kind_is_refused_by_name(entry_id: str) -> None:
    """Before anything is paid; the message says what is supported instead."""
    with pytest.raises(SuiteError) as caught:
        resolve(entry_id, {}, environ=ENVIRON, directory=Path(), templates=Templates(), custom={})
    [problem] = caught.value.problems
    assert problem.path == ".id"
    assert problem.message.endswith("is not supported")
    prefix, _, rest = entry_id.partition(":")
    prefix = ALIASES.get(prefix, prefix)
    named = re.match(r'"([^"]*)"', problem.message)
    assert named is None or f"{prefix}:{rest}".startswith(named[1].removesuffix(":"))
    assert problem.hint
    assert re.search(r"<model>|<command>|https://<url>|has ended|Gemini API", problem.hint)


@pytest.mark.parametrize(
    ("entry_id", "meant"),
    [
        ("openai:text-embedding-3-small", "openai:embedding:text-embedding-3-small"),
        ("azure:text-embedding-ada-002", "azure:embedding:text-embedding-ada-002"),
        ("openai:omni-moderation-latest", "openai:moderation:omni-moderation-latest"),
        ("openai:gpt-image-1", "openai:image:gpt-image-1"),
        ("openai:dall-e-3", "openai:image:dall-e-3"),
        ("openai:gpt-4o-mini-tts", "openai:speech:gpt-4o-mini-tts"),
        ("openai:tts-1", "openai:speech:tts-1"),
        ("openai:sora-2", "openai:video:sora-2"),
        ("openai:gpt-realtime", "openai:realtime:gpt-realtime"),
        ("openai:gpt-4o-mini-realtime-preview", "openai:realtime:gpt-4o-mini-realtime-preview"),
        ("google:imagen-4.0", "google:image:imagen-4.0"),
        ("google:veo-3.1-generate-preview", "google:video:veo-3.1-generate-preview"),
        ("vertex:veo-3.1-generate-001", "vertex:video:veo-3.1-generate-001"),
        ("vertex:imagen-4.0-generate-001", "vertex:image:imagen-4.0-generate-001"),
    ],
)
def test_a_model_of_another_kind_names_the_right_id(entry_id: str, meant: str) -> None:
    """Its chat completions would fail."""
    with pytest.raises(SuiteError) as caught:
        resolve(entry_id, {}, environ=ENVIRON, directory=Path(), templates=Templates(), custom={})
    [problem] = caught.value.problems
    assert problem.hint == f"write {meant}"


def test_the_hint_lists_the_kinds_of_the_prefix() -> None:
    """All of them, in the form of ids."""
    assert supported_forms("openai") == (
        "openai:<model>",
        "openai:chat:<model>",
        "openai:responses:<model>",
        "openai:embedding:<model>",
        "openai:moderation:<model>",
        "openai:completion:<model>",
        "openai:image:<model>",
        "openai:speech:<model>",
        "openai:tts:<model>",
        "openai:video:<model>",
        "openai:realtime:<model>",
    )
    assert supported_forms("voyage") == ("voyage:<model>", "voyage:embedding:<model>")
    assert supported_forms("bedrock") == ("bedrock:<model>", "bedrock:converse:<model>")


def test_a_refused_kind_is_located_in_the_suite(tmp_path: Path) -> None:
    """The message has the place in the file, and nothing is called."""
    file = tmp_path / "suite.yaml"
    file.write_text("providers:\n  - azure:tts:tts-1\nprompts: [Hi]\n")
    with pytest.raises(SuiteError) as caught:
        trioeval.prepare(trioeval.load_suite(file))
    assert (
        str(caught.value)
        .partition("\n")[0]
        .endswith('suite.yaml:2:5: $.providers[0].id: "azure:tts" is not supported')
    )


def test_no_prefix_is_both_supported_and_refused() -> None:
    """Every refused one is unknown here."""
    assert not PREFIXES_NOT_SUPPORTED & {*MODULES, *ALIASES}
    assert not {*ALIASES} & {*MODULES}


def test_a_kind_without_a_model_takes_that_of_the_config() -> None:
    """Ids of promptfoo may leave it out."""
    spec = resolve(
        "openai:chat",
        {"model": "gpt-4.1"},
        environ=ENVIRON,
        directory=Path(),
        templates=Templates(),
        custom={},
    )
    assert spec.identity.model == "gpt-4.1"


def test_a_misspelt_kind_of_anthropic_is_not_a_model() -> None:
    """A request to a model of that name would only be refused after the run has started."""
    entry = "anthropic:mesages:claude-sonnet-4"
    with pytest.raises(SuiteError) as caught:
        resolve(entry, {}, environ=ENVIRON, directory=Path(), templates=Templates(), custom={})
    [problem] = caught.value.problems
    assert (problem.path, problem.message) == (".id", '"mesages" is not a kind of request')
    assert problem.hint == 'did you mean "anthropic:messages:claude-sonnet-4"?'
