"""The budget of a run: that of its suite, and one around it that several runs share."""

import attrs

from trioeval.rates import Budget
from trioeval.suite.model import BudgetSettings, Suite


def with_budget(suite: Suite, budget: BudgetSettings | None) -> Suite:
    """Return a suite with the limits of a budget for which its own budget has none; itself if it has all."""
    own = suite.evaluate_options.budget or BudgetSettings()
    if budget is None:
        return suite
    both = BudgetSettings(
        requests=budget.requests if own.requests is None else own.requests,
        tokens=budget.tokens if own.tokens is None else own.tokens,
        usd=budget.usd if own.usd is None else own.usd,
    )
    if both == own:
        return suite
    options = attrs.evolve(suite.evaluate_options, budget=both)
    tasks = tuple(attrs.evolve(task, suite=with_budget(task.suite, budget)) for task in suite.tasks)
    return attrs.evolve(suite, evaluate_options=options, tasks=tasks)


def budget_settings(budget: Budget | None) -> BudgetSettings | None:
    """Return the bounds of a budget as a suite sets them; None without one."""
    if budget is None:
        return None
    return BudgetSettings(requests=budget.requests, tokens=budget.tokens, usd=budget.money)


def suite_budget(suite: Suite, around: Budget | None = None) -> Budget | None:
    """Return the budget of a run of a suite, of which nothing is used; None without one.

    Args:
        suite: The suite.
        around: The budget of several runs, if any; it is the result if the suite has no other bounds.
    """
    settings = suite.evaluate_options.budget
    if settings is None or settings == budget_settings(around):
        return around
    return Budget(settings.requests, settings.tokens, settings.usd, within=around)
