"""Who was asked for what, in the words of OpenTelemetry's conventions for generative AI. Pure."""

from collections.abc import Mapping

import attrs

from trioeval.providers.asked import Asked
from trioeval.tasks.journal import CallRecord

_PROVIDERS: Mapping[str, str] = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "google": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}
"""By family, or by the prefix of an id, which is nearer; all others are told as they are called here."""

_OPERATIONS: Mapping[str, str] = {
    "completion": "text_completion",
    "embedding": "embeddings",
    "embeddings": "embeddings",
}
"""By the kind in an id."""

_MOST = 64  # characters of a name


@attrs.frozen(kw_only=True)
class Operation:
    """What a call does, and with whom."""

    name: str
    """As `chat`."""
    provider: str
    model: str | None


def operation_of(call: CallRecord) -> Operation:
    """What a call does.

    Example:
        >>> from trioeval.providers import Reply
        >>> from trioeval.tasks.journal import CallKey
        >>> call = CallRecord(
        ...     key=CallKey(None, 0, "provider", b""),
        ...     provider="mine",
        ...     prompt="Hello",
        ...     answer=Reply(output="Hi"),
        ...     latency_ms=1.0,
        ...     asked=Asked(id="azure:chat:gpt-x", family="azure", model="gpt-x"),
        ... )
        >>> operation_of(call)
        Operation(name='chat', provider='azure.ai.openai', model='gpt-x')
    """
    asked = call.asked or Asked(id=call.provider)
    prefix, *rest = asked.id.split(":")
    if call.key.role == "attempt":
        name = "invoke_agent"
    else:
        name = next((_OPERATIONS[kind] for kind in rest if kind in _OPERATIONS), "chat")
    provider = _PROVIDERS.get(prefix) or _PROVIDERS.get(asked.family or "")
    return Operation(
        name=name, provider=provider or (asked.family or prefix)[:_MOST], model=asked.model
    )
