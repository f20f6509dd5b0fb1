# Apart from `agent.task`: one of the two kinds of agents, beside `command_agent`.
"""An agent that is a model: a conversation with a provider, and tools that work in the workspace of the case.

Each reply is a call of its own on the lane of its provider, so a model takes its turn there and holds neither
a slot of it nor a run slot while tools run. Replies are written down as they arrive and recalled when a run
is resumed, with what their tools gave: an attempt that was cut off goes on where it was. They never come from
the cache of replies, because what a model said in another workspace is of no use in this one.

A provider that calls no tools makes an attempt of one reply. It is told where its workspace is, as variables,
and may work there itself.

The time of an attempt is work: replies and tools, and not the waits for lanes and limits.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.agent.report_file import shortened
from trioeval.agent.restarts import CONTINUATION, Attempt, AttemptEnd, AttemptFailure, FailureKind
from trioeval.agent.workspace import read_plain, write_plain, write_whole
from trioeval.agent.workspace_tools import DONE, WorkspaceTools
from trioeval.errors import ProviderError, ProviderErrorKind
from trioeval.evaluation.provider_calls import Asker, Inquiry
from trioeval.evaluation.tools import (
    Chain,
    Message,
    ToolCall,
    ToolResult,
    Turn,
    first_messages,
    prompt_of,
    read_turn,
)
from trioeval.kernel import Calls
from trioeval.nurseries import open_plain_nursery
from trioeval.providers import Request
from trioeval.providers.messages import to_messages

# What tools gave in one attempt of a model, in a file: one line of JSON for each call.
#
# It is for people, and for a resumed run: where a reply is recalled instead of asked for, its calls were made
# already, so what they gave is read here and nothing is done twice. That also keeps the conversation what it
# was, and so the replies behind it are recalled as well. A call that was cut off is made again.


_LARGEST = 128 * 1024 * 1024
"""Bytes that are read of an earlier execution; calls that stand behind them are made again."""


@attrs.define(eq=False)
class ToolLog:
    """What the tools of one attempt gave. To make one blocks on the file.

    A model that runs commands may have put anything in its place, which is then no log.
    """

    file: Path
    _earlier: list[dict[str, Any]] = attrs.field(init=False, repr=False)
    """Of an earlier execution, in order; what is not of this conversation is dropped when that shows."""
    _lines: list[str] = attrs.field(init=False, factory=list, repr=False)
    """Of this one, which are not written yet."""
    _is_own: bool = attrs.field(init=False, default=False, repr=False)
    """Whether the file holds what this execution knows, and nothing else."""

    @_earlier.default
    def _read(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        try:
            text = read_plain(self.file, _LARGEST).decode("utf-8", "replace")
        except OSError:
            return found
        for line in text.splitlines():
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):  # the last line of a program that was killed
                break
            if not isinstance(entry, dict) or "result" not in entry:
                break
            found.append(entry)
        return found

    def known(self, step: int, call: ToolCall) -> ToolResult | None:
        """What the next call gave in an earlier execution; None if it was not made."""
        entry = self._earlier[0] if self._earlier else None
        if entry is None or any(entry.get(key) != part for key, part in _key(step, call).items()):
            self.forget()
            return None
        self._lines.append(json.dumps(self._earlier.pop(0)))
        return ToolResult(entry["result"], failed=entry.get("failed", False))

    def forget(self) -> None:
        """The conversation takes another course than in the earlier execution."""
        self._earlier.clear()

    async def add(self, step: int, call: ToolCall, result: ToolResult) -> None:
        """Write down what a call gave, also when it is cancelled: a call that was made is known."""
        self.forget()
        entry = {**_key(step, call), "result": result.value, "failed": result.failed}
        self._lines.append(json.dumps(entry))
        lines = "".join(f"{line}\n" for line in self._lines).encode()
        self._lines.clear()
        with trio.CancelScope(shield=True):  # as long as a disk takes
            await trio.to_thread.run_sync(self._write, lines)

    def _write(self, lines: bytes) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        if self._is_own:
            write_plain(self.file, lines, os.O_APPEND)
            return
        write_whole(self.file, lines)
        self._is_own = True


def _key(step: int, call: ToolCall) -> dict[str, Any]:
    return {"step": step, "id": call.id, "tool": call.name, "arguments": call.arguments}


_FAILURES: Mapping[ProviderErrorKind, FailureKind] = {
    "auth": "auth",
    "permission": "permission",
    "quota_exhausted": "quota_exhausted",
    "not_found": "not_found",
    "bad_request": "invalid",
    "unsupported": "invalid",
    "replay_miss": "invalid",
    "tls": "invalid",
    "attempt_timeout": "timeout",
    "bad_exit": "exit",
}
"""What failures of a provider are for an attempt; all others are `unexpected`."""

_LOOK_AGAIN = 0.05
"""Seconds by which an attempt that has waited may be ended too late."""


@attrs.frozen(kw_only=True)
class ModelAgent:
    """The model that works on one case; an `Agent`.

    Failures of its provider are failures of an attempt. What says that the run itself cannot go on (the
    budget, a closed lane, a shared limit, a job that is over) is raised as it is.
    """

    asker: Asker
    index: int
    """Of the row that pays."""
    place: int
    """Of its provider among those of the asker."""
    calls: Calls[Any]
    request: Request
    """What the row asks: variables, options, and its place; the prompt is that of the attempt."""
    tools: WorkspaceTools
    """What it may call, in the folder of the case and as the settings of the task want it."""

    async def __call__(self, attempt: Attempt, /) -> AttemptEnd:
        """Work once. A checkpoint.

        Raises:
            BudgetError: A reply would need more than the budget of the run has left.
            LaneClosedError: The lane of the provider serves no more calls.
            LimitError: A shared limit will never allow a reply.
            TooLateError: The job is over, or the deadline of the run has passed.
        """
        files = self.tools.files
        log_file = files.logs / f"attempt-{attempt.number:03d}.tools.jsonl"

        def prepare() -> ToolLog:
            told = files.told(attempt.number)
            told.parent.mkdir(parents=True, exist_ok=True)
            write_plain(told, attempt.prompt.encode("utf-8", "replace"))
            return ToolLog(log_file)

        try:
            log = await trio.to_thread.run_sync(prepare)
        except OSError as error:
            return AttemptEnd(failure=_no_files(error))
        work = _Work(self, attempt, log)
        failure = await work.run()
        chain, used = work.chain, work.chain.used
        return AttemptEnd(
            output=work.output,
            failure=failure,
            duration_s=work.worked() + chain.recalled_s,
            metadata={
                "steps": chain.steps,
                "toolCalls": dict(chain.tool_calls),
                "toolLog": str(log_file),
            },
            usage=used.usage,
            cost=used.cost,
        )


@attrs.define(eq=False)
class _Work:
    """One attempt under way."""

    agent: ModelAgent
    attempt: Attempt
    log: ToolLog
    chain: Chain = attrs.field(init=False)
    output: Any = attrs.field(init=False, default="")
    """What the model said last."""
    _began_at: float = attrs.field(init=False, factory=trio.current_time)
    _is_recalled: bool = attrs.field(init=False, default=False)
    """Whether the last reply is of an earlier execution of the run."""
    _waited: float = attrs.field(init=False, default=0.0)
    """Seconds for which replies have waited that are there."""
    _asking: float | None = attrs.field(init=False, default=None)
    """What the job had waited when a reply was asked for that is not there yet."""

    @chain.default
    def _open(self) -> Chain:
        # As if it was never cut off, so that what was said then is recalled; if nothing was, it is told.
        fresh = Chain(_opening(attrs.evolve(self.attempt, is_resumed=False)))
        if not self.attempt.is_resumed:
            return fresh
        is_known = self.agent.asker.recalled(self._inquiry(fresh)) is not None
        return fresh if is_known else Chain(_opening(self.attempt))

    def worked(self) -> float:
        """Seconds of work until now, without those that an earlier execution took."""
        now = trio.current_time()
        return now - self._began_at - self._waits(now)

    def _waits(self, now: float) -> float:
        """Seconds in which it has waited for lanes and limits: only a reply that is asked for does."""
        if self._asking is None:
            return self._waited
        return self._waited + self.agent.calls.waited(now) - self._asking

    async def run(self) -> AttemptFailure | None:
        """Work until the model says no more, or may not."""
        limit = self.agent.tools.settings.attempt_timeout
        if limit is None:
            return await self._converse()
        message = f"it took longer than {limit:g} seconds of work (attemptTimeout)"
        failure: AttemptFailure | None = AttemptFailure("timeout", message)
        scope = trio.CancelScope()
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._watch, limit, scope)
            try:
                with scope:
                    failure = await self._converse()
            finally:
                nursery.cancel_scope.cancel("the attempt is over")
        return failure

    async def _watch(self, limit: float, scope: trio.CancelScope) -> None:
        """End the attempt when it has worked for so long."""
        while (left := limit - self.worked()) > 0:
            # Nobody tells when a wait ends, so an attempt that has waited is looked at now and then.
            has_waited = self._waits(trio.current_time()) > 0
            await trio.sleep(max(left, _LOOK_AGAIN) if has_waited else left)
        scope.cancel("the attempt takes too long")

    async def _converse(self) -> AttemptFailure | None:
        """Ask, and do what is wanted, until nothing is wanted any more; how that failed, if it did."""
        most = self.agent.tools.settings.max_steps
        while True:
            try:
                turn = await self._step()
            except ProviderError as error:
                kind = _FAILURES.get(error.kind, "unexpected")
                return AttemptFailure(kind, shortened(str(error)))
            if not turn.calls:
                self.output = self.chain.replies[-1].output
                return None
            self.output = turn.text
            step = self.chain.steps - 1
            results = []
            for call in turn.calls:
                self.chain.tool_calls[call.name] += 1
                result = self.log.known(step, call) if self._is_recalled else None
                if result is None:
                    result = await self.agent.tools.run(call)
                    try:
                        await self.log.add(step, call, result)
                    except OSError as error:
                        return _no_files(error)
                if call.name == DONE and not result.failed:
                    self.output = result.value or turn.text
                    return None  # it has said that nothing comes behind
                results.append(result)
            self.chain.go_on(turn, results)
            if self.chain.steps >= most:
                message = f"{self.chain.steps} steps are made, and {most} are allowed (maxSteps)"
                return AttemptFailure("timeout", message)

    async def _step(self) -> Turn:
        """What the model says next."""
        agent, inquiry = self.agent, self._inquiry(self.chain)
        self._asking = agent.calls.waited(trio.current_time())
        recalled = self.chain.recalled
        try:
            paid = await agent.asker.ask(inquiry, agent.calls, self.chain)
        finally:
            self._waited, self._asking = self._waits(trio.current_time()), None
        self._is_recalled = self.chain.recalled > recalled
        if not self._is_recalled:
            self.log.forget()
        output = paid.reply.output
        if output is None:
            agent.asker.reject(inquiry)
            msg = "the reply has no output"
            raise ProviderError("empty_reply", msg)
        return read_turn(output)

    def _inquiry(self, chain: Chain) -> Inquiry:
        agent, number = self.agent, (self.attempt.number, chain.steps)
        request = self._request(chain.prompt)
        inquiry = agent.asker.inquiry(agent.index, "attempt", agent.place, request, *number)
        inquiry.cache_key = None
        return inquiry

    def _request(self, prompt: str) -> Request:
        agent, files = self.agent, self.agent.tools.files
        places = {
            "workspace": str(files.workspace),
            "promptFile": str(files.told(self.attempt.number)),
            "attempt": self.attempt.number,
            "done": str(files.done),
        }
        request = agent.request
        own = request.options.get("tools", agent.asker.entries[agent.place].config.get("tools"))
        listed = own if isinstance(own, list | tuple) else ()
        return attrs.evolve(
            request,
            prompt=prompt,
            vars={**request.vars, **places},
            options={**request.options, "tools": [*listed, *agent.tools.offers]},
        )


def _no_files(error: OSError) -> AttemptFailure:
    message = f"the files of the attempt cannot be written: {error.filename}: {error.strerror}"
    return AttemptFailure("unexpected", message)


def _messages(prompt: str) -> list[Any]:
    """The messages of a prompt; empty where its provider will say that they are none."""
    try:
        return to_messages(prompt)
    except ProviderError:
        return []


def _opening(attempt: Attempt) -> tuple[Message, ...]:
    """The conversation that an attempt opens."""
    messages = _messages(attempt.task_prompt)
    match messages:
        case []:
            return first_messages(attempt.prompt)
        case [{"role": "user", "content": str(text), **others}] if not others:
            opening = first_messages(attrs.evolve(attempt, task_prompt=text).prompt)
            # A text that is written like messages is none only as long as it stands in one.
            is_plain = _messages(prompt_of(opening)) == [*opening]
            return opening if is_plain else first_messages(attempt.prompt)
        case _:
            is_new = attempt.prompt == attempt.task_prompt
            return (*messages, *(() if is_new else first_messages(CONTINUATION)))
