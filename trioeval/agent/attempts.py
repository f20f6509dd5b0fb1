"""The attempts of one case: those of earlier executions of the run, and those of this one.

An attempt is recorded in the step in which it ends, as the reply to a call that includes its number. So a
resumed execution finds the number of attempts, and repeats none of them.
"""

import hashlib
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.agent.bus.reading import read_parts
from trioeval.agent.loop import LoopEnd, LoopEnding, end_message
from trioeval.agent.open import CasePoster
from trioeval.agent.protocols import Attempts
from trioeval.agent.restarts import Attempt, AttemptEnd, AttemptFailure, attempts_text, cost_of
from trioeval.agent.workspace import open_plain
from trioeval.errors import BusError
from trioeval.evaluation.answerer import OnProgress
from trioeval.evaluation.prompt import RenderedPrompt
from trioeval.evaluation.provider_calls import ProviderCall, ReplySource
from trioeval.providers import Reply, Request, Usage
from trioeval.providers.programs.exec import OutputTail
from trioeval.suite.expand import Step

# The output of a program, read from its pipe and stored in a file, up to a limit.
#
# Pipes and not the files themselves: a script that writes to `/dev/stderr` would truncate the file, and a
# file has no limit. So the pipe must be read for as long as a process holds it; the processes are never
# blocked, because output over the limit is read and discarded.


DRAIN_SECONDS = 1.0
"""Seconds for reading the rest of a program's output after all of its processes have ended."""


@attrs.define(eq=False, repr=False)
class AttemptLog:
    """A file to which the output of a program is appended; obtained from `open_log` only.

    The output is read from a pipe until no process holds the other end.
    """

    path: Path
    start: int
    """Bytes that the file had before."""
    limit: int
    """Maximum number of stored bytes, ≥ 1."""
    _descriptor: int
    tail: OutputTail = attrs.field(factory=OutputTail)
    """The end of the output, stored or not."""
    kept: int = attrs.field(init=False, default=0)
    """Number of stored bytes of the output."""
    is_cut: bool = attrs.field(init=False, default=False)
    """True if the output exceeded the limit."""
    fault: str | None = attrs.field(init=False, default=None)
    """The reason why the file could not be written."""
    pipe: trio.lowlevel.FdStream = attrs.field(init=False)
    """The pipe that `pump` reads."""
    _taken: int = attrs.field(init=False, default=0)
    _more: trio.Event = attrs.field(init=False, factory=trio.Event)
    """Set, and replaced, after each read."""
    _at_end: bool = attrs.field(init=False, default=False)
    """True if no more output can arrive; the stream is closed, or about to be."""
    _over: trio.Event = attrs.field(init=False, factory=trio.Event)
    _scope: trio.CancelScope = attrs.field(
        init=False, factory=lambda: trio.CancelScope(shield=True)
    )
    """Shielded, because the output during the program's end matters most. `bound` ends it."""

    def feed(self, part: bytes) -> None:
        """Store a part of the output. Blocks briefly on the file; never raises."""
        self.tail.feed(part)
        if self.is_cut or self.fault is not None:
            return
        room = self.limit - self.kept
        self.kept += self._write(part[:room])
        if len(part) > room and self.fault is None:
            self.is_cut = True
            self._write(f"\n[cut after {self.limit} bytes (maxOutputBytes)]\n".encode())

    def _write(self, part: bytes) -> int:
        done = 0
        try:
            while done < len(part):
                done += os.write(self._descriptor, part[done:])
        except OSError as error:  # a full disk, for example: the program continues anyway
            self.fault = f"{self.path} cannot be written: {error.strerror}"
        return done

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    async def pump(self) -> None:
        """Read everything, until the pipe ends; then close both."""
        try:
            with self._scope:
                async with self.pipe:
                    try:
                        await self._take_all()
                    finally:
                        self._at_end = True
                        self._signal()
        finally:
            self.close()
            self._over.set()

    async def _take_all(self) -> None:
        async for part in self.pipe:
            self.feed(bytes(part))
            self._taken += len(part)
            self._signal()

    async def catch_up(self) -> None:
        """Wait until everything that was written before this call is read. A checkpoint."""
        await trio.lowlevel.checkpoint()
        if self._at_end:
            return
        goal = self._taken + _waiting_in(self.pipe.fileno())
        while self._taken < goal and not self._at_end:
            await self._more.wait()

    def bound(self) -> None:
        """Set a deadline for the pipe, used when all known processes of the program have ended."""
        self._scope.deadline = min(self._scope.deadline, trio.current_time() + DRAIN_SECONDS)

    async def finish(self) -> None:
        """Wait until the pipe has ended, with the deadline of `bound`. A checkpoint."""
        self.bound()
        await self._over.wait()

    def _signal(self) -> None:
        self._more.set()
        self._more = trio.Event()


