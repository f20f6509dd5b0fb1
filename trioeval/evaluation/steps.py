"""The steps of an expansion as the jobs of a plan."""

from collections.abc import Sequence
from typing import overload

import attrs

from trioeval.kernel import Job
from trioeval.suite.expand import Expansion, Step


@attrs.frozen
class StepJobs(Sequence[Job[Step]]):
    """The jobs of an expansion, made when they are looked at."""

    steps: Expansion
    lanes: tuple[str, ...]
    """Of each provider."""
    timeout: float
    """Seconds of work that each may take."""

    def __len__(self) -> int:
        return len(self.steps)

    @overload
    def __getitem__(self, index: int) -> Job[Step]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job[Step]]: ...
    def __getitem__(self, index: int | slice) -> Job[Step] | Sequence[Job[Step]]:
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        step = self.steps[index]
        return Job(step.index, self.lanes[step.provider_index], step, self.timeout)


def timeout_of(steps: Expansion) -> float:
    """Seconds of work that each step of a suite may take; infinite where it does not say."""
    timeout_ms = steps.suite.evaluate_options.timeout_ms
    return timeout_ms / 1000 if timeout_ms else float("inf")
