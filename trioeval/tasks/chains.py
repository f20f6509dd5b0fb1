"""A conversation with a model that calls tools: what was said, and what it has used until now.

What a conversation has got to outlives its job: one that failed by mishap and is run again goes on where it
failed, and nothing is asked twice.
"""

import math
from collections import Counter
from collections.abc import Sequence

import attrs

from trioeval.errors import ProviderError
from trioeval.grading import Spent
from trioeval.providers import Reply, Usage
from trioeval.tasks.journal import Paid
from trioeval.tasks.metering import counted_tokens
from trioeval.tasks.spending import Spending, spent_on_failure
from trioeval.tasks.tool_turns import (
    Message,
    ToolResult,
    Turn,
    first_messages,
    prompt_of,
    with_results,
)


@attrs.define
class Chain:
    """What a conversation has got to."""

    messages: tuple[Message, ...]
    """The conversation that the next step asks with."""
    replies: list[Reply] = attrs.field(factory=list)
    """One a step."""
    wasted: list[Reply] = attrs.field(factory=list)
    """Those that said nothing, and are no steps."""
    latency_ms: float = 0.0
    """Of all steps."""
    tokens: int = 0
    """Of all steps, estimated where a provider tells none."""
    failures: Spending = attrs.field(factory=Spending)
    """What calls used that failed, as far as providers told it."""
    lost_tokens: int = 0
    """What those count as at limits."""
    sent_tokens: int = 0
    """What the call counts as of which nothing was heard yet."""
    tool_calls: Counter[str] = attrs.field(factory=Counter)
    recalled: int = 0
    """Steps that an earlier execution paid for."""
    recalled_s: float = 0.0
    """Seconds that those took then."""
    worked_s: float = 0.0
    """Seconds of work of earlier runs of its job."""
    cached: int = 0
    """Steps whose reply came from the cache."""

    @classmethod
    def of(cls, prompt: str) -> "Chain":
        """One of which nothing was said yet."""
        return cls(first_messages(prompt))

    @property
    def prompt(self) -> str:
        """What the next step asks."""
        return prompt_of(self.messages)

    @property
    def steps(self) -> int:
        """Steps that were made."""
        return len(self.replies)

    def sent(self, tokens: int) -> None:
        """A call is made."""
        self.sent_tokens = tokens

    def failed(self, error: ProviderError, tokens: int) -> None:
        """It has failed."""
        self.sent_tokens = 0
        self.lost_tokens += tokens
        self.failures.add(spent_on_failure(error))

    def heard(self, paid: Paid, *, recalled: bool) -> None:
        """There is a reply."""
        reply, self.sent_tokens = paid.reply, 0
        self.tokens += counted_tokens(self.prompt, reply)
        (self.wasted if reply.output is None else self.replies).append(reply)
        self.latency_ms += paid.latency_ms
        self.cached += paid.cached
        if recalled and not paid.cached:
            self.recalled += 1
            self.recalled_s += paid.latency_ms / 1000

    def go_on(self, turn: Turn, results: Sequence[ToolResult]) -> None:
        """The tools that a step called have given these results."""
        self.messages = with_results(self.messages, turn, results)

    def elapsed(self, working: float) -> float:
        """Seconds of work until now.

        Args:
            working: Those of the present run of its job.
        """
        return self.recalled_s + self.worked_s + working

    @property
    def used(self) -> Spent:
        """What all replies used, and calls that failed."""
        replies = (Spent(usage=one.usage, cost=one.cost) for one in (*self.wasted, *self.replies))
        return Spent.sum((*replies, self.failures.total))

    def reply(self) -> Reply | None:
        """The last reply, with what all of them used; None before the first."""
        every = [*self.wasted, *self.replies]
        if len(every) <= 1:
            return every[0] if every else None
        costs = [reply.cost for reply in every if reply.cost is not None]
        return attrs.evolve(
            every[-1],
            usage=Usage.sum(reply.usage for reply in every),
            cost=math.fsum(costs) if costs else None,
        )
