"""Who was asked for what, in the words of OpenTelemetry's conventions for generative AI. Pure.

An attempt of an agent is written down like a call, and is told as the invocation of an agent; the calls that
a model makes as an agent are told like all others.
"""

from collections.abc import Mapping

import attrs

from trioeval.providers import Reply
from trioeval.providers.asked import Asked
from trioeval.tasks.agents.recorded import end_of
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
    agent: str | None = None
    """Who was set to work, if it is no call but an attempt of an agent."""

    @property
    def title(self) -> str:
        """What its span is called."""
        what = self.model if self.agent is None else self.agent
        return self.name if what is None else f"{self.name} {what}"


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
        Operation(name='chat', provider='azure.ai.openai', model='gpt-x', agent=None)
    """
    asked = call.asked or Asked(id=call.provider)
    prefix, *rest = asked.id.split(":")
    is_agent = isinstance(call.answer, Reply) and end_of(call.answer) is not None
    name = next((_OPERATIONS[kind] for kind in rest if kind in _OPERATIONS), "chat")
    provider = _PROVIDERS.get(prefix) or _PROVIDERS.get(asked.family or "")
    return Operation(
        name="invoke_agent" if is_agent else name,
        provider=provider or (asked.family or prefix)[:_MOST],
        model=asked.model,
        agent=call.provider if is_agent else None,
    )
