"""What a provider is: an async callable that takes one request and gives one reply, or raises.

A provider sends one request and closes everything it opened. It never retries and never limits:
that is the lane's work. Cancelling the call ends it at once.
"""

from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from trioeval.rates.throttle import RateHint
from trioeval.usage import Usage

# Who answers, in words that others than a suite understand.


@attrs.frozen(kw_only=True)
class Asked:
    """Who is asked, as far as that is known before a call. Holds no secret."""

    id: str
    """As the suite says it."""
    family: str | None = None
    """What kind of service it is, as `openai` or `azure`; None of what is no service."""
    model: str | None = None
    """As the service knows it."""
    host: str | None = None
    """Of the server."""
    port: int | None = None
    """Likewise; None where there is no host."""


@attrs.frozen(kw_only=True)
class Request:
    """What a provider is asked."""

    prompt: str
    """The rendered prompt text; chat prompts are their JSON or YAML text."""
    vars: Mapping[str, Any] = attrs.field(factory=dict)
    """The variables of the test, for providers that look at them."""
    options: Mapping[str, Any] = attrs.field(factory=dict)
    """Keys of the entry's config that are different for this one call."""
    test_idx: int = 0
    prompt_idx: int = 0
    repeat_index: int = 0


@attrs.frozen(kw_only=True)
class Guardrails:
    """What the provider's own filters said of prompt and reply."""

    flagged: bool
    flagged_input: bool = False
    flagged_output: bool = False
    reason: str | None = None


@attrs.frozen(kw_only=True)
class Reply:
    """What a provider answered."""

    output: Any
    """Text, or structured output (tool calls, parsed JSON, a vector of an embedding)."""
    usage: Usage = attrs.field(factory=Usage)
    hint: RateHint | None = attrs.field(default=None, repr=False)
    """What it says of the provider's limits; None where it says nothing."""
    cost: float | None = None
    """US dollars; None where no price is known."""
    finish_reason: str | None = None
    """`stop`, `length`, `tool_calls`, `content_filter`, or the provider's word in lower case."""
    is_refusal: bool = False
    guardrails: Guardrails | None = None
    """None where the provider says nothing of filters."""
    log_probs: tuple[float, ...] | None = attrs.field(default=None, repr=False)
    """Natural logarithms of the probabilities of the reply's tokens; None where not asked for."""
    first_token: float | None = None
    """Seconds from the request to the first token; None where it was not measured (`metrics: ttft`)."""
    raw: Any = attrs.field(default=None, repr=False)
    """The parsed body, where there was one."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    """`http` (status, headers without credentials), `id`, `model`."""


class Provider(Protocol):
    """An async callable from `Request` to `Reply`; a plain text is taken as the reply's output.

    Raises:
        ProviderError: The call failed in a known way. Any other exception is kept as `unexpected`.
    """

    async def __call__(self, request: Request, /) -> Reply | str:
        """Answer one request."""
        ...
