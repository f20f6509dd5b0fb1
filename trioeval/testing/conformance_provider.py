"""Checks of foreign providers against the promises of a provider.

It runs inside a Trio run, in real time against a server on loopback or on a virtual clock against code in the
same process. Calls are made, several at once, cancelled and cut off at several instants, and their results
are compared with the promises.

Tasks that a call leaves behind are found by descent: every task that the check spawned, and their
descendants, up to the system nursery. Not by counting the tasks of the run, since a server may live in it
too. A call that returns although it was cancelled is at fault only if it was waiting at that instant, because
otherwise its reply may have been there already; a reply that arrives at a task of the call at that very
instant is distinguished from a fault by trying again.

What cannot be checked: a provider that never ends after its cancellation hangs the check as well.
"""

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Literal, TypeAlias, get_args

import attrs
import trio

from trioeval.errors import CallError
from trioeval.providers import Provider, Reply, Request

Promise: TypeAlias = Literal[
    "ANSWERS", "APART", "ONE_REQUEST", "CANCEL", "DEADLINE", "LEAK", "AGAIN", "FAULT"
]
"""The promises of a provider.

* ANSWERS: a plain request gets a `Reply`, or text.
* APART: of many calls at once each gets its own reply.
* ONE_REQUEST: a call sends one request, whether it succeeds or fails.
* CANCEL: a cancelled call ends at once, and as cancelled: it neither returns nor raises anything else.
* DEADLINE: a call ends at the deadline of a scope around it.
* LEAK: when a call is over, however it ended, no task of it is alive.
* AGAIN: after calls that were cancelled the next ones get replies, and as fast as before.
* FAULT: a failure is a `CallError`, which classifies it for the lane, not another exception.
"""

_TICKS = (1, 2, 3, 5, 8, 13)
_SHARES = (0.25, 0.5, 0.75)
_TRIES = 3


def echoes(request: Request, reply: Reply) -> bool:
    """Return whether a reply is the prompt of its request: `belongs` for providers that echo."""
    return bool(reply.output == request.prompt)


def numbered(number: int) -> Request:
    """Return a request that is different for each number."""
    return Request(prompt=f"request {number}", test_idx=number)


async def check_provider(
    make: Callable[[], Provider],
    *,
    ask: Callable[[int], Request] = numbered,
    belongs: Callable[[Request, Reply], bool] | None = None,
    failing: Callable[[], Provider] | None = None,
    count: Callable[[], Awaitable[int]] | None = None,
    at_once: int = 20,
    grace: float = 1.0,
) -> None:
    """Check a provider against its promises. A checkpoint.

    The server should take long enough for a reply that calls can be caught in flight: some hundredths of a
    second in real time.

    Args:
        make: Returns the provider.
        ask: Returns different requests for different numbers.
        belongs: Whether a reply is that of a request, see `echoes`; None does not check it.
        failing: Returns a provider of the same kind whose calls all fail; None checks only failures that
            happen by themselves.
        count: Returns the number of requests that the servers behind `make` and `failing` have received; None
            does not check whether calls are repeated.
        at_once: Calls that the server takes at once, ≥ 1; if the provider has a connection pool, at least its
            size.
        grace: Seconds within which a cancelled call must have ended, > 0.

    Raises:
        AssertionError: It names every broken promise, with what was seen.
    """
    found = await broken_promises(
        make,
        ask=ask,
        belongs=belongs,
        failing=failing,
        count=count,
        at_once=at_once,
        grace=grace,
    )
    if found:
        message = "\n".join(f"{promise} is broken: {seen}" for promise, seen in found.items())
        raise AssertionError(f"broken promises: {', '.join(found)}\n\n{message}")


