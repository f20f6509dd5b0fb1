"""Scripted runs as data: the calls and durations of every job, and the interventions during the run."""

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import Fault
from trioeval.kernel import Edge, LaneSpec
from trioeval.rates import RateHint


class ScriptedError(Exception):
    """The failure that a scripted call was configured to raise."""


@attrs.frozen
class Pause:
    """Work of the body itself for some seconds, without a slot."""

    duration: float


@attrs.frozen
class AttemptScript:
    """One request of a script: it takes some seconds, then succeeds or fails."""

    duration: float
    fault: Fault | None = None
    """The kind of failure that the lane sees; None succeeds."""
    retry_after: float | None = None
    """Seconds that the failure asks to wait."""
    tokens: int | None = None
    """Tokens that it used; None assumes the number that the call reserved."""
    hint: RateHint | None = None
    """The server's limits that its reply reports."""


@attrs.frozen
class CallScript:
    """One call: a single request, or one for each attempt."""

    lane: str
    duration: float
    fails: bool = False
    """True if it ends in an error that carries no information for its lane."""
    patience: float = math.inf
    """Seconds after which the body cancels it, waiting or in flight."""
    attempts: tuple[AttemptScript, ...] = ()
    """Its requests in turn, the last one repeated; replaces `duration`."""
    tokens: int = 0
    """Tokens reserved for each request."""

    def attempt(self, number: int) -> AttemptScript:
        """Return the attempt with this number, from 0."""
        if not self.attempts:
            return AttemptScript(self.duration)
        return self.attempts[min(number, len(self.attempts) - 1)]


@attrs.frozen
class Together:
    """Several calls at once, in a nursery of the body."""

    calls: tuple[CallScript, ...]


Action: TypeAlias = Pause | CallScript | Together
Known: TypeAlias = Literal["yes", "no", "fails"]


@attrs.frozen
class JobScript:
    """The script of one job."""

    lane: str | None
    """None for a job on no lane."""
    actions: tuple[Action, ...]
    timeout: float = math.inf
    key: str | None = None
    """Scripts with equal keys run one at a time, in their order."""
    known: Known | None = None
    """True if the job turns out to need no lane when it is the next of its own. None counts as `no` if
    another script has a value; if none has, the plan inspects no job."""


@attrs.frozen
class Retune:
    """A change of a lane during runs."""

    at: float
    lane: str
    to: int | Literal["pause", "resume"]
    """The new max concurrency, or the action."""


@attrs.frozen
class Caps:
    """The budget of all calls of a run; None sets no bound."""

    requests: int | None = None
    tokens: int | None = None


@attrs.frozen
class SharedLimitScript:
    """A shared limit, which may extend beyond the run: calls need a permit from it."""

    lanes: tuple[str, ...]
    """The lanes whose calls need permits."""
    room: int = 2
    """Permits that take room at once, ≥ 1."""
    lasts: float = 0.0
    """Seconds after its grant during which a used permit takes room, even if its call is over."""
    delay: float = 0.0
    """Seconds until a request for a permit is decided."""
    at_once: bool = True
    """True if a permit can be granted without waiting, if `delay` is 0."""
    most: int | None = None
    """Tokens of a call beyond which it is never granted."""
    silent: tuple[float, float] = (math.inf, math.inf)
    """The start and end of the period in which requests for permits fail."""


@attrs.frozen
class RunScenario:
    """A whole run: jobs, lanes, and interventions."""

    lanes: tuple[LaneSpec, ...]
    scripts: tuple[JobScript, ...]
    serial_indices: tuple[int, ...] = ()
    serial: bool = False
    deadline: float = math.inf
    stop_at: float = math.inf
    stop_steps: int = 0
    """Steps of the scheduler before the stop at its instant."""
    cancel_at: float = math.inf
    max_live_jobs: int = 256
    start_at: float = 0.0
    """When the run starts; the other instants do not move with it."""
    edges: Mapping[int, tuple[Edge, ...]] = attrs.field(factory=dict)
    """The dependencies of each job."""
    salvage_rounds: int = 0
    reorder_window: int | None = None
    budget: Caps | None = None
    """The budget of all calls together."""
    cap: int | None = None
    """Calls in flight on all lanes together."""
    retunes: tuple[Retune, ...] = ()
    shared: tuple[SharedLimitScript, ...] = ()
    """Limits beyond the lanes; at most one for each lane."""
    spread: float = 0.5
    """The random number of the lanes: constant, so that back-offs are exact."""

    @property
    def simple(self) -> bool:
        """True if every job is exactly one call on its own lane and nothing cuts or gates the run."""
        return (
            not self.serial_indices
            and not self.serial
            and not self.start_at
            and min(self.deadline, self.stop_at, self.cancel_at) == math.inf
            and not self.edges
            and not self.retunes
            and not self.shared
            and self.reorder_window is None
            and self.budget is None
            and self.cap is None
            and all(
                len(script.actions) == 1
                and isinstance(script.actions[0], CallScript)
                and script.actions[0].lane == script.lane
                and not script.actions[0].attempts
                and not script.actions[0].tokens
                and script.key is None
                and script.known is None
                for script in self.scripts
            )
        )
