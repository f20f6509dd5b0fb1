"""The suite of a simulation: everything that its result depends on."""

import math
from collections.abc import Mapping, Sequence

import attrs

from trioeval.errors import UsageError
from trioeval.evaluation.prepared import PreparedSuite
from trioeval.kernel import LaneSpec
from trioeval.limits import SharedLimit
from trioeval.limits.backend import definitions_of
from trioeval.limits.limits_file import read_limits
from trioeval.limits.model import LimitKey, LimitState
from trioeval.simulation.datasets import SimulatedDataset
from trioeval.simulation.model import ProviderModel, ServerLimits
from trioeval.simulation.rows import SimulatedTask, simulated_tasks
from trioeval.suite.model import BudgetSettings


@attrs.frozen(kw_only=True)
class SimulatedSuite:
    """Everything that a simulation depends on."""

    tasks: Sequence[SimulatedTask | SimulatedDataset]
    specs: Sequence[LaneSpec]
    """The lanes."""
    models: Mapping[str, ProviderModel]
    """The model of each provider and judge, by its label or id."""
    limits: Mapping[str, ServerLimits] = attrs.field(factory=dict)
    """The limits of the server of each lane; other lanes have an unlimited one."""
    keys: Mapping[str, int] = attrs.field(factory=dict)
    """Lanes whose rows are divided between several keys, each with a lane and limits of its own."""
    cap: int | None = None
    """Calls in flight on all lanes together."""
    budget: BudgetSettings | None = None
    deadline: float = math.inf
    """Seconds after which the run is cut."""
    shared: Sequence[SharedLimit] = ()
    """The limits that its lanes share with other programs, which are assumed to be idle."""
    lane_limits: Mapping[str, tuple[LimitKey, ...]] = attrs.field(factory=dict)
    """Those of them that the calls of each lane count against."""
    seed: int = 0

    @classmethod
    def of(
        cls,
        prepared: PreparedSuite,
        models: Mapping[str, ProviderModel],
        *,
        limits: Mapping[str, ServerLimits] | None = None,
        seed: int = 0,
    ) -> "SimulatedSuite":
        """Return the simulation of a prepared suite, with its own lanes, budget and deadline.

        Args:
            prepared: The suite.
            models: The model of each provider and judge that it calls, by label or id.
            limits: The limits of some of their servers, by label or id.
            seed: The seed of all random choices.

        Raises:
            SuiteError: A task cannot be simulated.
            UsageError: A provider has no model, or the suite has no provider of a name.
        """
        tasks = simulated_tasks(prepared)
        lanes = {
            spec.name: task.prepared.lane_names[place]
            for task in tasks
            for place, spec in task.called()
        }
        named = {} if limits is None else limits
        if missing := [name for name in lanes if name not in models]:
            raise UsageError(f"provider {missing[0]} has no model")
        if strange := [name for name in (*models, *named) if name not in lanes]:
            raise UsageError(f"the suite calls no provider {strange[0]}: it has {', '.join(lanes)}")
        options, shared = prepared.suite.evaluate_options, shared_limits(prepared)
        known = {limit.key for limit in shared}
        keys = {
            lane: tuple(one for one in own if one.key in known)
            for lane, own in prepared.lane_limits.items()
        }
        return cls(
            tasks=tasks,
            specs=prepared.lane_specs,
            models=models,
            limits={lanes[name]: one for name, one in named.items()},
            cap=options.max_total_concurrency,
            budget=options.budget,
            deadline=options.max_eval_time_ms / 1000 if options.max_eval_time_ms else math.inf,
            shared=shared,
            lane_limits={lane: own for lane, own in keys.items() if own},
            seed=seed,
        )

    @property
    def rows(self) -> int:
        """The number of simulated rows."""
        return sum(task.rows for task in self.tasks)

    @property
    def all_rows(self) -> int:
        """The number of rows of the suite."""
        return sum(task.all_rows for task in self.tasks)

    def lanes_of(self, lane: str) -> tuple[str, ...]:
        """Return the lanes that replace a lane: itself, or one for each key."""
        keys = self.keys.get(lane, 1)
        return (lane, *(f"{lane}#{number}" for number in range(2, keys + 1)))

    def first(self, most: int) -> "SimulatedSuite":
        """Return the suite with about as many rows, the first ones of each task."""
        if self.rows <= most:
            return self
        share = most / self.rows
        return attrs.evolve(
            self, tasks=[task.first(math.ceil(task.rows * share)) for task in self.tasks]
        )


def shared_limits(prepared: PreparedSuite) -> Sequence[SharedLimit]:
    """Return the shared limits that a suite defines; in other backends there may be more.

    Raises:
        SuiteError: The file of limits is invalid.
        LimitError: Two of them have the same key.
    """
    settings = prepared.suite.limits
    if settings is None or not prepared.lane_limits:
        return ()
    states = [LimitState(limit=limit) for limit in settings.define or ()]
    if settings.file is not None:
        states += read_limits(settings.file)
    return definitions_of(states)
