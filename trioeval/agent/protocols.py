"""The interfaces of a restart loop: its agent, slots, marker, children, bus and observer."""

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

# Events of agents, as frozen records for a synchronous observer: progress, metrics, the live view.
#
# Instants are those of the Trio clock.


CaseEnding: TypeAlias = Literal["done", "failed", "interrupted", "blocked"]


@attrs.frozen(kw_only=True)
class AgentEvent:
    """An event of the case of an agent."""

    at: float
    task: str | None
    """The id of its task of the suite."""
    case: str
    """Its name, unique in its task; for a child of an agent function, followed by a slash and the name of
    the child."""
    agent: str
    """The name of its agent."""


@attrs.frozen(kw_only=True)
class CaseBlocked(AgentEvent):
    """A case waits for others; sent again when these change."""

    by: tuple[str, ...]
    """Names of cases, in the order of its dependencies; empty when it stops waiting and starts."""


@attrs.frozen(kw_only=True)
class CaseQueued(AgentEvent):
    """A case waits for its turn among the root tasks of all programs."""

    position: int
    """From 1; 0 when its turn has come."""


@attrs.frozen(kw_only=True)
class AttemptWaiting(AgentEvent):
    """An attempt waits for a run slot, to start or to continue. Not sent if it gets one at once."""

    number: int


@attrs.frozen(kw_only=True)
class AttemptContinued(AgentEvent):
    """A started attempt that waited for a slot to continue has one."""

    number: int


@attrs.frozen(kw_only=True)
class AttemptStarted(AgentEvent):
    """An attempt has its slot, and starts."""

    number: int
    run_id: str


@attrs.frozen(kw_only=True)
class AttemptEnded(AgentEvent):
    """An attempt has ended."""

    number: int
    run_id: str
    failed: bool
    cancelled: bool = False
    reason: str = ""
    """The failure: kind and message."""


@attrs.frozen(kw_only=True)
class CaseEnded(AgentEvent):
    """A case has ended."""

    ending: CaseEnding


AgentObserver: TypeAlias = Callable[[AgentEvent], None]
"""Called synchronously. Its exceptions are logged and dropped."""


def _guarded(observe: AgentObserver | None) -> AgentObserver | None:
    return guarded(observe)


@attrs.frozen(kw_only=True)
class CaseNotifier:
    """Notifies an observer of the events of one case."""

    observe: AgentObserver | None = attrs.field(default=None, converter=_guarded)
    task: str | None = None
    """The fields of the case in every event; see `AgentEvent`."""
    case: str
    agent: str

    def __call__(self, event: type[AgentEvent], **details: Any) -> None:
        """Notify the observer, if there is one."""
        if self.observe is not None:
            about: dict[str, Any] = {"task": self.task, "case": self.case, "agent": self.agent}
            self.observe(event(at=trio.current_time(), **about, **details))


# The marker by which an agent reports that its task is done.


_CALM = 10
"""The maximum factor of the polling pause, and the reciprocal of its maximum share of the whole wait."""


_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def _of_a_folder(marker: "FileMarker", _field: "attrs.Attribute[Path]", path: Path) -> None:
    if not marker.may_come and not path.parent.is_dir():
        msg = f"{path}: the folder {path.parent} of the done file does not exist"
        raise AgentError(msg)


def _markers_positive(_marker: object, field: "attrs.Attribute[float]", seconds: float) -> None:
    if not seconds > 0:
        msg = f"FileMarker.{field.name} must be more than 0 seconds, got {seconds!r}"
        raise AgentError(msg)


