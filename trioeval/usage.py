"""The token usage of requests."""

from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Usage:
    """Tokens as the provider reported them; unreported numbers are None, never an estimate."""

    prompt: int | None = None
    """All tokens of the prompt, including those read from and written to a cache."""
    completion: int | None = None
    """All tokens of the reply, including those of its reasoning."""
    total: int | None = None
    cached: int | None = None
    """Prompt tokens served from the provider's own cache; all tokens of a reply from ours."""
    cache_creation: int | None = None
    """Prompt tokens written to the provider's own cache."""
    reasoning: int | None = None
    accepted_prediction: int | None = None
    rejected_prediction: int | None = None

    @property
    def in_all(self) -> int | None:
        """All tokens; None if neither their number nor those of prompt and completion are reported.

        Example:
            >>> Usage(prompt=2, completion=1).in_all, Usage(prompt=2).in_all
            (3, None)
        """
        if self.total is not None or self.prompt is None or self.completion is None:
            return self.total
        return self.prompt + self.completion

    @property
    def reported(self) -> int | None:
        """All tokens as far as they are reported: of a reply that broke off, perhaps only its prompt.

        None if nothing is reported.

        Example:
            >>> Usage(prompt=2, completion=1).reported, Usage(prompt=2).reported, Usage().reported
            (3, 2, None)
        """
        if self.total is not None or (self.prompt is None and self.completion is None):
            return self.total
        return (self.prompt or 0) + (self.completion or 0)

    @property
    def is_zero(self) -> bool:
        """True if no number is reported, except zeros.

        Example:
            >>> Usage(total=0).is_zero, Usage(reasoning=1).is_zero
            (True, False)
        """
        return not (
            self.prompt
            or self.completion
            or self.total
            or self.cached
            or self.cache_creation
            or self.reasoning
            or self.accepted_prediction
            or self.rejected_prediction
        )

    @classmethod
    def sum(cls, several: Iterable["Usage"]) -> "Usage":
        """Return the sum of several usages; numbers that none of them reports stay None.

        The total is that of all reported tokens.

        Example:
            >>> both = Usage.sum([Usage(prompt=1), Usage(prompt=2, total=5)])
            >>> both.prompt, both.total, both.cached
            (3, 6, None)
        """
        # Called for each cell of a dataset: without a list for each number.
        sums: dict[str, int] = {}
        for one in several:
            for name, value in zip(_NUMBERS, _numbers_of(one), strict=True):
                if value is not None:
                    sums[name] = sums.get(name, 0) + value
        return cls(**sums)


_NUMBERS = tuple(field.name for field in attrs.fields(Usage))
_numbers_of: Callable[[Usage], tuple[int | None, ...]] = attrgetter(
    *("reported" if name == "total" else name for name in _NUMBERS)
)


def tokens_json(usage: Usage, requests: int) -> dict[str, Any]:
    """Return the usage of some requests as promptfoo writes it; unreported numbers count as 0.

    Example:
        >>> tokens_json(Usage(total=3), 1)["total"], tokens_json(Usage(total=3), 1)["prompt"]
        (3, 0)
    """
    return {
        "prompt": usage.prompt or 0,
        "completion": usage.completion or 0,
        "cached": usage.cached or 0,
        "total": usage.reported or 0,
        "numRequests": requests,
        "completionDetails": {
            "reasoning": usage.reasoning or 0,
            "acceptedPrediction": usage.accepted_prediction or 0,
            "rejectedPrediction": usage.rejected_prediction or 0,
            "cacheReadInputTokens": usage.cached or 0,
            "cacheCreationInputTokens": usage.cache_creation or 0,
        },
    }
