"""Kinds of providers that promptfoo has and trioeval does not; none is ever taken for a model's name.

Without these tables it would be called as one: `openai:tts:tts-1` as the chat model `tts:tts-1`.
"""

import difflib
import re
from collections.abc import Iterable, Mapping

from trioeval.errors import Problem
from trioeval.providers.http.endpoint import KINDS
from trioeval.providers.vendors.services import (
    ANY_SERVICE,
    GATEWAY,
    OPENAI_MEDIA,
    REALTIME,
    SERVICES,
)

_MEDIA = frozenset({"audio", "image", "video"})
_OPENAI = frozenset(
    {
        *_MEDIA,
        *("agents", "agents-api", "assistant", "chatkit", "codex", "codex-app-server"),
        *("codex-desktop", "codex-sdk", "codex-security", "live", REALTIME),
        *("speech", "transcription", "tts"),
    }
)
_CLAUDE = frozenset({"claude-agent-sdk", "claude-code", "completion"})
_GEMINI = frozenset({"audio", "live"})

KINDS_NOT_SUPPORTED: Mapping[str, frozenset[str]] = {
    **dict.fromkeys((*SERVICES, ANY_SERVICE, GATEWAY), _OPENAI),
    "anthropic": _CLAUDE,
    "azure": (_OPENAI - {REALTIME}) | {"foundry-agent", "moderation"},
    "bedrock": frozenset(
        {
            *("agents", "embedding", "embeddings", "image", "kb", "knowledge-base", "mantle"),
            *("messages", "nova-sonic", "responses", "video"),
        }
    ),
    "gemini": _GEMINI,
    "google": _GEMINI,
    "vertex": _GEMINI,
    "replicate": frozenset({"image", "moderation"}),
    "openai": _OPENAI - {*OPENAI_MEDIA, REALTIME},
    "meta": _OPENAI | {"embedding", "embeddings", "messages", "moderation"},
    "xai": _OPENAI | {"embedding", "embeddings", "voice"},
}
"""Kinds of requests, by prefix."""

_ONE_WAY = r"^realtime:gpt-realtime-(?:translate|whisper)$"
"""Models of the Realtime API that hold no conversation."""
_LIVE_GEMINI = re.compile(r"-(?:live|native-audio)(?:-|$)")

MODELS_NOT_SUPPORTED: Mapping[str, re.Pattern[str]] = {
    "bedrock": re.compile(
        r"amazon\.nova-(?:sonic|reel|canvas)|luma\.ray|stability\.|titan-(?:embed|image)"
    ),
    "gemini": _LIVE_GEMINI,
    "google": _LIVE_GEMINI,
    "azure": re.compile(_ONE_WAY),
    "openai": re.compile(
        rf"{_ONE_WAY}|^gpt-realtime-(?:translate|whisper)$|^(?!realtime:).*:.*\brealtime\b"
        r"|^(?:gpt-live|whisper)-"
        r"|^gpt-[\w.-]+-transcribe(?:-diarize|-\d{4}-\d{2}-\d{2})?$"
    ),
}
"""Models that are called in another way than all others of their prefix."""

_VECTORS = (
    (re.compile(r"^text-embedding-"), "embedding"),
    (re.compile(r"^(?:omni|text)-moderation-"), "moderation"),
)
_OPENAI_MEDIA = (
    (re.compile(r"^(?:chatgpt-image|dall-e|gpt-image)-"), "image"),
    (re.compile(r"^tts-|^gpt-[\w.-]+-tts(?:-\d{4}-\d{2}-\d{2})?$"), "speech"),
    (re.compile(r"^sora-"), "video"),
    (re.compile(r"^(?:[\w.]+-)*realtime(?:-[\w.-]+)?$"), REALTIME),
)
_GEMINI_MEDIA = ((re.compile(r"^imagen-"), "image"), (re.compile(r"^veo-"), "video"))

_KINDS_OF_MODELS: Mapping[str, tuple[tuple[re.Pattern[str], str], ...]] = {
    "azure": _VECTORS,
    "gemini": _GEMINI_MEDIA,
    "google": _GEMINI_MEDIA,
    "openai": (*_VECTORS, *_OPENAI_MEDIA),
    "vertex": _GEMINI_MEDIA,
}
"""The kinds of models that have no chat completions, by prefix."""

PREFIXES_NOT_SUPPORTED = frozenset(
    {
        *("a2a", "agentic", "bam", "bedrock-agent", "browser", "elevenlabs", "fal", "github"),
        *("golang", "llama", "modelslab", "n8n", "openclaw"),
        *("opencode", "openinterpreter", "package", "promptfoo", "quiverai"),
        *("ruby", "slack", "transformers", "transformers.js", "watsonx", "webhook"),
    }
)
"""Prefixes that other tools support."""

