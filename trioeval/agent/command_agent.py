# Separate from `agent.task`: one of the two kinds of agents, beside `model_agent`.
"""An agent that is a program: it runs once for each attempt, in the workspace of its case."""

import errno
import functools
import math
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import attrs
import trio

from trioeval.agent.attempts import AttemptLog, open_log
from trioeval.agent.case_folder import CaseContext, CaseFiles
from trioeval.agent.journal import AgentJournal, ProcessIdentity, RunningAttempt
from trioeval.agent.model import AgentSettings
from trioeval.agent.processes import ProcessFamily, ProcessTree, identify
from trioeval.agent.report_file import (
    AttemptReport,
    InvalidReports,
    read_report_file,
    set_aside,
    shortened,
    with_cut_off,
)
from trioeval.agent.restarts import Attempt, AttemptEnd, AttemptFailure, FailureKind
from trioeval.agent.slots import ChildRuns
from trioeval.agent.workspace import read_plain, write_plain
from trioeval.errors import TemplateError
from trioeval.evaluation.commands import too_many_processes
from trioeval.executables import start_failure
from trioeval.providers.programs.entries import CommandAgentSettings, has_template
from trioeval.providers.programs.exec import last_line, to_text
from trioeval.providers.programs.members import TreeIdentity
from trioeval.providers.programs.processes import KILLED_WITHIN, describe_end, make_mark, start_tree
from trioeval.providers.secrets import hide, longest_first
from trioeval.templates import Templates

_KINDS: Mapping[int | None, FailureKind] = {
    errno.ENOENT: "not_found",
    errno.ENOTDIR: "not_found",
    errno.EACCES: "permission",
    errno.EPERM: "permission",
    errno.E2BIG: "invalid",
    errno.ENOEXEC: "invalid",
    errno.ELOOP: "invalid",
    errno.ENAMETOOLONG: "invalid",
}
"""The failure kinds of start errors; any other error may not occur the next time."""

_HIDDEN = (
    "a process that leaves its session, clears its environment and loses its parent cannot be found on this "
    "system, and would outlive its case"
)

_LOST = "its supervisor ($PPID) was killed; all processes of the attempt were ended"


