"""How one question is answered: steps of a model, the tools that it calls, and what bounds them.

A step is one call of the model. Between two of them stand tools, and a look at the budget: it stops a
question before a step, and never cuts one that is under way. What a step has used counts also where an
earlier execution of the run paid for it, so a question that is resumed stops where it would have stopped.

What a question has got to outlives its job: one that failed by mishap and is run again goes on where it
failed, and nothing is asked twice.

`elapsed` is work, as for the timeout of a job: calls and tools, and not the waits for lanes and limits.
"""

import math
from collections import Counter
from collections.abc import Sequence

import attrs

from trioeval.providers import Reply, Usage
from trioeval.suite.question_models import QuestionBudget
from trioeval.tasks.journal import Paid
from trioeval.tasks.metering import counted_tokens
from trioeval.tasks.question_turns import (
    Message,
    ToolResult,
    Turn,
    first_messages,
    prompt_of,
    with_results,
)


@attrs.frozen
class Stop:
    """A budget let a question make no further step."""

    message: str


@attrs.define
class Chain:
    """What a question has got to."""

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
        """A question that was not asked yet."""
        return cls(first_messages(prompt))

    @property
    def prompt(self) -> str:
        """What the next step asks."""
        return prompt_of(self.messages)

    @property
    def steps(self) -> int:
        """Steps that were made."""
        return len(self.replies)

    def heard(self, paid: Paid, *, recalled: bool) -> None:
        """There is a reply."""
        reply = paid.reply
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


def stop_of(budget: QuestionBudget, chain: Chain, working: float) -> Stop | None:
    """What keeps a question from its next step; None if nothing does.

    So many seconds and tokens as are allowed are not too many.

    Args:
        budget: What it may use.
        chain: What it has got to.
        working: Seconds of work of the present run of its job.

    Example:
        >>> chain = Chain.of("?")
        >>> chain.tokens = 500
        >>> stop_of(QuestionBudget(max_tokens=500), chain, 0.0)
        >>> stop_of(QuestionBudget(max_tokens=499), chain, 0.0)
        Stop(message='500 tokens are used, and 499 are allowed (budget.maxTokens)')
    """
    elapsed = chain.elapsed(working)
    if budget.max_seconds and elapsed > budget.max_seconds:
        used = f"it has taken {elapsed:.3g} seconds, and {budget.max_seconds:g} are allowed"
        return Stop(f"{used} (budget.maxSeconds)")
    if budget.max_steps and chain.steps >= budget.max_steps:
        used = f"{chain.steps} steps are made, and {budget.max_steps} are allowed"
        return Stop(f"{used} (budget.maxSteps)")
    if budget.max_tokens and chain.tokens > budget.max_tokens:
        used = f"{chain.tokens} tokens are used, and {budget.max_tokens} are allowed"
        return Stop(f"{used} (budget.maxTokens)")
    return None
