"""Shared helpers of the tests of agent programs: cases in folders, and scripted agents."""

import os
import shlex
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import attrs
import trio
from program_runs import carriers, context, is_alive, run, run_when_ready, wait_gone

from trioeval.agent.case_folder import CaseContext, CaseFiles
from trioeval.agent.command_agent import CommandAgent
from trioeval.agent.journal import AgentJournal, ProcessIdentity, RunningAttempt
from trioeval.agent.model import AgentSettings
from trioeval.agent.processes import ProcessFamily, open_family
from trioeval.agent.protocols import Attempts, CaseNotifier, CountingPoster, FileMarker, LoopConfig
from trioeval.agent.restarts import Attempt, AttemptEnd, RestartPolicy
from trioeval.providers.programs.entries import CommandAgentSettings, read_agent_command
from trioeval.templates import Templates

__all__ = ["carriers", "is_alive", "run", "run_when_ready", "wait_gone"]

SCRIPTED = Path(__file__).parent.parent / "agent" / "scripted"

RIG_OPTIONS = ("grace", "limit", "max_processes", "variables")

R = TypeVar("R")


@attrs.define(eq=False)
class Ledger(AgentJournal):
    """A journal that stores its calls, in order."""

    records: list[tuple[str, int]] = attrs.field(factory=list)
    processes: list[ProcessIdentity] = attrs.field(factory=list)

    def started(self, attempt: RunningAttempt, /) -> None:
        """The job is admitted at once."""
        self.records.append(("started" if attempt.process.pid else "begins", attempt.number))
        self.processes.append(attempt.process)

    def gone(self, run_id: str, /) -> None:
        """No child process is left."""
        self.records.append(("gone", int(run_id.removeprefix("r"))))

    def left(self) -> Sequence[RunningAttempt]:
        """No attempts of earlier executions are recorded."""
        return ()

    async def durable(self) -> None:
        """Grant a slot at once."""
        self.records.append(("durable", -1))
        await trio.lowlevel.checkpoint()


def scripted(*steps: str) -> str:
    """Return the command line of an agent that performs these actions."""
    return shlex.join([sys.executable, "-S", "-E", str(SCRIPTED / "agent.py"), *steps])


def settings(
    line: str, directory: Path = SCRIPTED, mark: str = "", **config: Any
) -> CommandAgentSettings:
    """Return the settings of a command line; the environment of its program contains the mark."""
    found = read_agent_command("exec", line, config, context(directory, FAMILY=mark))
    assert isinstance(found, CommandAgentSettings), found
    return found


def room(folder: Path, **variables: Any) -> CaseContext:
    """Return a case whose folder exists."""
    files = CaseFiles(folder)
    files.workspace.mkdir(parents=True, exist_ok=True)
    return CaseContext(
        project="run-1",
        task="repairs",
        name="calc",
        files=files,
        suite=SCRIPTED,
        vars=variables,
        index=0,
        row="row-1",
        agent="scripted",
    )


def attempt(number: int = 0, prompt: str = "Do it.") -> Attempt:
    """Return the path of a file of the case."""
    return Attempt(number=number, run_id=f"r{number}", task_prompt=prompt)


@attrs.define(eq=False, kw_only=True)
class NumberedAttempts(Attempts):
    """Ids of attempts that are their numbers."""

    def begin(self) -> Attempt:
        """Return the next id."""
        return attempt(len(self.ends))


@attrs.define(kw_only=True)
class Rig:
    """A case with its agent, while its family is open."""

    agent: CommandAgent
    family: ProcessFamily
    ledger: Ledger

    def terms(self, *, earlier: Sequence[AttemptEnd] = (), **changed: Any) -> LoopConfig:
        """Return the configuration of the restart loop, without delays."""

        async def at_once(start: Callable[[], Awaitable[R]]) -> R:
            return await start()

        async def post(_type: str, _body: str) -> None:
            await trio.lowlevel.checkpoint()

        given: dict[str, Any] = {
            "policy": RestartPolicy(max_attempts=3, delay=0),
            "slots": at_once,
            "marker": FileMarker(self.agent.room.files.done, look_every=0.01),
            "children": self.family,
            "posts": CountingPoster(post),
            "attempts": NumberedAttempts(ids=str, ends=[*earlier]),
            "notify": CaseNotifier(case="calc", agent="scripted"),
        }
        return LoopConfig(**{**given, **changed})


@asynccontextmanager
async def open_rig(
    found: CommandAgentSettings,
    folder: Path,
    *,
    grace: float = 0.1,
    limit: float | None = None,
    max_processes: int = 0,
    **variables: Any,
) -> AsyncGenerator[Rig]:
    """An agent and its case."""
    async with open_family(grace) as family:
        ledger = Ledger()
        agent = CommandAgent(
            settings=found,
            room=room(folder, **variables),
            templates=Templates(),
            family=family,
            journal=ledger,
            bounds=AgentSettings(attempt_timeout=limit, max_processes=max_processes),
        )
        yield Rig(agent=agent, family=family, ledger=ledger)


def in_rig(
    found: CommandAgentSettings,
    folder: Path,
    work: Callable[[Rig], Awaitable[R]],
    **options: Any,
) -> R:
    """Run a function with an agent on Trio; options are those of `open_rig`."""

    async def main() -> R:
        async with open_rig(found, folder, **options) as rig:
            return await work(rig)

    return run(main)


def work_once(
    line: str, folder: Path, prompt: str = "Do it.", number: int = 0, **config: Any
) -> AttemptEnd:
    """Return the end of one attempt of a program with this command line."""
    names = ("directory", "mark")
    own = {name: config.pop(name) for name in names if name in config}
    rig = {name: config.pop(name) for name in RIG_OPTIONS if name in config}
    variables = rig.pop("variables", {})

    async def work(rig: Rig) -> AttemptEnd:
        return await rig.agent(attempt(number, prompt))

    return in_rig(settings(line, **own, **config), folder, work, **rig, **variables)


async def read_pipe(pipe: Path) -> str:
    """Return the text that a process writes to a named pipe, as soon as it is written."""
    return await trio.to_thread.run_sync(pipe.read_text, abandon_on_cancel=True)


def make_pipe(path: Path) -> Path:
    """Create a named pipe."""
    os.mkfifo(path)
    return path