@attrs.frozen(kw_only=True)
class CommandAgent:
    """Runs a program for each attempt; an `Agent` of the restart loop.

    Processes that the program leaves behind belong to the family, which ends them with the case.
    """

    settings: CommandAgentSettings
    room: CaseContext
    templates: Templates = attrs.field(repr=False)
    """Renders the words of the command."""
    family: ProcessFamily
    journal: AgentJournal | None = None
    """Records its processes, so that they can be ended after this program has died."""
    bounds: AgentSettings
    """The limits of an attempt: its processes, and its time if the program's own settings have none."""
    child_runs: ChildRuns | None = None
    """The submissions of its programs; None if they may not submit any."""
    reports: InvalidReports = attrs.field(factory=InvalidReports, repr=False)
    """Collects the problems of unusable reports."""

    _secrets: tuple[str, ...] = attrs.field(init=False, repr=False)
    """Texts that failure messages hide, longest first."""

    @_secrets.default
    def _sort(self) -> tuple[str, ...]:
        return longest_first(self.settings.secrets)

    async def __call__(self, attempt: Attempt, /) -> AttemptEnd:
        """Run the program once. Always a checkpoint.

        When cancelled, it ends all processes of the family before it raises.
        """
        end = await self._run(attempt)
        if attempt.is_resumed:
            add = functools.partial(with_cut_off, end, self.room.files, attempt.number)
            end = await trio.to_thread.run_sync(add)
        if end.failure is None:
            return end
        # It is posted on the bus as well, and may contain whole messages of programs.
        message = shortened(hide(end.failure.message, self._secrets))
        return attrs.evolve(end, failure=attrs.evolve(end.failure, message=message))

    async def _run(self, attempt: Attempt) -> AttemptEnd:
        try:
            command = self._command(attempt)
        except TemplateError as error:
            await trio.lowlevel.checkpoint()
            return _failed("invalid", f"the command cannot be rendered: {error}")
        with ExitStack() as stack:
            limit = self.settings.max_output
            open_one = functools.partial(open_log, limit=limit, secrets=self._secrets)
            prepare = functools.partial(_prepare, self.room.files, attempt, open_one, stack)
            try:
                logs = await trio.to_thread.run_sync(prepare)
            except OSError as error:
                return _failed("unexpected", f"the files of the attempt cannot be written: {error}")
            try:
                more = (
                    {} if self.child_runs is None else await self.child_runs.begin(attempt.run_id)
                )
                started_at = trio.current_time()
                process_tree = await self._start(attempt, command, logs, more)
            except (OSError, ValueError) as error:
                word = self.settings.words[0]
                program = os.fsdecode(command[0]) if has_template(word) else word
                return self._cannot_start(program, error)
            stack.pop_all()  # the family closes them
        is_over = False
        try:
            end = await self._work(attempt, process_tree)
            is_over = True
        finally:
            if (
                not is_over
            ):  # all processes at once: those of earlier attempts may need their grace too
                with trio.move_on_after(KILLED_WITHIN, shield=True):
                    await self.family.end()
        waited = 0.0 if self.child_runs is None else self.child_runs.session.waited
        return attrs.evolve(end, duration_s=trio.current_time() - started_at - waited)

    async def _start(
        self,
        attempt: Attempt,
        command: Sequence[bytes],
        logs: tuple[AttemptLog, AttemptLog],
        more: Mapping[str, str],
    ) -> ProcessTree:
        """Start the program, after recording how its processes can be found if this program dies."""
        mark = make_mark()
        if self.journal is not None:
            self.journal.started(self._running(attempt, identify(TreeIdentity(0, mark.encode()))))
            await self.journal.durable()
        begin = functools.partial(
            start_tree,
            command,
            cwd=self.room.files.workspace,
            environ={**self.settings.environ, **_variables(self.room, attempt), **more},
            stdin=subprocess.PIPE if self.settings.stdin else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            grace=self.family.grace,
            mark=mark,
            supervised=True,
            max_processes=self.bounds.max_processes,
        )
        on_end = functools.partial(self._record_end, attempt)
        try:
            process_tree = await self.family.start(begin, logs, on_end)
        except (OSError, ValueError):
            on_end()
            raise
        if self.journal is not None:
            self.journal.started(self._running(attempt, identify(process_tree.tree.root)))
        return process_tree

    def _running(self, attempt: Attempt, process: ProcessIdentity) -> RunningAttempt:
        room = self.room
        return RunningAttempt(
            run_id=attempt.run_id,
            index=room.index,
            row=room.row,
            number=attempt.number,
            agent=room.agent,
            process=process,
        )

    async def _work(self, attempt: Attempt, process_tree: ProcessTree) -> AttemptEnd:
        """Return the end of an attempt whose program runs."""
        own = self.settings.timeout
        limit = self.bounds.attempt_timeout if own is None else own
        tree, stdin = process_tree.tree, process_tree.tree.process.stdin
        async with trio.open_nursery() as nursery:
            if stdin is not None:
                nursery.start_soon(_write, stdin, _text(attempt.prompt))
            with trio.move_on_after(math.inf if limit is None else limit) as in_time:
                if self.child_runs is not None:
                    self.child_runs.session.limit = in_time
                await tree.wait()
            nursery.cancel_scope.cancel("the program has ended")
        children = 0
        if in_time.cancelled_caught or tree.lost_supervisor:
            children = await tree.children()
            await self.family.end_one(process_tree)
        await process_tree.stdout.catch_up()
        await process_tree.stderr.catch_up()
        if in_time.cancelled_caught:
            failure: AttemptFailure | None = AttemptFailure(
                "timeout", f"did not end within {limit:g} seconds"
            )
        elif tree.exceeded:
            failure = AttemptFailure("killed", too_many_processes(self.bounds.max_processes))
        elif tree.lost_supervisor:
            failure = AttemptFailure("killed", _LOST)
        else:
            failure = self._judge(tree.returncode, process_tree.stderr)
        log = process_tree.stdout
        read = functools.partial(_read, self.room.files, attempt, log, log.kept, self._secrets)
        if not await tree.look():
            self.family.drop(process_tree)
        output, report = await trio.to_thread.run_sync(read)
        task, name = self.room.task, self.room.name
        case = name if task is None else f"{task}/{name}"
        self.reports.add(case, attempt.number, report.warnings)
        hidden = () if tree.finds_all else (_HIDDEN,)
        both = (process_tree.stdout, process_tree.stderr)
        cut = [f"{one.path} was cut after {one.limit} bytes" for one in both if one.is_cut]
        faults = [one.fault for one in both if one.fault is not None]
        warnings = [*cut, *faults, *report.warnings, *hidden]
        paths = {"stdout": str(process_tree.stdout.path), "stderr": str(process_tree.stderr.path)}
        return AttemptEnd(
            output=report.output if report.has_output else output,
            failure=report.failure or failure,
            exit_code=tree.returncode,
            children_ended=children,
            usage=report.usage,
            cost=report.cost,
            metadata={**paths, **({"warnings": warnings} if warnings else {})},
        )

    def _judge(self, code: int | None, errors: AttemptLog) -> AttemptFailure | None:
        if code is None or code in self.settings.success:
            return None
        if code < 0:
            return AttemptFailure("killed", describe_end(code))
        return AttemptFailure("exit", f"{describe_end(code)}{last_line(errors.tail.text)}")

    def _cannot_start(self, program: str, error: OSError | ValueError) -> AttemptEnd:
        workspace = self.room.files.workspace
        instead = "pass {{promptFile}} instead of {{prompt}}"
        if isinstance(error, ValueError):  # texts of the operating system end at a NUL
            return _failed("invalid", f"a word of the command has a NUL character; {instead}")
        if error.errno == errno.E2BIG:
            return _failed("invalid", f"the words of the command are too long; {instead}")
        if not workspace.is_dir():
            return _failed("invalid", f"its workspace {workspace} no longer exists")
        kind = _KINDS.get(error.errno, "unexpected")
        return _failed(kind, start_failure(program, error))

    def _command(self, attempt: Attempt) -> list[bytes]:
        room = self.room
        named = {
            **room.vars,
            "prompt": attempt.prompt,
            "promptFile": str(room.files.attempt_prompt(attempt.number)),
            "workspace": str(room.files.workspace),
            "suite": str(room.suite),
            "attempt": attempt.number,
            "case": room.name,
        }
        words = self.settings.command(lambda word: self.templates.fill(word, named))
        return [_text(word) for word in words]

    def _record_end(self, attempt: Attempt) -> None:
        if self.journal is not None:
            self.journal.gone(attempt.run_id)


