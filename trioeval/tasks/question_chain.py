"""How one question is answered: steps of a model, the tools that it calls, and what bounds them.

A step is one call of the model. Between two of them stand tools, and a look at the budget: it stops a
question before a step, and never cuts one that is under way. What a step has used counts also where an
earlier execution of the run paid for it, so a question that is resumed stops where it would have stopped.

`elapsed` is work, as for the timeout of a job: calls and tools, and not the waits for lanes and limits.
"""

import attrs

from trioeval.suite.question_models import QuestionBudget
from trioeval.tasks.chains import Chain


@attrs.frozen
class Stop:
    """A budget let a question make no further step."""

    message: str


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
