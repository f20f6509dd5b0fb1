"""Agents on workers: the record of their processes, and the folder in which all workers find their cases.

A worker sends the record of each process before the process starts, and that of its end. If the worker is
lost, the processes of a case go with it to the next worker, which ends them before it continues the case.
"""

import secrets
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

from trioeval.agent.journal import AgentJournal, RunningAttempt
from trioeval.agent.protocols import AgentEvent
from trioeval.errors import AgentError
from trioeval.evaluation.elsewhere import RowsElsewhere
from trioeval.scaleout.messages import AttemptGone, AttemptProcess, Message


@attrs.define(eq=False, repr=False)
class ForwardedProcesses(AgentJournal):
    """The processes of one task on a worker, which are recorded by the coordinator."""

    _task: str | None
    _left: Sequence[RunningAttempt]
    """Those that lost workers may have left."""
    _add: Callable[[Message], None]
    _flush: Callable[[], None]
    _rows: dict[str, int] = attrs.field(init=False)
    """The row of each attempt, by run id."""

    @_rows.default
    def _find_rows(self) -> dict[str, int]:
        return {one.run_id: one.index for one in self._left}

    def started(self, attempt: RunningAttempt, /) -> None:
        """Send the record of a process."""
        self._rows[attempt.run_id] = attempt.index
        self._add(AttemptProcess(self._task, attempt))

    def gone(self, run_id: str, /) -> None:
        """Send that no process of an attempt is left."""
        index = self._rows.pop(run_id, None)
        if index is not None:
            self._add(AttemptGone(self._task, index, run_id))

    def left(self) -> Sequence[RunningAttempt]:
        """Return the processes that came with the shard."""
        return self._left

    async def durable(self) -> None:
        """Send the records now. A checkpoint."""
        self._flush()
        await trio.lowlevel.checkpoint()


@attrs.define(eq=False, repr=False)
class WorkerAgents:
    """The agents on all workers, as the coordinator knows them."""

    _journal_of: Callable[[str | None], AgentJournal | None] | None
    """Returns the journal of a task's processes; None without a journal."""
    tasks: dict[str | None, RowsElsewhere | None] = attrs.field(init=False, factory=dict)
    """The tasks that take events of their cases, by id."""
    _running: dict[tuple[str | None, int], dict[str, RunningAttempt]] = attrs.field(
        init=False, factory=dict
    )
    """The attempts of each row that have processes, by run id."""
    _journals: dict[str | None, AgentJournal | None] = attrs.field(init=False, factory=dict)

    def take(self, message: AttemptProcess | AttemptGone | AgentEvent) -> None:
        """Record a process that a worker has sent, or pass an event on."""
        if not isinstance(message, AgentEvent):
            self._record(message)
        elif (task := self.tasks.get(message.task)) is not None:
            task.on_event(message)

    def _record(self, message: AttemptProcess | AttemptGone) -> None:
        task = message.task
        if task not in self._journals and self._journal_of is not None:
            self._journals[task] = self._journal_of(task)
        journal = self._journals.get(task)
        if isinstance(message, AttemptProcess):
            attempt = message.attempt
            self._running.setdefault((task, attempt.index), {})[attempt.run_id] = attempt
            if journal is not None:
                journal.started(attempt)
            return
        running = self._running.get((task, message.index), {})
        running.pop(message.run_id, None)
        if not running:
            self._running.pop((task, message.index), None)
        if journal is not None:
            journal.gone(message.run_id)

    def processes(self, task: str | None, index: int) -> Sequence[RunningAttempt]:
        """Return the attempts of a row that have processes, as far as known."""
        return [*self._running.get((task, index), {}).values()]


_PROOF = ".workers"
"""The file in a folder of agents by which a worker recognizes it; no task's folder has such a name."""


@attrs.frozen
class AgentsFolder:
    """The folder of the cases of a run, which its workers must find at the same path."""

    path: Path
    """Absolute."""
    proof: str = attrs.field(repr=False)
    """The text of a file in it."""

    def obstacle(self) -> str | None:
        """Return why this process cannot work in the folder; None if it can. Blocks on files."""
        try:
            if (self.path / _PROOF).read_text(encoding="utf-8") != self.proof:
                return "it is another folder there"
            with tempfile.TemporaryFile(dir=self.path):
                return None
        except (OSError, UnicodeError) as error:
            return getattr(error, "strerror", None) or str(error)


@contextmanager
def shared_folder(path: Path) -> Iterator[AgentsFolder]:
    """Create the folder of the cases of a run, if necessary, and let workers recognize it.

    Args:
        path: The folder.

    Raises:
        AgentError: It cannot be created.
    """
    folder = AgentsFolder(path.absolute(), secrets.token_hex(16))
    file = folder.path / _PROOF
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        file.write_text(folder.proof, encoding="utf-8")
    except OSError as error:
        msg = f"{path}: the folder of agents cannot be created: {error.strerror or error}"
        raise AgentError(msg) from error
    try:
        yield folder
    finally:
        file.unlink(missing_ok=True)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a folder for the cases of a run that stores nothing; it is removed at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="trioeval-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
