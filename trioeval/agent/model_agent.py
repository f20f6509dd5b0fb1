# Separate from `agent.task`: one of the two kinds of agents, beside `command_agent`.
"""An agent that is a model: a conversation with a provider, and tools that work in the workspace of the case.

Each reply is a separate call on the lane of its provider, so a model waits for its turn there and holds
neither a slot of the lane nor a run slot while tools run. Replies are recorded as they arrive and recalled
when a run is resumed, with the results of their tools: an interrupted attempt continues where it was. They
never come from the cache of replies, because a reply for another workspace is of no use in this one.

A provider that calls no tools makes an attempt of one reply. It gets the path of its workspace as a variable,
and may work there itself.

The time of an attempt is working time: replies and tools, without the waits for lanes and limits.
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
from trioeval.evaluation.provider_calls import ProviderCall, ReplySource
from trioeval.evaluation.tools import (
    Message,
    ModelTurn,
    ToolConversation,
    ToolResult,
    first_messages,
    prompt_of,
    read_turn,
)
from trioeval.kernel import Calls
from trioeval.nurseries import open_plain_nursery
from trioeval.providers import Request, ToolCall
from trioeval.providers.messages import to_messages

# The tool results of one attempt of a model, in a file: one line of JSON for each call.
#
# It is for people, and for a resumed run: if a reply is recalled instead of requested, its tool calls were
# made already, so their results are read here and nothing is done twice. That also keeps the conversation the
# same, so that the following replies are recalled as well. A call that was cut off is made again.


_LARGEST = 128 * 1024 * 1024
"""Maximum bytes that are read of an earlier execution's file; later calls are made again."""


@attrs.define(eq=False, repr=False)
class ToolLog:
    """The tool results of one attempt. Creating an instance blocks on the file.

    A model with commands may have put anything in its place, which is then not a valid log.
    """

    file: Path
    _earlier: list[dict[str, Any]] = attrs.field(init=False)
    """Results of an earlier execution, in order; cleared when the conversation differs."""
    _lines: list[str] = attrs.field(init=False, factory=list)
    """Results of this execution that are not written yet."""
    _is_own: bool = attrs.field(init=False, default=False)
    """True if the file contains exactly the results known to this execution."""

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
        """Return the result of the next call from an earlier execution; None if it was not made."""
        entry = self._earlier[0] if self._earlier else None
        if entry is None or any(entry.get(key) != part for key, part in _key(step, call).items()):
            self.forget()
            return None
        self._lines.append(json.dumps(self._earlier.pop(0)))
        return ToolResult(entry["result"], failed=entry.get("failed", False))

    def forget(self) -> None:
        """Discard the earlier results: the conversation differs from that of the earlier execution."""
        self._earlier.clear()

    async def add(self, step: int, call: ToolCall, result: ToolResult) -> None:
        """Record the result of a call, also when cancelled: a call that was made is known."""
        self.forget()
        entry = {**_key(step, call), "result": result.value, "failed": result.failed}
        self._lines.append(json.dumps(entry))
        lines = "".join(f"{line}\n" for line in self._lines).encode()
        self._lines.clear()
        with trio.CancelScope(shield=True):  # for the duration of the write
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
"""The kinds of provider failures for an attempt; all others are `unexpected`."""

_LOOK_AGAIN = 0.05
"""Maximum seconds by which an attempt that has waited may exceed its timeout."""


@attrs.frozen(kw_only=True)
class ModelAgent:
    """The model that works on one case; an `Agent`.

    Failures of its provider are failures of an attempt. Exceptions that end the run itself (the budget, a
    closed lane, a shared limit, a job that has ended) are raised unchanged.
    """

    reply_source: ReplySource
    index: int
    """The index of the row that pays."""
    place: int
    """The index of its provider among those of the asker."""
    calls: Calls[Any]
    request: Request
    """The request of the row: variables, options, and position; the prompt is that of the attempt."""
    tools: WorkspaceTools
    """Its tools, for the folder of the case and according to the settings of the task."""

    async def __call__(self, attempt: Attempt, /) -> AttemptEnd:
        """Work once. A checkpoint.

        Raises:
            BudgetError: A reply would need more than the budget of the run has left.
            LaneClosedError: The lane of the provider accepts no more calls.
            LimitError: A shared limit will never allow a reply.
            TooLateError: The job has ended, or the deadline of the run has passed.
        """
        files = self.tools.files
        log_file = files.logs / f"attempt-{attempt.number:03d}.tools.jsonl"

        def prepare() -> ToolLog:
            path = files.attempt_prompt(attempt.number)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_plain(path, attempt.prompt.encode("utf-8", "replace"))
            return ToolLog(log_file)

        try:
            log = await trio.to_thread.run_sync(prepare)
        except OSError as error:
            return AttemptEnd(failure=_file_failure(error))
        work = _ModelAttempt(self, attempt, log)
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


