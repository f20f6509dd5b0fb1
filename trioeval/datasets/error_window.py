"""When so many calls have failed for good that trying the rest is a waste. Pure."""


class FailureWindow:
    """The last calls of a dataset.

    Args:
        calls: How many are looked at, ≥ 1. Before there are so many, nothing follows.
        error_rate: The part of them that failed for good, in (0, 1].
    """

    def __init__(self, calls: int, error_rate: float) -> None:
        raise NotImplementedError

    def add(self, *, failed: bool) -> bool:
        """A call has ended, well or for good. Refusals for now and mishaps are not to be told.

        Returns:
            Whether it is time to give up.
        """
        raise NotImplementedError


class MishapWarning:
    """Whether to warn of many mishaps: half of the last 20 calls, at most once in 60 seconds."""

    def add(self, *, mishap: bool, now: float) -> bool:
        """A call has ended at `now` (seconds). Returns whether to warn."""
        raise NotImplementedError