def _prepare(
    files: CaseFiles, attempt: Attempt, open_one: Callable[[Path], AttemptLog], stack: ExitStack
) -> tuple[AttemptLog, AttemptLog]:
    """Write the agent's prompt, set an old report aside, and open the logs. Blocks on files."""
    number = attempt.number
    files.logs.mkdir(parents=True, exist_ok=True)
    write_plain(files.attempt_prompt(number), _text(attempt.prompt))
    set_aside(files, number)
    stdout = open_one(files.stdout(number))
    stack.callback(stdout.close)
    stderr = open_one(files.stderr(number))
    stack.callback(stderr.close)
    return stdout, stderr


def _read(
    files: CaseFiles, attempt: Attempt, log: AttemptLog, length: int, secrets: Sequence[str]
) -> tuple[str, AttemptReport]:
    """Return the output of the agent, and its report. Blocks on files; never raises."""
    try:
        written = read_plain(log.path, length, log.start)
    except OSError:  # the file was removed
        written = b""
    return to_text(written), read_report_file(files.report(attempt.number), secrets)


def _variables(room: CaseContext, attempt: Attempt) -> dict[str, str]:
    """Return the environment variables that describe the case to a program."""
    files, number = room.files, attempt.number
    return {
        "TRIOEVAL_PROMPT": str(files.attempt_prompt(number)),
        "TRIOEVAL_WORKSPACE": str(files.workspace),
        "TRIOEVAL_DONE": str(files.done),
        "TRIOEVAL_BUS": str(files.bus),
        "TRIOEVAL_PROJECT": room.project,
        "TRIOEVAL_CASE": room.name,
        "TRIOEVAL_RUN": attempt.run_id,
        "TRIOEVAL_ATTEMPT": str(number),
        "TRIOEVAL_REPORT": str(files.report(number)),
        "TRIOEVAL_PYTHON": sys.executable,
    }


def _text(text: str) -> bytes:
    """Encode a text for programs; characters that cannot be encoded are replaced."""
    try:
        return os.fsencode(text)  # a path may have bytes that are not text
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


async def _write(stream: trio.abc.SendStream, given: bytes) -> None:
    # A program need not read all of its input.
    with suppress(trio.BrokenResourceError):
        async with stream:
            await stream.send_all(given)


def _failed(kind: FailureKind, message: str) -> AttemptEnd:
    return AttemptEnd(failure=AttemptFailure(kind, message))
