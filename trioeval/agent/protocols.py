"""What a restart loop is given: who works, where, and whom it tells."""

import logging
import math
import re
import secrets
import stat
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias, TypeVar

import attrs
import trio

from trioeval.agent.bus.messages import MessageType
from trioeval.agent.restarts import Attempt, AttemptEnd, RestartPolicy
from trioeval.errors import AgentError, MarkerError, UsageError
from trioeval.kernel.events import guarded

# What happens to agents, as frozen records for a synchronous observer: progress, metrics, the live view.
#
# Instants are those of the Trio clock.


CaseEnding: TypeAlias = Literal["done", "failed", "interrupted", "blocked"]


@attrs.frozen(kw_only=True)
class AgentEvent:
    """Something that happens to the case of an agent."""

    at: float
    task: str | None
    """The id of its task of the suite."""
    case: str
    """Its name, unique in its task; of a child of an agent that is a function, behind it and a slash that of
    the child."""
    agent: str
    """What its agent is called."""


@attrs.frozen(kw_only=True)
class CaseBlocked(AgentEvent):
    """It waits for others; told again when the others change."""

    by: tuple[str, ...]
    """Names of cases, in the order in which it names them; empty when it waits no more and begins."""


@attrs.frozen(kw_only=True)
class CaseQueued(AgentEvent):
    """It waits for its turn among the root tasks of all programs."""

    position: int
    """From 1; 0 when it has got its turn."""


@attrs.frozen(kw_only=True)
class AttemptWaiting(AgentEvent):
    """An attempt has to wait for a run slot, to begin or to go on. Not told of one that gets it at once."""

    number: int


@attrs.frozen(kw_only=True)
class AttemptGoesOn(AgentEvent):
    """An attempt that began before, and had to wait for a slot to go on, has one."""

    number: int


@attrs.frozen(kw_only=True)
class AttemptStarted(AgentEvent):
    """An attempt has its slot, and begins."""

    number: int
    run_id: str


@attrs.frozen(kw_only=True)
class AttemptEnded(AgentEvent):
    """An attempt is over."""

    number: int
    run_id: str
    failed: bool
    cancelled: bool = False
    reason: str = ""
    """Why it failed: kind and message."""


@attrs.frozen(kw_only=True)
class CaseEnded(AgentEvent):
    """Nothing more is done for it."""

    ending: CaseEnding


AgentObserver: TypeAlias = Callable[[AgentEvent], None]
"""Told synchronously. What it raises is logged and dropped."""


def _guarded(observe: AgentObserver | None) -> AgentObserver | None:
    return guarded(observe)


@attrs.frozen(kw_only=True)
class CaseTeller:
    """Tells an observer what happens to one case."""

    observe: AgentObserver | None = attrs.field(default=None, converter=_guarded)
    task: str | None = None
    """What the observer is told of the case in every event; see `AgentEvent`."""
    case: str
    agent: str

    def __call__(self, event: type[AgentEvent], **details: Any) -> None:
        """Tell the observer, if there is one."""
        if self.observe is not None:
            about: dict[str, Any] = {"task": self.task, "case": self.case, "agent": self.agent}
            self.observe(event(at=trio.current_time(), **about, **details))


# Where an agent says that its task is done.


_CALM = 10
"""By how much a pause between two looks may grow, and what part of the whole wait it is at most."""


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _of_a_folder(marker: "FileMarker", _field: "attrs.Attribute[Path]", path: Path) -> None:
    if not marker.may_come and not path.parent.is_dir():
        msg = (
            f"{path}: there is no folder {path.parent} in which an agent could say that it is done"
        )
        raise AgentError(msg)


def _markers_positive(_marker: object, field: "attrs.Attribute[float]", seconds: float) -> None:
    if not seconds > 0:
        msg = f"FileMarker.{field.name} must be more than 0 seconds, got {seconds!r}"
        raise AgentError(msg)