@attrs.define(eq=False, repr=False)
class FileMarker:
    """A file that marks a task as done, with any content; agents in any language can create it.

    Raises:
        AgentError: Its folder does not exist.
    """

    path: Path = attrs.field(validator=_of_a_folder)
    may_come: bool = attrs.field(default=False, kw_only=True)
    """True if that folder may be created later."""
    look_every: float = attrs.field(default=0.2, validator=_markers_positive)
    """Seconds between two polls of a waiter, > 0: a new file sends no notification. After a long wait the
    pause grows to a tenth of the time waited, at most to ten times this value."""
    _news: trio.Event = attrs.field(init=False, factory=trio.Event)

    def is_set(self) -> bool:
        """Return whether the file exists. Accesses the disk once."""
        try:
            mode = self.path.stat().st_mode
        except FileNotFoundError:
            return False
        except OSError as error:
            raise MarkerError(
                f"{self.path}: {error.strerror}; a file there means `done`"
            ) from error
        if not stat.S_ISREG(mode):
            found = _KINDS.get(stat.S_IFMT(mode), "not a regular file")
            raise MarkerError(f"{self.path} is {found}; a file there means `done`, so remove it")
        return True

    async def wait(self) -> None:
        """Wait until the file exists: found by a poll, or after `wake`. A checkpoint."""
        await trio.lowlevel.checkpoint()
        began_at = trio.current_time()
        while not self.is_set():
            news, waited = self._news, trio.current_time() - began_at
            # Hundreds of cases may wait for hours, and each poll delays all others for a moment.
            pause = min(max(self.look_every, waited / _CALM), self.look_every * _CALM)
            with trio.move_on_after(pause):
                await news.wait()

    def wake(self) -> None:
        """Let all waiters poll at once."""
        self._news.set()
        self._news = trio.Event()


Marker: TypeAlias = FileMarker | trio.Event
"""Reports that the task is done: an event, if the agent is a function of this program."""

R = TypeVar("R")


Agent: TypeAlias = Callable[[Attempt], Awaitable[AttemptEnd]]
"""Works once on a task. Its exceptions are failures of the attempt of the kind `unexpected`; errors that end
the run interrupt it."""


class Slots(Protocol):
    """The slots for attempts: a lane."""

    async def __call__(self, run: Callable[[], Awaitable[R]], /) -> R:
        """Run a function in a slot, when it is its turn.

        An exception of the slots themselves means that the run has ended, and is passed on unchanged.
        """
        ...


async def without_slot(run: Callable[[], Awaitable[R]], /) -> R:
    """Run a function without a slot."""
    return await run()


class Relative(Protocol):
    """A process tree or child that an attempt has started."""

    def alive(self) -> Sequence[str]:
        """Return the names of its living parts: run ids, process ids."""
        ...

    async def wait(self) -> object:
        """Wait until no part of it lives."""
        ...

    async def stop(self) -> None:
        """End it, gently and then by force."""
        ...

    def leave(self) -> None:
        """Handle its removal from the family."""
        ...


@attrs.define(eq=False, repr=False)
class ChildFamily:
    """The living relatives that the attempts of a case have started."""

    nursery: trio.Nursery
    """The nursery in which they run."""
    longest: float = math.inf
    """Maximum seconds for ending all of them."""
    relatives: list[Relative] = attrs.field(init=False, factory=list)
    """In the order of their start."""
    has_ended: bool = attrs.field(init=False, default=False)
    """True if the family has been ended."""

    def alive(self) -> Sequence[str]:
        """Return the names of all living relatives."""
        return [name for one in self.relatives for name in one.alive()]

    async def wait(self) -> None:
        """Wait until none lives. A checkpoint."""
        await trio.lowlevel.checkpoint()
        while self.relatives:
            relative = self.relatives[0]
            await relative.wait()
            self.drop(relative)

    async def end(self) -> None:
        """End all of them. Runs to its end also when cancelled."""
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
        """Remove one of them, which has ended."""
        if relative in self.relatives:
            self.relatives.remove(relative)
            relative.leave()


def _positive(_terms: object, field: "attrs.Attribute[float]", seconds: float) -> None:
    if not seconds > 0:
        raise UsageError(f"{field.name} must be more than 0 seconds, got {seconds!r}")


# The messages of a loop on the bus. The bus is for people and other programs: its failure ends nothing.


_log = logging.getLogger("trioeval.agent")
_QUIET = 60.0
"""Minimum seconds between two log messages about a failing bus."""


@attrs.define(eq=False, repr=False)
class CountingPoster:
    """Posts messages, and counts failed ones."""

    _post: Callable[[MessageType, str], Awaitable[None]]
    failed: int = 0
    """Number of messages that the bus did not accept."""
    _logged_at: float = attrs.field(init=False, default=-math.inf)

    async def __call__(self, type_: MessageType, body: str) -> None:
        """Post a message; failures are counted, and logged at most once a minute."""
        try:
            await self._post(type_, body)
        except Exception as error:  # noqa: BLE001 - the work continues whatever a bus raises
            self.failed += 1
            now = trio.current_time()
            if now - self._logged_at >= _QUIET:
                self._logged_at = now
                _log.warning("a message cannot be posted on the bus: %s", error)

    async def within(self, seconds: float, type_: MessageType, body: str) -> None:
        """Post a message; it is dropped, and counted, if it takes longer."""
        with trio.move_on_after(seconds) as scope:
            await self(type_, body)
        self.failed += scope.cancelled_caught


