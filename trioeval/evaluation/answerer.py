"""The source of the reply to each row of a task: its providers, or an agent in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import attrs

from trioeval.errors import ProviderError
from trioeval.evaluation.prompt import RenderedPrompt
from trioeval.evaluation.provider_calls import CallObserver, ProviderCall, ReplySource
from trioeval.kernel import Calls, StopReason
from trioeval.providers import Reply, Request
from trioeval.suite.expand import CalledUser, Step

if TYPE_CHECKING:
    from trioeval.evaluation.simulated_users import UserConversation
    from trioeval.suite.simulated_user import SimulatedUser

OnProgress: TypeAlias = Callable[[Reply, float, int], None]
"""Takes a reply with the usage of all attempts so far, their duration in milliseconds, and the number of
attempts that an earlier execution of the run made."""


class AnswerObserver(CallObserver, Protocol):
    """Observer of one row while it is answered, by one call or by several attempts."""

    def on_progress(
        self, reply: Reply, latency_ms: float, recalled: int, /, *, cached: bool = False
    ) -> None:
        """Take the result of all attempts so far; see `OnProgress`.

        Args:
            reply: The result.
            latency_ms: Its duration.
            recalled: The attempts of earlier executions.
            cached: Whether all of it came from the cache.
        """
        ...


class Answerer(Protocol):
    """Source of the reply to each row of one task; used for one run."""

    @property
    def follows_every_row(self) -> bool:
        """True if `over` is called for each row separately, also for rows that never started."""
        ...

    def may_start_early(self, providers: Iterable[int], /, *, are_final: bool) -> bool:
        """Return whether rows may start although their lanes are busy, so that `begins_at_once` is useful.

        Args:
            providers: The indices of the providers that have rows.
            are_final: Whether rows run as written in the suite.
        """
        ...

    def starts_without_lane(
        self, step: Step, ask: Callable[[], RenderedPrompt | None], /, *, is_answered: bool
    ) -> bool:
        """Return quickly whether a row that is about to start can run without waiting for its lane.

        Args:
            step: The row.
            ask: Builds its prompt, which is then passed to `answer`; returns None if that would run code or
                read a file.
            is_answered: Whether the row has its reply already, and only its judging remains.
        """
        ...

    async def answer(
        self, step: Step, prompt: RenderedPrompt, calls: Calls[Any], listener: AnswerObserver, /
    ) -> Reply:
        """Return the reply to a row.

        Args:
            step: The row.
            prompt: Its prompt.
            calls: The calls of the running job.
            listener: Notified synchronously of each call, or of each attempt that ends.

        Raises:
            CallError: The provider failed.
            AgentError: The agent cannot work on the case.
            BlockedError: A dependency of the case is not done.
        """
        ...

    def workspace(self, step: Step, /) -> Path | None:
        """Return the folder in which the row was worked on; None without one."""
        ...

    def last_reply(self, step: Step, reply: Reply | None, outcome: str, /) -> Reply | None:
        """Return the final reply of a started row that has ended. May read files.

        Args:
            step: The row.
            reply: The reply as known so far.
            outcome: How the row ended, as in `Row.outcome`.
        """
        ...

    def reject(self, step: Step, /) -> None:
        """Discard the reply to a row that has no output, so that it is not used again."""
        ...

    def on_row_end(self, step: Step, cut: StopReason | None, /) -> None:
        """Handle the end of a row.

        Args:
            step: The row, as written in the suite.
            cut: The reason why it did not run to its end; None if it did.
        """
        ...


@attrs.define(eq=False, repr=False)
class ProviderAnswerer:
    """Calls the provider of each row once; in a conversation with a simulated user, both in turn."""

    reply_source: ReplySource
    """Its providers begin with those of the expansion, in their order."""
    _ahead: dict[int, ProviderCall] = attrs.field(init=False, factory=dict)
    """Calls of rows that are not started yet."""
    _calls: dict[int, ProviderCall] = attrs.field(init=False, factory=dict)
    """Calls of rows that are started."""
    _conversations: dict[int, UserConversation] = attrs.field(init=False, factory=dict)
    """Those of rows that have not ended."""

    @property
    def follows_every_row(self) -> bool:
        """False: nothing depends on a row that never started."""
        return False

    def may_start_early(self, providers: Iterable[int], /, *, are_final: bool) -> bool:
        """Return whether replies may be available without a call."""
        return are_final and any(map(self.reply_source.may_have_reply, providers))

    def starts_without_lane(
        self, step: Step, ask: Callable[[], RenderedPrompt | None], /, *, is_answered: bool
    ) -> bool:
        """Return whether the reply is available now, as far as can be found out without running code."""
        if is_answered or not any(map(self.reply_source.may_have_reply, _called(step))):
            return False
        if (prompt := ask()) is None:
            return False
        if (user := _simulated(step)) is not None:
            return self._needs_no_call(step, prompt, user)
        inquiry = self._ahead[step.index] = self._inquiry(step, prompt)
        return self.reply_source.has_reply(inquiry)

    async def answer(
        self, step: Step, prompt: RenderedPrompt, calls: Calls[Any], listener: AnswerObserver, /
    ) -> Reply:
        """Return the reply of the provider, an earlier execution or the cache; see `ReplySource.fetch`.

        With a simulated user, it is the whole conversation.
        """
        if (user := _simulated(step)) is not None:
            return await self._converse(step, prompt, user, calls, listener)
        inquiry = self._ahead.pop(step.index, None) or self._inquiry(step, prompt)
        self._calls[step.index] = inquiry
        return (await self.reply_source.fetch(inquiry, calls, listener)).reply

    def workspace(self, _step: Step, /) -> None:
        """Return None: providers have no folders."""

    def last_reply(self, _step: Step, reply: Reply | None, _outcome: str, /) -> Reply | None:
        """Return the reply unchanged."""
        return reply

    def reject(self, step: Step, /) -> None:
        """Discard the reply in the journal and in the cache."""
        if (inquiry := self._calls.get(step.index)) is not None:
            self.reply_source.reject(inquiry)

    def on_row_end(self, step: Step, _cut: StopReason | None, /) -> None:
        """Forget the calls of a row."""
        self._ahead.pop(step.index, None)
        self._calls.pop(step.index, None)
        self._conversations.pop(step.index, None)

    def _inquiry(self, step: Step, prompt: RenderedPrompt) -> ProviderCall:
        request = _request(step, prompt.prompt, prompt.vars, prompt.options)
        return self.reply_source.prepare(step.index, "provider", step.provider_index, request)

    # Conversations with simulated users.

    async def _converse(
        self,
        step: Step,
        prompt: RenderedPrompt,
        user: _RowUser,
        calls: Calls[Any],
        listener: AnswerObserver,
    ) -> Reply:
        """Return a conversation as one reply. A checkpoint unless all of its replies were recalled."""
        from trioeval.evaluation.simulated_users import TurnObserver

        conversation = self._conversation(step, prompt, user)
        observer = TurnObserver(conversation, listener)
        observer.report()  # the replies before a transient failure
        while conversation.speaker is not None:
            inquiry = self._turn(step, prompt, user, conversation)
            paid = await self.reply_source.fetch(inquiry, calls, observer)
            if paid.reply.output is None:
                self.reply_source.reject(inquiry)
                raise ProviderError(
                    "empty_reply", f"a reply of {self._name(inquiry)} has no output"
                )
        return conversation.reply()

    def _needs_no_call(self, step: Step, prompt: RenderedPrompt, user: _RowUser) -> bool:
        """Return whether the next reply of a conversation is available now."""
        conversation = self._conversation(step, prompt, user)
        if conversation.speaker is None:
            return True
        return self.reply_source.has_reply(self._turn(step, prompt, user, conversation))

    def _conversation(self, step: Step, prompt: RenderedPrompt, user: _RowUser) -> UserConversation:
        from trioeval.evaluation.simulated_users import UserConversation

        found = self._conversations.get(step.index)
        if found is None:
            found = UserConversation.of(user.settings, prompt)
            self._conversations[step.index] = found
        return found

    def _turn(
        self, step: Step, prompt: RenderedPrompt, user: _RowUser, conversation: UserConversation
    ) -> ProviderCall:
        """Return the next call of a conversation."""
        number = conversation.number
        variables, text = prompt.vars, conversation.prompt
        if conversation.speaker == "user":
            request = _request(step, text, variables, {})
            found = self.reply_source.prepare(
                step.index, "user", user.called.place, request, number
            )
        else:
            if conversation.session is not None:
                variables = {**variables, "sessionId": conversation.session}
            request = _request(step, text, variables, prompt.options)
            found = self.reply_source.prepare(
                step.index, "provider", step.provider_index, request, number
            )
            if user.settings.stateful:
                found.cache_key = None  # the reply depends on more than the request
        found.ahead = number > 0
        return found

    def _name(self, inquiry: ProviderCall) -> str:
        return self.reply_source.names[inquiry.place]


@attrs.frozen
class _RowUser:
    """The simulated user of a row."""

    settings: SimulatedUser
    called: CalledUser


def _simulated(step: Step) -> _RowUser | None:
    """Return the simulated user of a row; None without one."""
    own = step.test.provider
    if step.user is None or own is None or own.user is None:
        return None
    return _RowUser(own.user, step.user)


def _called(step: Step) -> Iterator[int]:
    """Yield the indices of the providers that a row calls."""
    yield step.provider_index
    if step.user is not None:
        yield step.user.place


def _request(
    step: Step, prompt: str, variables: Mapping[str, Any], options: Mapping[str, Any]
) -> Request:
    return Request(
        prompt=prompt,
        vars=variables,
        options=options,
        test_idx=step.test_idx,
        prompt_idx=step.prompt_idx,
        repeat_index=step.repeat_index,
        describe_row=partial(describe_row, step, options),
    )


def describe_row(step: Step, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the prompt and the test of a row as JSON data, with promptfoo's names.

    Args:
        step: The row.
        options: The keys of the provider's config that are overridden for it.
    """
    from trioeval.evaluation.judge_services import json_data
    from trioeval.suite.plain import plain_test

    raw = step.template
    found: dict[str, Any] = json_data(
        {
            "prompt": {
                "raw": raw,
                "template": raw,
                "label": step.column.prompt.label,
                "config": dict(options),
            },
            "test": {**plain_test(step.test), "vars": dict(step.vars)},
        }
    )
    return found
