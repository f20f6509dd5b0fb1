"""Scripted runs as data: what every job does and how long it takes, and what befalls the run."""

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from trioeval.errors import Fault
from trioeval.kernel import Edge, LaneSpec
from trioeval.rates import RateHint


class ScriptedError(Exception):
    """The failure that a scripted call was told to end in."""


@attrs.frozen
class Pause:
    """The body works by itself for some seconds, in no slot."""

    duration: float


@attrs.frozen
class Attempt:
    """What one request does: it takes some seconds, then succeeds or fails."""

    duration: float
    fault: Fault | None = None
    """What a failure means for the lane; None succeeds."""
    retry_after: float | None = None
    """Seconds that a failure asks to wait."""
    tokens: int | None = None
    """Tokens that it used; None leaves what the call reserved."""
    hint: RateHint | None = None
    """What its reply says of the server's limits."""


@attrs.frozen
class Call:
    """One call: by itself a single request, or as many as its attempts say."""

    lane: str
    duration: float
    fails: bool = False
    """Whether it ends in an error that tells its lane nothing."""
    patience: float = math.inf
    """Seconds after which the body gives it up, waiting or in flight."""
    attempts: tuple[Attempt, ...] = ()
    """What its requests do, in turn, the last one again and again; takes the place of `duration`."""
    tokens: int = 0
    """Reserved for each request."""

    def attempt(self, number: int) -> Attempt:
        """What the request with this number, from 0, does."""
        if not self.attempts:
            return Attempt(self.duration)
        return self.attempts[min(number, len(self.attempts) - 1)]


@attrs.frozen
class Together:
    """Several calls at once, in a nursery of the body."""

    calls: tuple[Call, ...]


Action: TypeAlias = Pause | Call | Together
Known: TypeAlias = Literal["yes", "no", "fails"]


@attrs.frozen
class Script:
    """What one job does."""

    lane: str | None
    """None for a job on no lane."""
    actions: tuple[Action, ...]
    timeout: float = math.inf
    key: str | None = None
    """Scripts with equal keys run one at a time, in their order."""
    known: Known | None = None
    """Whether the job is found to need no lane when it is the next of its own; None as `no`, where another
    script has one: if none has, the plan looks at no job."""


@attrs.frozen
class Retune:
    """Something that somebody does to a lane while runs go on."""

    at: float
    lane: str
    to: int | Literal["pause", "resume"]
    """A new width, or the verb."""


@attrs.frozen
class Caps:
    """The most that all calls of a run may use; None does not bound it."""

    requests: int | None = None
    tokens: int | None = None


@attrs.frozen
class Shared:
    """A limit that is shared, also beyond the run, and whoever keeps it: calls need a permit of it."""

    lanes: tuple[str, ...]
    """Whose calls."""
    room: int = 2
    """Permits that take room at once, ≥ 1."""
    lasts: float = 0.0
    """Seconds from its grant on in which a permit that was used takes room also when its call is over."""
    delay: float = 0.0
    """Seconds until it is decided about a question."""
    at_once: bool = True
    """Whether a permit can be had without waiting; where there is no delay."""
    most: int | None = None
    """Tokens of a call beyond which it is never granted."""
    silent: tuple[float, float] = (math.inf, math.inf)
    """From when until when questions fail."""


@attrs.frozen
class Scenario:
    """A whole run: jobs, lanes, and what befalls it."""

    lanes: tuple[LaneSpec, ...]
    scripts: tuple[Script, ...]
    serial_indices: tuple[int, ...] = ()
    serial: bool = False
    deadline: float = math.inf
    stop_at: float = math.inf
    stop_steps: int = 0
    """Turns of the scheduler that pass at the instant of the stop before it comes."""
    cancel_at: float = math.inf
    max_live_jobs: int = 256
    start_at: float = 0.0
    """When the run begins; the other instants do not move with it."""
    edges: Mapping[int, tuple[Edge, ...]] = attrs.field(factory=dict)
    """What each job depends on."""
    salvage_rounds: int = 0
    reorder_window: int | None = None
    budget: Caps | None = None
    """The most that all calls together may use."""
    cap: int | None = None
    """Calls in flight on all lanes together."""
    retunes: tuple[Retune, ...] = ()
    shared: tuple[Shared, ...] = ()
    """Limits beyond the lanes; at most one for each lane."""
    spread: float = 0.5
    """What the lanes get for chance: constant, so that back-offs are exact."""

    @property
    def simple(self) -> bool:
        """Whether every job is exactly one call on its own lane and nothing cuts or gates the run."""
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
                and isinstance(script.actions[0], Call)
                and script.actions[0].lane == script.lane
                and not script.actions[0].attempts
                and not script.actions[0].tokens
                and script.key is None
                and script.known is None
                for script in self.scripts
            )
        )