async def broken_promises(
    make: Callable[[], Provider],
    *,
    ask: Callable[[int], Request] = numbered,
    belongs: Callable[[Request, Reply], bool] | None = None,
    failing: Callable[[], Provider] | None = None,
    count: Callable[[], Awaitable[int]] | None = None,
    at_once: int = 20,
    grace: float = 1.0,
) -> dict[Promise, str]:
    """Return the findings of `check_provider` by promise, with what was seen first; empty if all are kept."""
    with _watching() as watch:
        check = _Check(make(), ask, belongs, at_once, grace, watch)
        await check.answers()
        if "ANSWERS" not in check.found:
            await check.apart()
            await check.one_request(check.provider, count)
            if failing is not None:
                await check.fault(failing(), count)
            await check.cancel()
            await check.deadline()
            await check.again()
    promises: tuple[Promise, ...] = get_args(Promise)
    return {promise: check.found[promise] for promise in promises if promise in check.found}


@attrs.frozen
class _Cut:
    """The ending of a call that was cancelled, and reported it."""


_Ending: TypeAlias = Reply | Exception | _Cut


@attrs.define(eq=False, repr=False)
class _Check:
    provider: Provider
    _ask: Callable[[int], Request]
    _belongs: Callable[[Request, Reply], bool] | None
    _at_once: int
    _grace: float
    _watch: "_Watch"
    found: dict[Promise, str] = attrs.field(factory=dict)
    _requests: int = 0
    _latency: float = 0.0
    """Seconds of a call."""
    _together: float = 0.0
    """Seconds of many calls at once."""

    async def answers(self) -> None:
        took = []
        for _ in range(_TRIES):
            began_at = trio.current_time()
            ending = await self._call(self.provider, self._request())
            took.append(trio.current_time() - began_at)
            if not isinstance(ending, Reply):
                self._note("ANSWERS", f"a plain request ended in {ending!r}")
                return
        self._latency = min(took)

    async def apart(self) -> None:
        began_at = trio.current_time()
        for request, ending in await self._calls_at_once("APART", self._latency * self._at_once):
            mixed_up = self._belongs is not None and not self._belongs(request, ending)
            if mixed_up:
                self._note("APART", f"{request.prompt!r} was answered with {ending.output!r}")
        self._together = trio.current_time() - began_at

    async def again(self) -> None:
        """Check the provider after as many calls were cancelled at once as its pool may hold."""
        with trio.move_on_after(self._latency / 2):
            await self._calls_at_once(None, math.inf)
        await self._look_for_tasks("calls that were cancelled together")
        await self._calls_at_once("AGAIN", self._together)

    async def _calls_at_once(
        self, promise: Promise | None, duration: float
    ) -> Sequence[tuple[Request, Reply]]:
        """Return the replies to many calls, which may take twice as long; not judged without a promise."""
        replies: list[tuple[Request, Reply]] = []

        async def call(request: Request) -> None:
            ending = await self._call(self.provider, request)
            if isinstance(ending, Reply):
                replies.append((request, ending))
            elif promise is not None:
                self._note(promise, f"one of {self._at_once} calls at once ended in {ending!r}")

        limit = self._grace + 2 * duration
        with trio.move_on_after(limit) as scope:
            async with trio.open_nursery() as nursery:
                for _ in range(self._at_once):
                    nursery.start_soon(call, self._request())
        if scope.cancelled_caught and promise is not None:
            unanswered = self._at_once - len(replies)
            self._note(
                promise, f"{unanswered} calls of {self._at_once} at once took over {limit:.3g} s"
            )
        await self._look_for_tasks("calls at once")
        return replies

    async def one_request(
        self, provider: Provider, count: Callable[[], Awaitable[int]] | None
    ) -> _Ending:
        before = 0 if count is None else await count()
        ending = await self._call(provider, self._request())
        sent = 1 if count is None else await count() - before
        if sent != 1:
            self._note("ONE_REQUEST", f"a call that ended in {ending!r} sent {sent} requests")
        return ending

    async def fault(self, failing: Provider, count: Callable[[], Awaitable[int]] | None) -> None:
        ending = await self.one_request(failing, count)
        if isinstance(ending, Reply):
            self._note("FAULT", f"a call that had to fail returned {ending!r}")

    async def cancel(self) -> None:
        await self._cancel("before it began", None)
        for ticks in _TICKS:
            await self._cancel(f"after {ticks} steps", partial(_step, ticks))
        for share in _SHARES:
            at = share * self._latency
            await self._cancel(f"after {at:.3g} s", partial(trio.sleep, at))

    async def deadline(self) -> None:
        for share in _SHARES:
            limit = share * self._latency
            with trio.move_on_after(limit) as scope:
                await self._call(self.provider, self._request())
            late = trio.current_time() - scope.deadline
            if late > self._grace:
                self._note("DEADLINE", f"a call with {limit:.3g} s ended {late:.3g} s too late")
            await self._look_for_tasks("a call that met its deadline")

    async def _cancel(self, when: str, wait: Callable[[], Awaitable[None]] | None) -> None:
        """Cancel a call at some instant; results that may be chance are tried again."""
        for _ in range(_TRIES):
            ending, was_waiting = await self._cancelled_call(when, wait)
            await self._look_for_tasks(f"a call cancelled {when}")
            if isinstance(ending, _Cut) or not was_waiting:
                return
        self._note("CANCEL", f"a call cancelled {when} ended in {ending!r} nevertheless")

    async def _cancelled_call(
        self, when: str, wait: Callable[[], Awaitable[None]] | None
    ) -> tuple[_Ending, bool]:
        """Return how a call ended, and whether it was waiting, or not started, when it was cancelled."""
        scope, task = trio.CancelScope(), trio.lowlevel.current_task()
        ending: _Ending = _Cut()
        was_waiting, cancelled_at = wait is None, trio.current_time()

        async def cancel() -> None:
            nonlocal was_waiting, cancelled_at
            if wait is not None:
                await wait()
                was_waiting = task not in self._watch.runnable
            cancelled_at = trio.current_time()
            scope.cancel()

        async with trio.open_nursery() as nursery:
            if wait is None:
                await cancel()
            else:
                nursery.start_soon(cancel)
            with scope:
                ending = await self._call(self.provider, self._request())
            late = trio.current_time() - cancelled_at
            if scope.cancel_called and late > self._grace:
                self._note("CANCEL", f"a call cancelled {when} ended {late:.3g} s later")
            nursery.cancel_scope.cancel("the call is over")
        return ending, was_waiting

    async def _call(self, provider: Provider, request: Request) -> _Ending:
        try:
            answer: object = await provider(request)
        except CallError as error:
            return error
        except Exception as error:  # noqa: BLE001 - any error of foreign code is reported
            self._note("FAULT", f"a call raised {error!r}, which is not a CallError")
            return error
        match answer:
            case Reply():
                return answer
            case str():
                return Reply(output=answer)
            case _:
                self._note(
                    "ANSWERS", f"a call returned {answer!r}, which is neither Reply nor text"
                )
                return Reply(output=answer)

    async def _look_for_tasks(self, occasion: str) -> None:
        await _step(_TICKS[-1])  # cancelled tasks get the time to end
        if self._watch.alive:
            names = ", ".join(sorted(task.name for task in self._watch.alive))
            self._note("LEAK", f"{occasion} left behind: {names}")
            self._watch.alive.clear()

    def _request(self) -> Request:
        self._requests += 1
        return self._ask(self._requests)

    def _note(self, promise: Promise, seen: str) -> None:
        self.found.setdefault(promise, seen)


async def _step(ticks: int) -> None:
    for _ in range(ticks):
        await trio.lowlevel.checkpoint()


@contextmanager
def _watching() -> Iterator["_Watch"]:
    """Observe the present task and those that it spawns."""
    watch = _Watch(trio.lowlevel.current_task())
    trio.lowlevel.add_instrument(watch)
    try:
        yield watch
    finally:
        trio.lowlevel.remove_instrument(watch)


@attrs.define(eq=False, repr=False)
class _Watch(trio.abc.Instrument):
    _root: trio.lowlevel.Task
    alive: set[trio.lowlevel.Task] = attrs.field(factory=set)
    """Tasks that the root or one of its descendants spawned."""
    runnable: set[trio.lowlevel.Task] = attrs.field(factory=set)
    """Tasks that do not wait any more."""

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        parent = trio.lowlevel.current_task()
        if parent is self._root or parent in self.alive:
            self.alive.add(task)

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self.runnable.add(task)

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.runnable.discard(task)

    def task_exited(self, task: trio.lowlevel.Task) -> None:
        self.alive.discard(task)