@attrs.define(eq=False)
class FileMarker:
    """A file that stands for `done`, whatever is in it; agents in any language can make it.

    Raises:
        AgentError: The folder that it would be in is not there.
    """

    path: Path = attrs.field(validator=_of_a_folder)
    may_come: bool = attrs.field(default=False, kw_only=True)
    """Whether that folder may be made later."""
    look_every: float = attrs.field(default=0.2, validator=_markers_positive)
    """Seconds between two looks of who waits, > 0: files do not tell of themselves. Who has waited for long
    looks less often: a tenth of that time lies between two looks, at most ten times so many seconds."""
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)

    def is_set(self) -> bool:
        """Whether the file is there. One look at the disk."""
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            raise MarkerError(f"{self.path}: {error.strerror}; a file there says `done`") from error
        if not stat.S_ISREG(mode):
            found = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
            raise MarkerError(f"{self.path} is {found}; a file there says `done`, so remove it")
        return True

    async def wait(self) -> None:
        """Return when the file is there: at a look, or when somebody wakes. A checkpoint."""
        await trio.lowlevel.checkpoint()
        began_at = trio.current_time()
        while not self.is_set():
            news, waited = self._news, trio.current_time() - began_at
            # Hundreds may wait for hours, and each look keeps everybody else for a moment.
            pause = min(max(self.look_every, waited / _CALM), self.look_every * _CALM)
            with trio.move_on_after(pause):
                await news.wait()

    def wake(self) -> None:
        """Who waits looks at once."""
        self._news.set()
        self._news = trio.Event()


Marker: TypeAlias = FileMarker | trio.Event
"""Where the agent says that its task is done: an event, where it is a function of this program."""

R = TypeVar("R")


Agent: TypeAlias = Callable[[Attempt], Awaitable[AttemptEnd]]
"""Works once on a task. What it raises is a failure of the attempt of the kind `unexpected`; errors that end
the run cut it off."""


class Slots(Protocol):
    """What lets attempts run: a lane."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run something in a slot, when it is its turn.

        What it raises by itself means that the run is over, and leaves the loop as it is.
        """
        ...


async def at_once(run: Callable[[], Awaitable[R]], /) -> R:
    """Run something without a slot."""
    return await run()


class Relative(Protocol):
    """Something that an attempt has started."""

    def alive(self) -> Sequence[str]:
        """Names of what lives of it: run ids, process ids."""
        ...

    async def wait(self) -> object:
        """Return when nothing of it lives."""
        ...

    async def stop(self) -> None:
        """End it, gently and then by force."""
        ...

    def leave(self) -> None:
        """Take note that the family has let go of it."""
        ...


@attrs.define(eq=False)
class Family:
    """What the attempts of a case have started, and that still lives."""

    nursery: trio.Nursery = attrs.field(repr=False)
    """Where they live."""
    longest: float = math.inf
    """Seconds that the end of all may take."""
    relatives: list[Relative] = attrs.field(init=False, factory=list)
    """In the order in which they were started."""
    has_ended: bool = attrs.field(init=False, default=False)
    """Whether all that were there were ended."""

    def alive(self) -> Sequence[str]:
        """The names of all that live."""
        return [name for one in self.relatives for name in one.alive()]

    async def wait(self) -> None:
        """Return when none lives. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self.relatives:
            relative = self.relatives[0]
            await relative.wait()
            self.drop(relative)

    async def end(self) -> None:
        """End all of them. Runs to its end also when it is cancelled."""
        self.has_ended = True
        with trio.move_on_after(self.longest, shield=True):
            async with trio.open_nursery() as nursery:
                for relative in self.relatives:
                    nursery.start_soon(self.end_one, relative)

    async def end_one(self, relative: Relative) -> None:
        """End one of them."""
        await relative.stop()
        self.drop(relative)

    def drop(self, relative: Relative) -> None:
        """Let go of one of them, which is over."""
        if relative in self.relatives:
            self.relatives.remove(relative)
            relative.leave()


def _positive(_terms: object, field: "attrs.Attribute[float]", seconds: float) -> None:
    if not seconds > 0:
        raise UsageError(f"{field.name} must be more than 0 seconds, got {seconds!r}")


# What a loop says on the bus. The bus is for people and other programs: that it fails ends nothing.


_log = logging.getLogger("trioeval.agent")
_QUIET = 60.0
"""Seconds between two lines of the log about a bus that takes nothing."""


@attrs.define(eq=False)
class Posts:
    """Posts messages, and counts those that could not be posted."""

    _post: Callable[[MessageType, str], Awaitable[None]]
    failed: int = 0
    """Messages that the bus did not take."""
    _logged_at: float = attrs.field(init=False, default=-math.inf)

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Post one; what goes wrong is counted, and logged once in a while."""
        try:
            await self._post(type_, body)
        except Exception as error:  # noqa: BLE001 - whatever a bus raises, the work goes on
            self.failed += 1
            now = trio.current_time()
            if now - self._logged_at >= _QUIET:
                self._logged_at = now
                _log.warning("the bus does not take what is posted: %s", error)

    async def within(self, seconds: float, type_: MessageType, body: str) -> None:
        """Post one that is given up, and counted, if it takes longer."""
        with trio.move_on_after(seconds) as scope:
            await self(type_, body)
        self.failed += scope.cancelled_caught


