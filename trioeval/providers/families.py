"""Which module reads the entries of a prefix.

Modules are named here and imported when an entry needs them: a suite of echoes loads no vendor.
"""

import importlib
import re
from collections.abc import Mapping

from trioeval.errors import Problem
from trioeval.providers.settings import Reader
from trioeval.providers.vendors.services import ANY_SERVICE, SERVICES

MODULES: Mapping[str, str] = {
    "echo": "local.echo",
    "sequence": "local.sequence",
    "replay": "local.replay",
    "sim": "local.sim",
    "local": "local.embedding",
    **dict.fromkeys((*SERVICES, ANY_SERVICE), "vendors.openai"),
    "anthropic": "vendors.anthropic",
    "google": "vendors.gemini",
    "gemini": "vendors.gemini",
    "vertex": "vendors.gemini",
    "http": "generic.http",
    "https": "generic.http",
    "exec": "programs.exec",
    "python": "programs.python",
    "openai-sdk": "sdk.entries",
    "anthropic-sdk": "sdk.entries",
    "google-sdk": "sdk.entries",
    "bedrock": "sdk.bedrock",
}
"""By prefix; each module has a function `read`."""

LOCAL = frozenset({"echo", "local", "replay", "sequence", "sim"})
"""Prefixes of entries that call no server."""

CODE = frozenset({"exec", "python"})
"""Prefixes of entries that run code on this machine; all others ask a server."""

FORMS = (
    "echo",
    "sequence",
    "replay:<file>",
    "sim:<name>",
    "local:embedding",
    "local:embedding:<folder>",
    "openai:<model>",
    "openai:<kind>:<model>",
    "<service>:<model>",
    f"{ANY_SERVICE}:<service>:<model>",
    "anthropic:<model>",
    "google:<model>",
    "bedrock:<model>",
    "openai-sdk:<model>",
    "anthropic-sdk:<model>",
    "google-sdk:<model>",
    "https://<url>",
    "exec:<command>",
    "python:<file>",
)
"""What ids look like, for messages; services are those of `SERVICES`."""


_IMAGES = frozenset({"image", "video"})
_OPENAI = frozenset(
    {
        *_IMAGES,
        *("agents", "assistant", "chatkit", "codex", "codex-app-server", "codex-desktop"),
        *("codex-sdk", "completion", "realtime", "speech", "transcription", "tts"),
    }
)
_CLAUDE = frozenset({"claude-agent-sdk", "claude-code", "completion"})
_GEMINI = frozenset({*_IMAGES, "live"})

KINDS_NOT_SUPPORTED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys((*SERVICES, ANY_SERVICE), _OPENAI),
    "anthropic": _CLAUDE,
    "azure": _OPENAI | {"foundry-agent", "moderation"},
    "bedrock": frozenset(
        {
            *("agents", "completion", "converse", "embedding", "embeddings", "kb"),
            *("knowledge-base", "nova-sonic", "video"),
        }
    ),
    "gemini": _GEMINI,
    "google": _GEMINI,
    "mistral": _OPENAI | {"embed"},
    "xai": _OPENAI | {"embedding", "embeddings", "voice"},
}
"""By prefix, what other tools know behind it, which must not be taken for a model's name."""

_MODELS_NOT_SUPPORTED = {
    "bedrock": re.compile(r"amazon\.nova-(?:sonic|reel)|luma\.ray"),
    "openai": re.compile(r"(?:^|-)realtime(?:-|$)"),
}

_PREFIXES_NOT_SUPPORTED = frozenset(
    {
        *("abliteration", "agentic", "ai21", "aimlapi", "alibaba", "alicloud", "aliyun"),
        *("atlascloud", "bam", "bedrock-agent", "browser", "cloudera", "cloudflare-ai"),
        *("cloudflare-gateway", "cohere", "cometapi", "dashscope", "docker", "elevenlabs"),
        *("envoy", "f5", "fal", "github", "golang", "helicone", "hf", "huggingface"),
        *("hyperbolic", "jfrog", "llama", "llamaapi", "mcp", "modelslab", "nscale"),
        *("openclaw", "opencode", "package", "palm", "portkey", "promptfoo", "quiverai"),
        *("qwak", "replicate", "ruby", "sagemaker", "slack", "snowflake", "transformers"),
        *("transformers.js", "truefoundry", "vercel", "voyage", "watsonx", "webhook"),
        *("websocket", "ws", "wss"),
    }
)
"""Prefixes that other tools know."""

_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "claude-agent-sdk",
            "claude-code",
            "codex",
            "codex-app-server",
            "codex-desktop",
            "codex-sdk",
        ),
        "write exec:<command> in a task of type agent to run its command line",
    ),
    "converse": "write bedrock:<model>, which uses Converse",
    "embed": "write mistral:embedding:<model>",
}
_PROGRAM = re.compile(r"\.([cm]?[jt]s|go|rb)(?::\w+)?$")
_OWN = "https://<url>, python:<file> or exec:<command> can ask anything else"


def not_supported(prefix: str, rest: str) -> Problem | None:
    r"""The problem of an id of another tool whose kind of provider does not exist here.

    Example:
        >>> str(not_supported("openai", "tts:tts-1")).partition("\n")[0]
        '.id: "openai:tts" is not supported'
        >>> not_supported("openai", "gpt-4.1") is None
        True
    """
    file = rest if prefix == "python" else "" if rest else prefix
    if program := _PROGRAM.search(file):
        runner = {"s": "node", "o": "go run", "b": "ruby"}[program[1][-1]]
        hint = f"write it in Python, or run it with exec:{runner} {file}"
        return Problem(".id", f'"{file}" is not Python: providers are Python files', hint)
    if prefix in _PREFIXES_NOT_SUPPORTED:
        hint = f"if its API is that of OpenAI, write openai:<model> with apiBaseUrl; {_OWN}"
        return Problem(".id", f'"{prefix}:" is not supported', hint)
    plain = prefix.removesuffix("-sdk")
    service, colon, behind = rest.partition(":")
    if plain == ANY_SERVICE and colon:
        prefix, plain, rest = f"{prefix}:{service}", service, behind
    kind = rest.partition(":")[0]
    model = _MODELS_NOT_SUPPORTED.get(plain)
    if kind in KINDS_NOT_SUPPORTED.get(plain, frozenset()):
        named = kind
    elif model is not None and model.search(rest):
        named = rest
    else:
        return None
    hint = _INSTEAD.get(named, f"write {prefix}:<model>; {_OWN}")
    return Problem(".id", f'"{prefix}:{named}" is not supported', hint)


def find_reader(prefix: str) -> Reader | None:
    """Who reads the entries of a prefix; None if nobody does."""
    module = MODULES.get(prefix)
    if module is None:
        return None
    reader: Reader = importlib.import_module(f"trioeval.providers.{module}").read
    return reader
