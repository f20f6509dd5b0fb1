"""The provider interface: an async callable that takes one request and returns one reply, or raises.

A provider sends one request and closes everything it opened. It neither retries nor limits calls: the
lane does. Cancelling the call ends it at once.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from trioeval.rates.throttle import RateHint
from trioeval.usage import Usage


@attrs.frozen(kw_only=True)
class ModelIdentity:
    """The identity of a model and its server, as far as it is known before a call. Holds no secret."""

    id: str
    """The provider's id in the suite."""
    family: str | None = None
    """The kind of service, such as `openai` or `azure`; None for a provider that is not a service."""
    model: str | None = None
    """The model's name at the service."""
    host: str | None = None
    """The server's host."""
    port: int | None = None
    """The server's port; None without a host."""


@attrs.frozen(kw_only=True)
class Request:
    """One request to a provider."""

    prompt: str
    """The rendered prompt text; chat prompts are their JSON or YAML text."""
    vars: Mapping[str, Any] = attrs.field(factory=dict)
    """The variables of the test, for providers that read them."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Config keys that differ for this one call."""
    test_idx: int = 0
    prompt_idx: int = 0
    repeat_index: int = 0


@attrs.frozen(kw_only=True)
class Guardrails:
    """The result of the provider's own content filters for prompt and reply."""

    flagged: bool
    flagged_input: bool = False
    flagged_output: bool = False
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Reply:
    """The result of one call to a provider."""

    output: Any
    """Text, or structured output (tool calls, parsed JSON, a vector of an embedding)."""
    usage: Usage = attrs.field(factory=Usage)
    hint: RateHint | None = attrs.field(default=None, repr=False)
    """The provider's limits as reported by this reply; None if not reported."""
    cost: float | None = None
    """US dollars; None if no price is known."""
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls`, `content_filter`, or the provider's term in lower case."""
    is_refusal: bool = False
    guardrails: Guardrails | None = None
    """None if the provider reports nothing about filters."""
    log_probs: tuple[float, ...] | None = attrs.field(default=None, repr=False)
    """Natural logarithms of the probabilities of the reply's tokens; None if not requested."""
    first_token: float | None = None
    """Seconds from the request to the first token; None if not measured (`metrics: ttft`)."""
    raw: Any = attrs.field(default=None, repr=False)
    """The parsed body, if there is one."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """`http` (status, headers without credentials), `id`, `model`."""


class Provider(Protocol):
    """An async callable from `Request` to `Reply`; a returned string is the reply's output.

    Raises:
        ProviderError: The call failed in a known way. Any other exception is recorded as `unexpected`.
    """

    async def __call__(self, request: Request, /) -> Reply | str:
        """Answer one request."""
        ...