# Ids of runs: names of attempts that sort by the time of their start, and are never given twice.


_OWNER = re.compile(r"[a-z0-9]+")


def new_run_id(utc: datetime, owner: str, sequence: int) -> str:
    """The id of a run: when it began, to a tenth of a millisecond, who runs it, and its number there.

    Good as the name of a file. Ids of one instant sort by owner and sequence.

    Args:
        utc: When it begins; other zones are converted.
        owner: Who runs it: small letters and digits, different in all processes that ever run something.
        sequence: ≥ 0; never twice for one owner.

    Raises:
        UsageError: The owner has other characters, or the time no zone.

    Example:
        >>> new_run_id(datetime(2026, 1, 15, 9, 30, 0, 123_456, UTC), "5f0c", 7)
        '20260115-0930001234-5f0c-000007'
    """
    if _OWNER.fullmatch(owner) is None:
        msg = f"the owner of a run is called by small letters and digits, got {owner!r}"
        raise UsageError(msg)
    if utc.tzinfo is None:
        msg = f"the time of a run needs a zone, got {utc!r}"
        raise UsageError(msg)
    moment = utc.astimezone(UTC)
    return f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 100:04d}-{owner}-{sequence:06d}"


@attrs.define(eq=False)
class RunIds:
    """The ids of the runs of one owner: each sorts after all before it, also when the clock is set back.

    Example:
        >>> ids = RunIds("5f0c", lambda: datetime(2026, 1, 15, tzinfo=UTC))
        >>> [ids(), ids()]
        ['20260115-0000000000-5f0c-000000', '20260115-0000000000-5f0c-000001']
    """

    owner: str
    """Random, or of the incarnation of a program."""
    _now: Callable[[], datetime]
    """Tells the time, with its zone."""
    _last: datetime = attrs.field(init=False, default=datetime.min.replace(tzinfo=UTC))
    _sequence: int = attrs.field(init=False, default=0)

    def __call__(self) -> str:
        """The id of a run that begins now."""
        self._last = max(self._last, self._now())
        found = new_run_id(self._last, self.owner, self._sequence)
        self._sequence += 1
        return found


def own_run_ids() -> RunIds:
    """Those of this program: by the clock of the machine, and a random owner."""
    return RunIds(secrets.token_hex(4), lambda: datetime.now(UTC))


@attrs.define(eq=False, kw_only=True)
class Attempts:
    """The attempts of one case, over all executions of its run."""

    ids: Callable[[], str]
    """Of new attempts."""
    prompt: str = ""
    """What is to be done."""
    ends: list[AttemptEnd] = attrs.field(factory=list)
    """How they ended; all but the last without their output, which may be large."""
    last_id: str | None = None
    """The id of the attempt that was begun last."""

    def begin(self) -> Attempt:
        """The next attempt, which has its slot."""
        number, previous, self.last_id = len(self.ends), self.last_id, self.ids()
        return Attempt(
            number=number,
            run_id=self.last_id,
            previous_run_id=previous,
            task_prompt=self.prompt,
        )

    def ended(self, _attempt: Attempt, end: AttemptEnd) -> None:
        """Record how an attempt ended, in the step in which that is known; not of one that was cut off."""
        if self.ends:
            self.ends[-1] = attrs.evolve(self.ends[-1], output="")
        self.ends.append(end)


@attrs.frozen(kw_only=True)
class LoopTerms:
    """How one case is worked on.

    Raises:
        UsageError: A time is out of its range.
    """

    policy: RestartPolicy
    child_timeout: float = attrs.field(default=300.0, validator=_positive)
    """Seconds that children may go on when the task is done, > 0."""
    slots: Slots
    marker: Marker
    children: Family
    posts: Posts
    """Tells the bus."""
    attempts: Attempts
    """Those so far count like new ones, also for the delay before the next."""
    stop: trio.Event = attrs.field(factory=trio.Event)
    """Set when no further attempt is to begin; one that runs comes to its end."""
    idle: Callable[[], AbstractContextManager[object]] = nullcontext
    """Makes what is put around its waits for other things than slots: they are no work."""
    tell: CaseTeller
    """Told of its attempts, and how it ended."""