def open_log(path: Path, limit: int, secrets: Sequence[str] = ()) -> AttemptLog:
    """Open the log of an attempt; the output of an interrupted attempt in it is kept.

    Args:
        path: Its path, in an existing folder.
        limit: Maximum number of stored bytes, ≥ 1.
        secrets: Texts that its tail hides, longest first.
    """
    descriptor = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    tail = OutputTail(secrets=secrets)
    return AttemptLog(path, os.fstat(descriptor).st_size, limit, descriptor, tail)


def _waiting_in(descriptor: int) -> int:
    """Return the number of unread bytes in a pipe."""
    from fcntl import ioctl
    from termios import FIONREAD

    (number,) = struct.unpack("i", ioctl(descriptor, FIONREAD, b"\0\0\0\0"))
    return int(number)


# Conversion of an attempt's end to the reply that is recorded, and back.


_KEY, _AGENT = "attempt", "agent"
_CUT: LoopEnding = "interrupted"
_ROW_ENDS = frozenset({"failed", "timed_out"})
"""Outcomes that a row may have although its agent was not finished: an invalid marker, or a timeout."""


def attempt_reply(end: AttemptEnd, *, spent: bool) -> Reply:
    """Return the record of an attempt, with its usage if its calls are not recorded separately."""
    failure = end.failure
    facts = {
        "failure": None if failure is None else {"kind": failure.kind, "message": failure.message},
        "exitCode": end.exit_code,
        "durationS": end.duration_s,
        "usage": attrs.asdict(end.usage),
        "cost": end.cost,
        "childrenEnded": end.children_ended,
        "metadata": dict(end.metadata),
    }
    usage, cost = (end.usage, end.cost) if spent else (Usage(), None)
    return Reply(output=end.output, usage=usage, cost=cost, metadata={_KEY: facts})


def attempt_end(reply: Reply) -> AttemptEnd | None:
    """Return the end of an attempt; None for a reply that `attempt_reply` did not make."""
    facts = reply.metadata.get(_KEY)
    if not isinstance(facts, Mapping):
        return None
    failure = facts["failure"]
    return AttemptEnd(
        output=reply.output,
        failure=None if failure is None else AttemptFailure(**failure),
        exit_code=facts["exitCode"],
        usage=Usage(**facts["usage"]),
        cost=facts["cost"],
        duration_s=facts["durationS"],
        children_ended=facts["childrenEnded"],
        metadata=facts["metadata"],
    )


def total_usage(ends: Sequence[AttemptEnd]) -> tuple[Usage, float | None]:
    """Return the total usage of attempts."""
    return Usage.sum(end.usage for end in ends), cost_of(end.cost for end in ends)


def attempts_json(ends: Sequence[AttemptEnd], first: int = 0) -> list[dict[str, Any]]:
    """Return the JSON data about attempts in rows."""
    return [
        {
            "number": number,
            "ok": end.failure is None,
            **({} if end.failure is None else {"failure": attrs.asdict(end.failure)}),
            **({} if end.exit_code is None else {"exitCode": end.exit_code}),
            "durationMs": end.duration_s * 1000,
            **({} if (tokens := end.usage.reported) is None else {"tokens": tokens}),
            **({} if end.cost is None else {"cost": end.cost}),
            **dict(end.metadata),
        }
        for number, end in enumerate(ends, first)
    ]


def case_reply(ended: LoopEnd, about: dict[str, Any]) -> Reply:
    """Return the reply of a case: the output of its last attempt, and the usage of all of them."""
    usage, cost = total_usage(ended.attempts)
    facts = {
        **about,
        "outcome": ended.ending,
        "message": ended.message,
        **({} if ended.gave_up is None else {"gaveUp": ended.gave_up}),
        "attempts": attempts_json(ended.attempts),
        "childrenEnded": ended.children_ended,
    }
    output = ended.attempts[-1].output if ended.attempts else ""
    return Reply(output=output, usage=usage, cost=cost, metadata={_AGENT: facts})


def reported_attempts(reply: Reply | None) -> int:
    """Return the number of attempts in the reply of a case."""
    facts = None if reply is None else reply.metadata.get(_AGENT)
    return len(facts["attempts"]) if isinstance(facts, Mapping) else 0


def with_cut_attempt(reply: Reply | None, end: AttemptEnd) -> Reply:
    """Return the reply of a case with an additional attempt that was interrupted."""
    number = reported_attempts(reply)
    if reply is None:
        message = f"{_CUT} in attempt {number}"
        reply = case_reply(LoopEnd(ending=_CUT, message=message, attempts=()), {})
    facts = dict(reply.metadata[_AGENT])
    facts["attempts"] = [*facts["attempts"], *attempts_json([end], number)]
    return attrs.evolve(
        reply,
        usage=Usage.sum((reply.usage, end.usage)),
        cost=cost_of((reply.cost, end.cost)),
        metadata={**reply.metadata, _AGENT: facts},
    )


