"""What a request used, in tokens."""

import attrs


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens as the provider reported them; what it did not report is None, never an estimate."""

    prompt: int | None = None
    """All tokens of the prompt, those from and into a cache among them."""
    completion: int | None = None
    """All tokens of the reply, those of its reasoning among them."""
    total: int | None = None
    cached: int | None = None
    """Prompt tokens served from the provider's own cache."""
    cache_creation: int | None = None
    """Prompt tokens written to the provider's own cache."""
    reasoning: int | None = None
    accepted_prediction: int | None = None
    rejected_prediction: int | None = None
