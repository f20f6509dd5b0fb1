"""Random complete runs with faults per second, on a virtual clock, each checked against every law.

    python tests/bench/simulated_runs.py [RUNS] [SEED]

Errors, refusals in bursts, calls that hang until they are cut, cancellation, deadline and stop at drawn
instants, dependencies, budgets, retuned lanes. Stops at the first law that is broken.
"""

import sys
import time
from collections import Counter

import hypothesis
from hypothesis import strategies as st

from trioeval.testing import RunScenario, check_all, faulty_scenarios, run_scenario


def main(runs: int = 10_000, seed: int = 1) -> None:
    """Print the figures."""
    outcomes: Counter[str] = Counter()
    requests = 0

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=runs,
        deadline=None,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(scenario=faulty_scenarios(), _schedule=st.random_module())
    def hold(scenario: RunScenario, _schedule: object) -> None:
        nonlocal requests
        trace = run_scenario(scenario)
        check_all(trace)
        requests += len(trace.calls)
        outcomes.update(type(emission.outcome).__name__ for emission in trace.emissions)

    started = time.perf_counter()
    hold()
    spent = time.perf_counter() - started
    drawn = ", ".join(f"{count} {name}" for name, count in outcomes.most_common())
    print(f"{runs} runs without a law broken in {spent:.0f} s: {runs / spent:.0f} a second")
    print(f"{requests} requests, outcomes: {drawn}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