# Ids of runs: unique names of attempts that sort by the time of their start.


_OWNER = re.compile(r"[a-z0-9]+")


def new_run_id(utc: datetime, owner: str, sequence: int) -> str:
    """Return the id of a run, from its start to a tenth of a millisecond, its owner, and a sequence number.

    Valid as a file name. Ids of one instant sort by owner and sequence.

    Args:
        utc: The time of its start; other zones are converted.
        owner: The process that runs it: lower-case letters and digits, unique among all such processes.
        sequence: ≥ 0; unique for its owner.

    Raises:
        UsageError: The owner has other characters, or the time has no zone.

    Example:
        >>> new_run_id(datetime(2026, 1, 15, 9, 30, 0, 123_456, UTC), "5f0c", 7)
        '20260115-0930001234-5f0c-000007'
    """
    if _OWNER.fullmatch(owner) is None:
        msg = f"the owner of a run must consist of lower-case letters and digits, got {owner!r}"
        raise UsageError(msg)
    if utc.tzinfo is None:
        msg = f"the time of a run needs a zone, got {utc!r}"
        raise UsageError(msg)
    moment = utc.astimezone(UTC)
    return f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 100:04d}-{owner}-{sequence:06d}"


@attrs.define(eq=False, repr=False)
class RunIds:
    """Creates the run ids of one owner: each sorts after all before it, also when the clock is set back.

    Example:
        >>> ids = RunIds("5f0c", lambda: datetime(2026, 1, 15, tzinfo=UTC))
        >>> [ids(), ids()]
        ['20260115-0000000000-5f0c-000000', '20260115-0000000000-5f0c-000001']
    """

    owner: str
    """Random, or the id of a client."""
    _now: Callable[[], datetime]
    """Returns the time, with its zone."""
    _last: datetime = attrs.field(init=False, default=datetime.min.replace(tzinfo=UTC))
    _sequence: int = attrs.field(init=False, default=0)

    def __call__(self) -> str:
        """Return the id of a run that starts now."""
        self._last = max(self._last, self._now())
        found = new_run_id(self._last, self.owner, self._sequence)
        self._sequence += 1
        return found


def own_run_ids() -> RunIds:
    """Return the run ids of this program: with the clock of the machine, and a random owner."""
    return RunIds(secrets.token_hex(4), lambda: datetime.now(UTC))


@attrs.define(eq=False, repr=False, kw_only=True)
class Attempts:
    """The attempts of one case, over all executions of its run."""

    ids: Callable[[], str]
    """Creates the ids of new attempts."""
    prompt: str = ""
    """The task."""
    ends: list[AttemptEnd] = attrs.field(factory=list)
    """Their ends; all but the last one without their output, which may be large."""
    last_id: str | None = None
    """The id of the attempt that was started last."""

    def begin(self) -> Attempt:
        """Return the next attempt, which has its slot."""
        number, previous, self.last_id = len(self.ends), self.last_id, self.ids()
        return Attempt(
            number=number,
            run_id=self.last_id,
            previous_run_id=previous,
            task_prompt=self.prompt,
        )

    def ended(self, _attempt: Attempt, end: AttemptEnd) -> None:
        """Record the end of an attempt, in the step in which it is known; not called for interrupted ones."""
        if self.ends:
            self.ends[-1] = attrs.evolve(self.ends[-1], output="")
        self.ends.append(end)


@attrs.frozen(kw_only=True)
class LoopConfig:
    """The configuration of the restart loop of one case.

    Raises:
        UsageError: A time is out of range.
    """

    policy: RestartPolicy
    child_timeout: float = attrs.field(default=300.0, validator=_positive)
    """Seconds that children may continue after the task is done, > 0."""
    slots: Slots
    marker: Marker
    children: ChildFamily
    posts: CountingPoster
    """Posts on the bus."""
    attempts: Attempts
    """Earlier attempts count like new ones, also for the delay before the next one."""
    stop: trio.Event = attrs.field(factory=trio.Event)
    """Set when no further attempt may start; a running one continues to its end."""
    idle: Callable[[], AbstractContextManager[object]] = nullcontext
    """Returns a context manager for waits other than for slots, which are not working time."""
    notify: CaseNotifier
    """Notified of its attempts, and its end."""