def with_row_outcome(reply: Reply, outcome: str) -> Reply:
    """Return the reply of a case, adjusted if its row has another outcome than its agent.

    Args:
        reply: The reply of the case; for an unfinished case the intermediate one.
        outcome: The outcome of the row.

    Example:
        >>> so_far = {"outcome": "interrupted", "message": "interrupted after 2 attempts"}
        >>> reply = Reply(output="", metadata={"agent": so_far})
        >>> with_row_outcome(reply, "timed_out").metadata["agent"]
        {'outcome': 'timed_out', 'message': 'timed out after 2 attempts'}
    """
    facts = reply.metadata.get(_AGENT)
    if outcome not in _ROW_ENDS or not isinstance(facts, Mapping) or facts["outcome"] != _CUT:
        return reply
    message = facts["message"].replace(_CUT, outcome.replace("_", " "), 1)
    agent = {**facts, "outcome": outcome, "message": message}
    return attrs.evolve(reply, metadata={**reply.metadata, _AGENT: agent})


_RUN_ID = "runId"


@attrs.define(eq=False, repr=False, kw_only=True)
class RecordedAttempts(Attempts):
    """The attempts of one case of a task, as recorded in the journal of the run."""

    reply_source: ReplySource
    step: Step
    rendered: RenderedPrompt
    on_progress: OnProgress
    is_model: bool
    """True if its usage is recorded with its single calls."""
    post: CasePoster
    """Gets the run id under which messages are posted."""
    is_resumed: bool = False
    """True if the first attempt of this execution was started before."""
    earlier: Sequence[AttemptEnd] = attrs.field(init=False)
    """The attempts of earlier executions."""

    @earlier.default
    def _find_earlier(self) -> Sequence[AttemptEnd]:
        found: list[AttemptEnd] = []
        while (paid := self.reply_source.recalled(self._inquiry(len(found)))) is not None:
            end = attempt_end(paid.reply)
            if end is None:
                break
            if found:  # as in `ended`
                found[-1] = attrs.evolve(found[-1], output="")
            found.append(end)
        self.ends += found
        self.last_id = found[-1].metadata.get(_RUN_ID) if found else None
        return found

    @property
    def digest(self) -> str:
        """Identifies the case independently of its position; blank without a journal."""
        key = self._inquiry(0).key
        if key is None:
            return ""
        text = f"{key.question.hex()}\n{self.step.repeat_index}\n{key.row}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    def begin(self) -> Attempt:
        """Start the next attempt; messages are posted under its run id from now on."""
        attempt = super().begin()
        self.post.run_id = attempt.run_id
        is_resumed = self.is_resumed and attempt.number == len(self.earlier)
        return attrs.evolve(attempt, is_resumed=is_resumed)

    def ended(self, attempt: Attempt, end: AttemptEnd) -> None:
        """Record the end of an attempt, as a reply."""
        own = {_RUN_ID: attempt.run_id}
        if attempt.previous_run_id is not None:
            own["previousRunId"] = attempt.previous_run_id
        end = attrs.evolve(end, metadata={**own, **end.metadata})
        super().ended(attempt, end)
        inquiry = self._inquiry(attempt.number)
        self.reply_source.record(
            inquiry, attempt_reply(end, spent=not self.is_model), end.duration_s * 1000
        )
        self.report_progress()

    async def post_missing_end(self, bus: Path) -> None:
        """Post the end of the last started attempt on a bus if it is missing there after a kill."""
        try:
            run = await trio.to_thread.run_sync(_unended, bus)
        except BusError as error:
            self.post.buses.lose(error)
            return
        if run is None:
            return
        ended = {end.metadata.get(_RUN_ID): number for number, end in enumerate(self.ends)}
        self.post.run_id = run
        number = ended.get(run)
        if number is None:
            await self.post("RUN_CRASH", f"attempt {len(self.ends)} was cut off: run {run}")
        else:
            await self.post(*end_message(number, run, self.ends[number].failure))

    def report_progress(self) -> None:
        """Report the intermediate reply of the case."""
        message = f"interrupted after {attempts_text(len(self.ends))}"
        so_far = LoopEnd(ending="interrupted", message=message, attempts=tuple(self.ends))
        latency_ms = sum(end.duration_s for end in self.ends) * 1000
        self.on_progress(case_reply(so_far, {}), latency_ms, self.recalled)

    @property
    def recalled(self) -> int:
        """Number of requests that earlier executions made."""
        return sum(end.metadata.get("steps", 1) for end in self.earlier)

    def _inquiry(self, number: int) -> ProviderCall:
        rendered, step = self.rendered, self.step
        request = Request(prompt=rendered.prompt, vars=rendered.vars, options=rendered.options)
        return self.reply_source.prepare(
            step.index, "attempt", step.provider_index, request, number, "over"
        )


def _unended(bus: Path) -> str | None:
    """Return the run id of the last attempt with a start but no end on a bus. Blocks on files."""
    run: str | None = None
    for part in read_parts(bus):
        for message in part.messages:
            draft = message.draft
            if draft.type == "RUN_START":
                run = draft.run_id
            elif draft.type in ("RUN_STOP", "RUN_CRASH") and draft.run_id == run:
                run = None
    return run
