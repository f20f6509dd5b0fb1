"""The source of the reply to each row of a task: its providers, or what stands in their place."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import attrs

from trioeval.evaluation.prompt import Asked
from trioeval.evaluation.provider_calls import Asker, Inquiry, Listener
from trioeval.kernel import Calls, Cut
from trioeval.providers import Reply, Request
from trioeval.suite.expand import Step

ComeTo: TypeAlias = Callable[[Reply, float, int], None]
"""Takes a reply with what all attempts so far have used, how many milliseconds they took, and how many of
them an earlier execution of the run has made."""


class AnswerListener(Listener, Protocol):
    """Observer of one row while it is answered, by one call or by several attempts."""

    def on_progress(self, reply: Reply, latency_ms: float, recalled: int, /) -> None:
        """Take the result of all attempts so far; see `ComeTo`."""
        ...


class Answerer(Protocol):
    """Gives the reply to each row of one task; good for one run."""

    @property
    def follows_all(self) -> bool:
        """Whether `over` is called for each row by itself, also for rows that never began."""
        ...

    def looks_ahead(self, providers: Iterable[int], /, *, are_final: bool) -> bool:
        """Whether rows may begin although their lanes are busy, so that `begins_at_once` is of use.

        Args:
            providers: The places of those that have rows.
            are_final: Whether rows run as the suite has them.
        """
        ...

    def begins_at_once(
        self, step: Step, ask: Callable[[], Asked | None], /, *, is_answered: bool
    ) -> bool:
        """Whether a row that is about to start need not wait for its lane; quick.

        Args:
            step: The row to be.
            ask: Makes its prompt, which is then the one that `answer` is given; None if that takes code
                or a file.
            is_answered: Whether it was answered before, and only its judging goes on.
        """
        ...

    async def answer(
        self, step: Step, asked: Asked, calls: Calls[Any], listener: AnswerListener, /
    ) -> Reply:
        """The reply to a row.

        Args:
            step: The row to be.
            asked: Its prompt.
            calls: Of the job that is under way.
            listener: Notified synchronously of each call, or of each attempt that ends.

        Raises:
            CallError: The provider failed.
            AgentError: The case cannot be worked on.
            BlockedError: What the case depends on is not done.
        """
        ...

    def workspace(self, step: Step, /) -> Path | None:
        """The folder in which a row was worked on; None without one."""
        ...

    def last_reply(self, step: Step, reply: Reply | None, outcome: str, /) -> Reply | None:
        """The reply of a row that has begun and is over. May look at files.

        Args:
            step: The row.
            reply: What is known of the reply.
            outcome: How the row ended, as in `Row.outcome`.
        """
        ...

    def reject(self, step: Step, /) -> None:
        """Discard the reply to a row, which has no output, so that it is not used again."""
        ...

    def over(self, step: Step, cut: Cut | None, /) -> None:
        """Take note that a row is over.

        Args:
            step: The row, as the suite has it.
            cut: What kept it from running to its end; None if nothing did.
        """
        ...


@attrs.define(eq=False)
class ProviderAnswerer:
    """Asks the provider of each row, once."""

    asker: Asker
    """Its providers begin with those of the expansion, in their order."""
    _ahead: dict[int, Inquiry] = attrs.field(init=False, factory=dict)
    """Questions of rows that are not started yet."""
    _asked: dict[int, Inquiry] = attrs.field(init=False, factory=dict)
    """Questions of rows that are."""

    @property
    def follows_all(self) -> bool:
        """False: nothing rests on a row that never began."""
        return False

    def looks_ahead(self, providers: Iterable[int], /, *, are_final: bool) -> bool:
        """Whether a reply may be there already."""
        return are_final and any(map(self.asker.may_have, providers))

    def begins_at_once(
        self, step: Step, ask: Callable[[], Asked | None], /, *, is_answered: bool
    ) -> bool:
        """Whether the reply is there already, as far as that is found out without running code."""
        if is_answered or not self.asker.may_have(step.provider_index):
            return False
        if (asked := ask()) is None:
            return False
        inquiry = self._ahead[step.index] = self._inquiry(step, asked)
        return self.asker.is_there(inquiry)

    async def answer(
        self, step: Step, asked: Asked, calls: Calls[Any], listener: AnswerListener, /
    ) -> Reply:
        """The reply of the provider, of an earlier execution, or of the cache; see `Asker.ask`."""
        inquiry = self._ahead.pop(step.index, None) or self._inquiry(step, asked)
        self._asked[step.index] = inquiry
        return (await self.asker.ask(inquiry, calls, listener)).reply

    def workspace(self, _step: Step, /) -> None:
        """None: providers have no folders."""

    def last_reply(self, _step: Step, reply: Reply | None, _outcome: str, /) -> Reply | None:
        """The reply as it is."""
        return reply

    def reject(self, step: Step, /) -> None:
        """Discard the reply in the journal and in the cache."""
        if (inquiry := self._asked.get(step.index)) is not None:
            self.asker.reject(inquiry)

    def over(self, step: Step, _cut: Cut | None, /) -> None:
        """Forget the questions of a row."""
        self._ahead.pop(step.index, None)
        self._asked.pop(step.index, None)

    def _inquiry(self, step: Step, asked: Asked) -> Inquiry:
        request = Request(
            prompt=asked.prompt,
            vars=asked.vars,
            options=asked.options,
            test_idx=step.test_idx,
            prompt_idx=step.prompt_idx,
            repeat_index=step.repeat_index,
        )
        return self.asker.inquiry(step.index, "provider", step.provider_index, request)