_OWN = "https://<url>, python:<file> and exec:<command> can call anything else"
_AGENT = "use exec:<command> in a task of type agent to run its command line"
_INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("claude-agent-sdk", "claude-code", "codex", "codex-app-server", "codex-desktop"),
            *("codex-sdk", "codex-security"),
        ),
        _AGENT,
    ),
    **dict.fromkeys(
        ("realtime:gpt-realtime-translate", "realtime:gpt-realtime-whisper"),
        f"this model only transcribes or translates, and holds no conversation; {_OWN}",
    ),
    "bam": "IBM has ended the service",
    "github": "GitHub has ended the service",
    "llama": "use llamacpp:<model>, which calls the chat completions of llama.cpp",
    "openinterpreter": _AGENT,
    "promptfoo": "it runs on promptfoo's servers; use python:<file> or exec:<command>",
    "opencode": _AGENT,
}
_SIMULATED = "simulated-user"
_PROGRAM = re.compile(r"\.(go|rb)(?::\w+)?$")
_BEDROCK_KIND = re.compile(r"[a-z-]+(?=:)")
"""A word before a colon: ids of Bedrock's models have a dot before the first colon."""


def supported_forms(prefix: str) -> tuple[str, ...]:
    """Return the forms of ids that a prefix supports.

    Example:
        >>> supported_forms("anthropic")
        ('anthropic:<model>', 'anthropic:messages:<model>')
    """
    if prefix in SERVICES or prefix == ANY_SERVICE or prefix.startswith(f"{ANY_SERVICE}:"):
        service = SERVICES.get(prefix)
        kinds = KINDS if service is None else service.kinds
    else:
        kinds = {
            "anthropic": ("messages",),
            "bedrock": ("converse",),
            "vertex": ("chat", "embedding", "image", "video"),
            "gemini": ("embedding", "image", "video"),
            "google": ("embedding", "image", "video"),
        }.get(prefix, ())
    named = (f"{prefix}:{kind}:<model>" for kind in kinds if kind != "embeddings")
    return (f"{prefix}:<model>", *named)


def kind_problem(prefix: str, kind: str, kinds: Iterable[str] = ()) -> Problem:
    """Return the problem of a kind of request that a prefix does not have.

    Args:
        prefix: The prefix of the id.
        kind: The kind, or the model that needs it.
        kinds: The kinds that it has; those of `supported_forms` if empty.
    """
    forms = tuple(f"{prefix}:{one}:<model>" for one in kinds) or supported_forms(prefix)
    hint = f"supported are {', '.join(forms)}; {_INSTEAD.get(kind, _OWN)}"
    return Problem(".id", f'"{prefix}:{kind}" is not supported', hint)


def not_supported(prefix: str, rest: str) -> Problem | None:
    r"""Return the problem of an id from another tool whose kind of provider does not exist here.

    Example:
        >>> str(not_supported("azure", "tts:tts-1")).partition("\n")[0]
        '.id: "azure:tts" is not supported'
        >>> not_supported("openai", "gpt-4.1") is None
        True
    """
    file = rest if prefix == "python" else "" if rest else prefix
    if program := _PROGRAM.search(file):
        runner = {"go": "go run", "rb": "ruby"}[program[1]]
        hint = f"write the provider in Python, or run the file with exec:{runner} {file}"
        return Problem(".id", f'"{file}" is not a Python file', hint)
    if prefix == "promptfoo" and (problem := _user_problem(rest)) is not None:
        return problem
    if prefix in PREFIXES_NOT_SUPPORTED:
        hint = f"if its API is compatible with OpenAI, use openai:<model> with apiBaseUrl; {_OWN}"
        return Problem(".id", f'"{prefix}:" is not supported', _INSTEAD.get(prefix, hint))
    plain = prefix.removesuffix("-sdk")
    service, colon, behind = rest.partition(":")
    if plain in (ANY_SERVICE, GATEWAY) and colon:
        prefix, plain, rest = f"{prefix}:{service}", service, behind
    kind = rest.partition(":")[0]
    is_sdk = prefix != plain
    if kind in KINDS_NOT_SUPPORTED.get(plain, ()) or (is_sdk and kind in (*OPENAI_MEDIA, REALTIME)):
        return kind_problem(prefix, kind)
    if plain == "bedrock" and (found := _BEDROCK_KIND.match(rest)):
        known = found[0] in ("arn", "completion", "converse")
        return None if known else kind_problem(prefix, found[0])
    model = MODELS_NOT_SUPPORTED.get(plain)
    if model is not None and model.search(rest):
        return kind_problem(prefix, rest)
    for pattern, right in _KINDS_OF_MODELS.get(prefix, ()):
        if rest != right and pattern.search(rest):
            fault = f'"{rest}" is not a model of chat completions'
            return Problem(".id", fault, f"write {prefix}:{right}:{rest}")
    return None


def _user_problem(rest: str) -> Problem | None:
    """Return the problem of a simulated user in the place of a provider, or with a misspelt name."""
    id_ = f"promptfoo:{rest}"
    if rest == _SIMULATED:
        fault = f'"{id_}" talks to the providers of the suite, and is none of them'
        return Problem(".id", fault, "make it the provider of defaultTest or of a test, an object")
    if difflib.get_close_matches(rest, [_SIMULATED], n=1):
        hint = f'did you mean "promptfoo:{_SIMULATED}"?'
        return Problem(".id", f'"{id_}" is not supported', hint)
    return None
