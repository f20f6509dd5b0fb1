"""Which output of one test meets a criterion best."""

import functools
from collections.abc import Sequence
from typing import Any

from trioeval.errors import GradingError
from trioeval.grading.comparison import (
    CHOICE_SCHEMA,
    combine_choices,
    comparison_names,
    orders_of,
    read_choice,
)
from trioeval.grading.judges.shapes import is_text
from trioeval.grading.kind import Comparing, Contender, Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.outside import Outside
from trioeval.grading.own_prompts import own_prompt
from trioeval.grading.reliability import Panel, config_check
from trioeval.grading.strict_reading import Read, ask, told

_ABSENT = "(no output)"
"""What the judge is shown in place of an output that there is not."""

_WANTED = 'one JSON object {"index": number of the best output, "reason": text}'


async def _choose(
    order: Sequence[int], texts: Sequence[str | None], criteria: str, outside: Outside
) -> Read[int]:
    """The place, among those that are shown, of the one that a judge chooses."""
    shown = [texts[place] for place in order]
    names = comparison_names(criteria, [_ABSENT if text is None else text for text in shown])
    prompt = outside.grader.render(own_prompt("select_best"), names)
    read = functools.partial(read_choice, there=[text is not None for text in shown])
    return await ask(outside, prompt, read, wanted=_WANTED, schema=CHOICE_SCHEMA)


async def _judge(
    contenders: Sequence[Contender | None], value: Any, assertion: Assertion, outside: Outside
) -> Sequence[Finding]:
    panel = Panel.of(assertion, compares=True)
    texts = [None if one is None else one.subject.text for one in contenders]
    orders = orders_of(len(texts), repeat=panel.repeat, swap=panel.swap)
    reads: list[Read[int]] = await outside.together(
        [functools.partial(_choose, order, texts, value, outside) for order in orders]
    )
    choices = [order[read.value] for order, read in zip(orders, reads, strict=True)]
    choice = combine_choices(choices)
    if choice.winner is None:
        msg = f"the judge cannot decide: it chose the outputs {', '.join(map(str, choices))}"
        raise GradingError(msg, metadata={**told(*reads), "choices": choices})
    metadata = told(*reads)
    if len(orders) > 1:
        metadata |= {"agreement": choice.agreement, "choices": choices}
    return [
        Finding(
            place == choice.winner,
            f"output {choice.winner} is the best by the criterion: {value}",
            metadata=metadata,
        )
        for place, text in enumerate(texts)
        if text is not None
    ]


KINDS: Kinds = {
    "select-best": Kind(
        "a criterion: text that is not empty",
        is_text,
        Comparing(_judge, frozenset({"text"})),
        check=config_check(compares=True),
        invertible=False,
    ),
}
"""By name."""
