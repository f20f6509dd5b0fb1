"""The steps of an expansion as the jobs of a plan."""

import attrs

from trioeval.kernel import Job
from trioeval.sequences import LazySequence
from trioeval.suite.expand import Expansion, Step


@attrs.frozen
class StepJobs(LazySequence[Job[Step]]):
    """The jobs of an expansion, made when they are looked at."""

    steps: Expansion
    lanes: tuple[str, ...]
    """Of each provider."""
    timeout: float
    """Seconds of work that each may take."""

    def __len__(self) -> int:
        return len(self.steps)

    def entry(self, index: int) -> Job[Step]:
        """One job."""
        step = self.steps[index]
        return Job(step.index, self.lanes[step.provider_index], step, self.timeout)


def timeout_of(steps: Expansion) -> float:
    """Seconds of work that each step of a suite may take; infinite where it does not say."""
    timeout_ms = steps.suite.evaluate_options.timeout_ms
    return timeout_ms / 1000 if timeout_ms else float("inf")
