"""A session: lanes, shared limits, a budget, a store and a cache for any number of runs side by side.

Lanes are made when a run first needs them, and stay until the session ends, so that a rate which one run has
used up, or a limit which it has learnt, holds for the next one as well. Everything that must outlive a run is
held by a task of the session: a run that is cancelled takes nothing with it that others use.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import attrs
import trio

from trioeval.columns.options import DatasetOptions
from trioeval.errors import StoreError, UsageError
from trioeval.evaluation.lanes import merge_lane_specs
from trioeval.evaluation.reconcile import parse_retry
from trioeval.grading import Kinds
from trioeval.kernel import Budget, Lanes, LaneSpec
from trioeval.nurseries import open_plain_nursery
from trioeval.providers import Provider
from trioeval.report.records import RowRecord
from trioeval.run import PreparedSuite
from trioeval.run.budgets import budget_settings, suite_budget, with_budget
from trioeval.run.prepare import check_providers
from trioeval.run.run_suite import RunOptions, check_on_trio, prepared_of, run_prepared
from trioeval.run.shared_limits import open_suite_limits, permits_of
from trioeval.session.observers import RunObservers, SessionObserver, checked_observers
from trioeval.session.run import Run, begin_run, check_can_begin
from trioeval.store.run import StoredRun
from trioeval.store.run_start import check_run_id, new_run_id
from trioeval.store.store import Store, open_store
from trioeval.suite.model import LimitsSettings, Suite

if TYPE_CHECKING:
    from trioeval.agent.open import AgentOptions
    from trioeval.evaluation.provider_calls import ReplyCache
    from trioeval.limits.backend import SharedLimits
    from trioeval.limits.model import LimitKey
    from trioeval.scaleout.workers import WorkerPool
    from trioeval.session.on_workers import SentRun

_log = logging.getLogger("trioeval")

_AnySuite: TypeAlias = "Suite | PreparedSuite | str | os.PathLike[str]"

_FIXED = ("burst", "token_burst", "min_gap")
"""Limits of a lane that cannot change while it is used."""

_SAFE_WITHIN = 120.0
"""The timeout for writing everything at the end of a run, in seconds."""


@attrs.define(eq=False, repr=False)
class _HeldLimits:
    """Shared limits that a task of the session holds open."""

    settings: LimitsSettings
    limits: SharedLimits | None


class Session:
    """Lanes, limits, a budget, a store and a cache for runs. Created by `open_session`."""

    def __init__(
        self,
        *,
        store: Store,
        is_kept: bool,
        cache: ReplyCache | None,
        providers: Mapping[str, Provider],
        lanes: Lanes,
        budget: Budget | None,
        observers: Sequence[SessionObserver],
        services: trio.Nursery,
        kinds: Kinds | None,
        trusted: bool,
        allow_env: Collection[str],
        warn: Callable[[str], None],
    ) -> None:
        self.lanes = lanes
        """All lanes: those given, and those made for runs so far."""
        self.budget = budget
        """The budget of all runs together; None without one."""
        self._store = store
        self._is_kept = is_kept
        self._cache = cache
        self._providers = providers
        self._observers = observers
        self._services = services
        self._warn = warn
        self._own_specs: dict[str, LaneSpec] = {}
        self._limit_keys: dict[str, tuple[LimitKey, ...]] = {}
        self._held: list[_HeldLimits] = []
        self._holding = trio.Lock()
        self._runs: set[Run] = set()
        self._left = trio.lowlevel.ParkingLot()
        self._is_open = True
        self._warned: set[str] = set()
        self._kinds = kinds
        self._trusted = trusted
        self._allow_env = allow_env

    def __repr__(self) -> str:
        return f"<Session {self._store.path}: {len(self._runs)} runs in progress, {self.lanes!r}>"

    @property
    def path(self) -> Path | None:
        """The database of its runs; None if they are deleted at its end."""
        return self._store.path if self._is_kept else None

    @asynccontextmanager
    async def run(
        self,
        suite: Suite | PreparedSuite | str | os.PathLike[str],
        *,
        id: str | None = None,  # noqa: A002 - its name everywhere else
        resume: bool = False,
        retry: str | None = None,
        workers: WorkerPool | None = None,
        send: Iterable[str | os.PathLike[str]] = (),
    ) -> AsyncGenerator[Run]:
        """Run a suite beside the block. The end of the block waits for the end of the run.

        The run is recorded from its start. An exception in the block, or a cancelled scope around it, cancels
        the run: its finished rows are kept, and `resume` continues it, also at once in the same process.

        Args:
            suite: A suite, a prepared suite, or the path of a suite file.
            id: The id of the run in the store; None makes a new one.
            resume: Continue the run of this id if the store has it: finished rows, including errors, are kept
                if provider, prompt, variables and assertions are the same, also at another place; rows that
                the suite no longer has leave the run. Recorded replies are not requested again. Without such
                a run it begins.
            retry: With `resume`, the finished rows to run again: `errors`, `failed`, `timeouts`, or indices
                such as `3,17,20-25`; see `--retry` of the command line.
            workers: Workers that run the rows, from `trioeval.scaleout.open_workers`. They have their own
                lanes, with the limits of the suite; lanes and cache of the session are not used. Its budget
                holds.
            send: With `workers`, files, folders and patterns that they need besides those that the suite
                names, relative to its folder.

        Yields:
            The run.

        Raises:
            SuiteError: The suite is not valid; nothing was called.
            ProviderError: A provider cannot be opened; nothing was called.
            LimitError: The limit server of the suite is unreachable; nothing was called.
            UsageError: The session is closed, `suite` is neither a suite nor a path, the id is not valid or
                belongs to a recorded run and `resume` is false, `retry` is not valid, the run is in progress
                elsewhere, the suite needs other limits on a lane of the session, or `workers` cannot run it.
            StoreError: The run cannot be recorded.

        Example:
            >>> import trioeval
            >>> suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["a", "b"]})
            >>> async def main():
            ...     async with open_session() as session:
            ...         async with session.run(suite) as run:
            ...             async for row in run.rows():
            ...                 print(row.index, row.output)
            ...         print(run.summary.ended)
            >>> trio.run(main)
            0 a
            1 b
            finished
        """
        if resume and id is None:
            raise UsageError("resume continues the run of an id: pass id as well")
        if retry is not None and not resume:
            raise UsageError(
                "retry runs rows of a recorded run again: pass id and resume=True as well"
            )
        if send and workers is None:
            raise UsageError("send is for files that workers need: pass workers as well")
        if id is not None:
            check_run_id(id)
        again = None if retry is None else parse_retry(retry)
        self._check_open()
        sent = None if workers is None else self._sent(workers, suite, send)
        prepared = await self._prepared(suite)
        await self._make_lanes(prepared)
        run_id = id or new_run_id(datetime.now(UTC))
        if any(run.id == run_id for run in self._runs):
            raise UsageError(f"run {run_id} is in progress in this session: wait until it is over")
        # Before anything is opened for it that its execution elsewhere uses, too.
        check_can_begin(self._store, run_id, resume=resume)
        # Released last: what the run has on workers and in Redis is no other execution's until it is closed.
        async with AsyncExitStack() as held, AsyncExitStack() as stack:
            agents = await self._agents(prepared, run_id, stack, on_workers=sent is not None)
            if sent is not None:
                await sent.open(prepared, run_id, stack, agents)
            start, stored = await begin_run(
                self._store, prepared, run_id, held, resume=resume, retry=again, warn=self._warn
            )
            run = Run(
                prepared,
                self._store,
                stored,
                start,
                self.lanes,
                database=self.path,
                warn=self._warn,
                on_workers=sent is not None,
            )
            self._runs.add(run)
            held.callback(self._leave, run)
            async with self._running(prepared, run, stored, agents, sent):
                yield run

    async def collect(
        self, suite: Suite | PreparedSuite | str | os.PathLike[str]
    ) -> list[RowRecord]:
        """Run a suite and return its rows in order. A checkpoint.

        Raises:
            SuiteError: The suite is not valid; nothing was called.
        """
        async with self.run(suite) as run:
            await run.wait()
        return [row async for row in run.rows()]

    def stop(self) -> None:
        """Start no more rows in any run in progress; those that have started continue to their end."""
        for run in self._runs:
            run.stop()

    def close(self) -> None:
        """Begin no more runs, and cancel those in progress."""
        self._is_open = False
        for run in self._runs:
            run.cancel()

    async def wait_closed(self) -> None:
        """Wait until no run is in progress. A checkpoint only if it has to wait."""
        while self._runs:
            await self._left.park()

    @asynccontextmanager
    async def _running(
        self,
        prepared: PreparedSuite,
        run: Run,
        stored: StoredRun,
        agents: AgentOptions | None,
        sent: SentRun | None,
    ) -> AsyncGenerator[None]:
        """Run a suite beside the block, and record its end in any case."""
        stored.stays_open = True  # until its totals are recorded
        observers = RunObservers.of(run, self._observers)
        failure: Exception | None = None
        raised: Exception | KeyboardInterrupt | None = None

        async def perform() -> None:
            nonlocal failure
            try:
                await run.perform(functools.partial(run_prepared, prepared, options))
            except Exception as error:  # noqa: BLE001 - raised below, where no nursery wraps it
                failure = error
                nursery.cancel_scope.cancel("the run has failed")

        observers.started()
        try:
            options = await self._options(prepared, stored, observers, agents, sent)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(perform)
                try:
                    yield
                except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - raised below, unwrapped
                    raised = error
                    nursery.cancel_scope.cancel("the block of the run has failed")
        finally:
            with trio.move_on_after(_SAFE_WITHIN, shield=True):
                await run.end(failed=failure is not None)
            observers.ended()
        if isinstance(raised, KeyboardInterrupt):
            raise raised
        if failure is not None:
            if raised is not None:
                failure.add_note(f"the block of the run raised {raised!r} as well")
            raise failure
        if raised is not None:
            raise raised
        if stored.error is not None:
            raise stored.error

    async def _options(
        self,
        prepared: PreparedSuite,
        stored: StoredRun,
        observers: RunObservers,
        agents: AgentOptions | None,
        sent: SentRun | None,
    ) -> RunOptions:
        run = observers.run
        budget = suite_budget(prepared.suite, self.budget)
        sending = None if sent is None else await sent.start(stored, observers, budget)
        return RunOptions(
            emit=run.emit,
            emit_many=run.emit_many,
            lanes=self.lanes,
            budget=budget,
            stop=run.stopping,
            observe=observers.observe,
            run_id=run.id,
            warn=self._warn,
            journal=stored,
            record_observers=[observers],
            cache=self._cache if prepared.suite.evaluate_options.cache else None,
            settled=run.on_tests,
            datasets=DatasetOptions(
                on_result=run.on_dataset,
                reconcile=stored.resumed,
                place=None if sending is None else sending.datasets,
            ),
            agents=agents,
            adapt=None if sending is None else sending.adapt,
        )

    async def _agents(
        self, prepared: PreparedSuite, run_id: str, stack: AsyncExitStack, *, on_workers: bool
    ) -> AgentOptions | None:
        """Open the resources of a run's agents until the stack is closed; return None without agents."""
        if "agent" not in prepared.task_types:
            return None
        from trioeval.session.agents import agent_options, check_workspaces

        check_workspaces(prepared, self.path)
        return await agent_options(
            prepared, self.path, run_id, stack, warn=self._warn, on_workers=on_workers
        )

    async def _prepared(self, suite: _AnySuite) -> PreparedSuite:
        own = budget_settings(self.budget)
        if isinstance(suite, Suite):
            return await prepared_of(suite, self._providers, None, budget=own)
        if not isinstance(suite, PreparedSuite):
            return await prepared_of(
                suite,
                self._providers,
                self._kinds,
                trusted=self._trusted,
                allow_env=self._allow_env,
                budget=own,
            )
        if with_budget(suite.suite, own) is not suite.suite:
            raise UsageError(
                "a prepared suite without a budget cannot run in a session with one, because the bounds of "
                "its calls were not checked: pass the suite itself"
            )
        return suite

    def _sent(
        self, workers: WorkerPool, suite: _AnySuite, send: Iterable[str | os.PathLike[str]]
    ) -> SentRun:
        from trioeval.session.on_workers import SentRun

        if self._kinds is not None:
            raise UsageError("workers have no kinds of a session: use assertionTypes of the suite")
        return SentRun.of(
            workers,
            suite,
            self._providers,
            self._trusted,
            self._allow_env,
            send=send,
            budget=budget_settings(self.budget),
        )

    async def _make_lanes(self, prepared: PreparedSuite) -> None:
        """Make the lanes that a run needs and the session lacks; the stricter limits hold for the others."""
        own_cap = prepared.suite.evaluate_options.max_total_concurrency
        cap = None if self.lanes.cap is None else self.lanes.cap.total
        if own_cap is not None and (cap is None or own_cap < cap):
            raise UsageError(
                f"the suite sets maxTotalConcurrency {own_cap}, which is about all lanes: pass "
                f"max_total_concurrency={own_cap} to open_session"
            )
        limits = await self._limits_of(prepared)
        permits = {} if limits is None else permits_of(limits, prepared)
        for spec in merge_lane_specs([prepared.lane_specs]):
            keys = prepared.lane_limits.get(spec.name, ())
            if spec.name not in self.lanes:
                self.lanes.add(spec, permits=permits.get(spec.name))
                self._own_specs[spec.name], self._limit_keys[spec.name] = spec, keys
            elif keys != self._limit_keys.get(spec.name, ()):
                raise UsageError(
                    f"lane {spec.name} counts against other shared limits in an earlier run of the session: "
                    "give one of them another lane key, or run them in two sessions"
                )
            elif spec.name in self._own_specs:
                self._tighten(spec)

    def _tighten(self, spec: LaneSpec) -> None:
        lane, known = self.lanes[spec.name], self._own_specs[spec.name]
        (merged,) = merge_lane_specs([[known], [spec]])
        if merged.max_concurrency < known.max_concurrency:
            lane.max_concurrency = merged.max_concurrency
        if merged.rpm != known.rpm:
            lane.retune(rpm=merged.rpm)
        if merged.tpm != known.tpm:
            if known.tpm is None:
                self._warn_once(
                    f"lane {spec.name}: its tpm {merged.tpm:g} does not hold, because a run without one made "
                    "the lane; pass its LaneSpec to open_session"
                )
                merged = attrs.evolve(merged, tpm=None)
            else:
                lane.retune(tpm=merged.tpm)
        for setting in _FIXED:
            own = getattr(known, setting)
            if getattr(merged, setting) != own:
                self._warn_once(
                    f"lane {spec.name}: its {setting} {getattr(spec, setting):g} does not hold, because a "
                    f"run with {own:g} made the lane; pass its LaneSpec to open_session"
                )
                merged = attrs.evolve(merged, **{setting: own})
        self._own_specs[spec.name] = merged

    def _warn_once(self, warning: str) -> None:
        if warning not in self._warned:
            self._warned.add(warning)
            self._warn(warning)

    async def _limits_of(self, prepared: PreparedSuite) -> SharedLimits | None:
        """Return the shared limits of a suite, which stay open until the session ends; None without any."""
        settings = prepared.suite.limits
        if settings is None or not prepared.lane_limits:
            return None
        async with self._holding:
            for held in self._held:
                if held.settings == settings:
                    return held.limits
            limits: SharedLimits | None = await self._services.start(self._hold_limits, prepared)
            self._held.append(_HeldLimits(settings, limits))
            return limits

    async def _hold_limits(
        self,
        prepared: PreparedSuite,
        task_status: trio.TaskStatus[SharedLimits | None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        async with open_suite_limits(prepared, warn=self._warn) as limits:
            task_status.started(limits)
            await trio.sleep_forever()

    def _leave(self, run: Run) -> None:
        self._runs.discard(run)
        self._left.unpark_all()

    def _check_open(self) -> None:
        if not self._is_open:
            raise UsageError("the session is closed: begin runs in the block of `open_session`")


@asynccontextmanager
async def open_session(
    *,
    store: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    providers: Mapping[str, Provider] | None = None,
    lanes: Lanes | Iterable[LaneSpec] = (),
    max_total_concurrency: int | None = None,
    budget: Budget | None = None,
    observers: Iterable[SessionObserver] = (),
    kinds: Kinds | None = None,
    trusted: bool = True,
    allow_env: Collection[str] = (),
    on_warning: Callable[[str], None] | None = None,
) -> AsyncGenerator[Session]:
    """Open a session until the end of the block.

    The end of the block cancels runs that are still in progress in other tasks, and waits for their end.

    Args:
        store: The database of runs, which is created if it does not exist, as `trioeval --db` takes it; None
            keeps runs only until the end of the session.
        cache: The database of the cache of replies; None requests each reply.
        providers: Async callables by their provider ids in suites.
        lanes: Lanes that hold whatever suites say of them, as `Lanes` or as their configurations. Other lanes
            are made when a run first needs them; if two runs limit one differently, the stricter limit holds.
        max_total_concurrency: The most calls in flight on all lanes together, ≥ 1; None sets no bound. Not
            with `Lanes`, which have their own.
        budget: The budget of all runs together; None sets none. That of a suite holds as well.
        observers: Observers of all runs.
        kinds: The assertion types of suites that are loaded here; None is all built-in types.
        trusted: True if suites that are loaded here may run code, see the environment and use keys without
            restrictions.
        allow_env: Variables of the environment that templates of untrusted suites may see.
        on_warning: Called with problems that end no run; None logs them.

    Yields:
        The session.

    Raises:
        StoreError: The database cannot be used.
        UsageError: `lanes` is a single `LaneSpec`, `budget` is not a `Budget`, a provider is not a function,
            or an observer is not a `SessionObserver`.
        PlanError: Two lanes have the same name, or `max_total_concurrency` is out of range.

    Example:
        >>> async def main():
        ...     async with open_session(lanes=[LaneSpec("echo", 2)]) as session:
        ...         suite = trioeval.parse_suite({"providers": ["echo"], "prompts": ["hello"]})
        ...         return [row.output for row in await session.collect(suite)]
        >>> import trioeval
        >>> trio.run(main)
        ['hello']
    """
    check_on_trio("open_session")
    if isinstance(lanes, LaneSpec):
        raise UsageError(
            f"lanes must be a list of LaneSpec, got one: pass lanes=[LaneSpec({lanes.name!r}, …)]"
        )
    watching = checked_observers(observers, SessionObserver)
    check_providers(providers)
    if budget is not None and not isinstance(budget, Budget):
        raise UsageError(
            f"budget must be a Budget, such as trioeval.Budget(money=5.0), got {budget!r}"
        )
    if not isinstance(lanes, Lanes):
        # Random jitter, so that programs that share a provider do not retry at the same time.
        rng = Random().random  # noqa: S311 - no secret
        lanes = Lanes(lanes, rng=rng, cap=max_total_concurrency)
    elif max_total_concurrency is not None:
        raise UsageError("max_total_concurrency is set when lanes are made: pass cap to Lanes")
    report = _log.warning if on_warning is None else on_warning
    session: Session | None = None

    def store_failed(error: StoreError) -> None:
        report(str(error))
        if session is not None:
            session.stop()

    caching: AbstractAsyncContextManager[ReplyCache | None] = nullcontext()
    if cache is not None:
        from trioeval.store.cache.cache import open_cache

        caching = open_cache(Path(cache), on_problem=lambda error: report(str(error)))
    storing = open_store(
        None if store is None else Path(store), on_error=store_failed, on_warning=report
    )
    async with storing as opened, caching as cached, open_plain_nursery() as services:
        session = Session(
            store=opened,
            is_kept=store is not None,
            cache=cached,
            providers=providers or {},
            lanes=lanes,
            budget=budget,
            observers=watching,
            services=services,
            kinds=kinds,
            trusted=trusted,
            allow_env=allow_env,
            warn=report,
        )
        try:
            yield session
        finally:
            session.close()
            with trio.CancelScope(shield=True):  # they are cancelled, and each end is bounded
                await session.wait_closed()
            services.cancel_scope.cancel("the session has ended")