@attrs.define(eq=False, repr=False)
class _ModelAttempt:
    """A running attempt."""

    agent: ModelAgent
    attempt: Attempt
    log: ToolLog
    chain: ToolConversation = attrs.field(init=False)
    output: Any = attrs.field(init=False, default="")
    """The last output of the model."""
    _began_at: float = attrs.field(init=False, factory=trio.current_time)
    _is_recalled: bool = attrs.field(init=False, default=False)
    """True if the last reply is from an earlier execution of the run."""
    _waited: float = attrs.field(init=False, default=0.0)
    """Seconds that completed calls have waited."""
    _waited_before_call: float | None = attrs.field(init=False, default=None)
    """The job's waiting time at the start of the pending call."""

    @chain.default
    def _open(self) -> ToolConversation:
        # Without the note first, to find replies from before the interruption; the note only if there are
        # none.
        fresh = ToolConversation(_opening(attrs.evolve(self.attempt, is_resumed=False)))
        if not self.attempt.is_resumed:
            return fresh
        is_known = self.agent.reply_source.recalled(self._inquiry(fresh)) is not None
        return fresh if is_known else ToolConversation(_opening(self.attempt))

    def worked(self) -> float:
        """Return the seconds of work so far, without those of an earlier execution."""
        now = trio.current_time()
        return now - self._began_at - self._waits(now)

    def _waits(self, now: float) -> float:
        """Return the seconds of waiting for lanes and limits: only a pending call waits."""
        if self._waited_before_call is None:
            return self._waited
        return self._waited + self.agent.calls.waited(now) - self._waited_before_call

    async def run(self) -> AttemptFailure | None:
        """Work until the model makes no more tool calls, or reaches a limit."""
        limit = self.agent.tools.settings.attempt_timeout
        if limit is None:
            return await self._converse()
        message = f"exceeded {limit:g} seconds of work (attemptTimeout)"
        failure: AttemptFailure | None = AttemptFailure("timeout", message)
        scope = trio.CancelScope()
        async with open_plain_nursery() as nursery:
            nursery.start_soon(self._watch, limit, scope)
            try:
                with scope:
                    failure = await self._converse()
            finally:
                nursery.cancel_scope.cancel("the attempt has ended")
        return failure

    async def _watch(self, limit: float, scope: trio.CancelScope) -> None:
        """End the attempt when its working time is used up."""
        while (left := limit - self.worked()) > 0:
            # The end of a wait is not signalled, so an attempt that has waited is checked periodically.
            has_waited = self._waits(trio.current_time()) > 0
            await trio.sleep(max(left, _LOOK_AGAIN) if has_waited else left)
        scope.cancel("the attempt timed out")

    async def _converse(self) -> AttemptFailure | None:
        """Call the model and its tools until it makes no more calls; return the failure, if any."""
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
                        return _file_failure(error)
                if call.name == DONE and not result.failed:
                    self.output = result.value or turn.text
                    return None  # the model has marked its task as done
                results.append(result)
            self.chain.add_results(turn, results)
            if self.chain.steps >= most:
                message = f"reached {most} steps (maxSteps)"
                return AttemptFailure("timeout", message)

    async def _step(self) -> ModelTurn:
        """Return the next output of the model."""
        agent, inquiry = self.agent, self._inquiry(self.chain)
        self._waited_before_call = agent.calls.waited(trio.current_time())
        recalled = self.chain.recalled
        try:
            paid = await agent.reply_source.fetch(inquiry, agent.calls, self.chain)
        finally:
            self._waited, self._waited_before_call = self._waits(trio.current_time()), None
        self._is_recalled = self.chain.recalled > recalled
        if not self._is_recalled:
            self.log.forget()
        output = paid.reply.output
        if output is None:
            agent.reply_source.reject(inquiry)
            msg = "the reply has no output"
            raise ProviderError("empty_reply", msg)
        return read_turn(output)

    def _inquiry(self, chain: ToolConversation) -> ProviderCall:
        agent, number = self.agent, (self.attempt.number, chain.steps)
        request = self._request(chain.prompt)
        inquiry = agent.reply_source.prepare(agent.index, "attempt", agent.place, request, *number)
        inquiry.cache_key = None
        return inquiry

    def _request(self, prompt: str) -> Request:
        agent, files = self.agent, self.agent.tools.files
        places = {
            "workspace": str(files.workspace),
            "promptFile": str(files.attempt_prompt(self.attempt.number)),
            "attempt": self.attempt.number,
            "done": str(files.done),
        }
        request = agent.request
        own = request.options.get(
            "tools", agent.reply_source.entries[agent.place].config.get("tools")
        )
        listed = own if isinstance(own, list | tuple) else ()
        return attrs.evolve(
            request,
            prompt=prompt,
            vars={**request.vars, **places},
            options={**request.options, "tools": [*listed, *agent.tools.offers]},
        )


def _file_failure(error: OSError) -> AttemptFailure:
    message = f"the files of the attempt cannot be written: {error.filename}: {error.strerror}"
    return AttemptFailure("unexpected", message)


def _messages(prompt: str) -> list[Any]:
    """Return the messages of a prompt; empty if its provider will reject them."""
    try:
        return to_messages(prompt)
    except ProviderError:
        return []


def _opening(attempt: Attempt) -> tuple[Message, ...]:
    """Return the initial conversation of an attempt."""
    messages = _messages(attempt.task_prompt)
    match messages:
        case []:
            return first_messages(attempt.prompt)
        case [{"role": "user", "content": str(text), **others}] if not others:
            opening = first_messages(attrs.evolve(attempt, task_prompt=text).prompt)
            # A text that is written like messages is treated as text only inside of one message.
            is_plain = _messages(prompt_of(opening)) == [*opening]
            return opening if is_plain else first_messages(attempt.prompt)
        case _:
            is_new = attempt.prompt == attempt.task_prompt
            return (*messages, *(() if is_new else first_messages(CONTINUATION)))
