"""A run of a session whose rows run on workers."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack

import attrs

from trioeval.agent.open import AgentOptions
from trioeval.errors import UsageError
from trioeval.providers import Provider
from trioeval.rates import Budget
from trioeval.run import PreparedSuite
from trioeval.scaleout.coordinator import Coordinator
from trioeval.scaleout.run_records import RunRecords
from trioeval.scaleout.run_workers import RunWorkers
from trioeval.scaleout.watching import WorkerViews
from trioeval.scaleout.workers import SourceLoader, WorkerPool
from trioeval.session.observers import RunObservers
from trioeval.store.run import StoredRun
from trioeval.suite.model import BudgetSettings, Suite


@attrs.define(eq=False, repr=False)
class SentRun:
    """The workers of a run, and the suite as they load it."""

    _workers: WorkerPool
    _loader: SourceLoader
    _send: Sequence[str | os.PathLike[str]]
    _stack: AsyncExitStack = attrs.field(init=False, factory=AsyncExitStack)
    """Closed at the end of the run."""
    _opened: RunWorkers | None = attrs.field(init=False, default=None)

    @classmethod
    def of(
        cls,
        workers: WorkerPool,
        suite: Suite | PreparedSuite | str | os.PathLike[str],
        providers: Mapping[str, Provider] | None,
        trusted: bool,  # noqa: FBT001 - as the session has it
        allow_env: Collection[str],
        *,
        send: Iterable[str | os.PathLike[str]],
        budget: BudgetSettings | None,
    ) -> SentRun:
        """Return the workers of a run of a suite.

        Args:
            workers: The workers.
            suite: The suite.
            providers: As for `prepare`.
            trusted: As for `load_suite`.
            allow_env: As for `load_suite`.
            send: As for `WorkerPool.run_suite`.
            budget: The bounds of the budget of the session.

        Raises:
            UsageError: The suite cannot be sent to workers.
        """
        if isinstance(suite, PreparedSuite):
            raise UsageError(
                "workers prepare a suite themselves: pass the suite or its path to `run`"
            )
        if isinstance(suite, Suite):
            loader = SourceLoader(suite, providers=providers, budget=budget)
        else:
            loader = SourceLoader(
                suite, trusted, tuple(allow_env), providers=providers, budget=budget
            )
        loader.check()
        return cls(workers, loader, [*send])

    async def open(
        self,
        prepared: PreparedSuite,
        run_id: str,
        stack: AsyncExitStack,
        agents: AgentOptions | None,
    ) -> None:
        """Open the sessions of the workers until the stack is closed.

        Raises:
            UsageError: The suite cannot run on workers, or some of them cannot run it.
            AgentError: The folder of agents cannot be created.
        """
        loader = self._loader.for_workers(prepared)
        self._stack = stack
        self._opened = await stack.enter_async_context(
            self._workers.open_run(
                prepared, loader, run_id, agents=agents, redis_run=run_id, send=self._send
            )
        )

    async def start(
        self, stored: StoredRun, observers: RunObservers, budget: Budget | None
    ) -> Coordinator | None:
        """Send rows to the workers until the stack is closed; return what sends them."""
        if self._opened is None:
            return None
        run = observers.run
        coordinated = self._opened.coordinate(
            run.stopping,
            self._workers.warn,
            records=RunRecords(stored, [observers], stored.recorded_replies, stored.recorded_jobs),
            run=stored,
            views=WorkerViews(lanes=run.worker_lanes),
            budget=budget,
        )
        return await self._stack.enter_async_context(coordinated)
