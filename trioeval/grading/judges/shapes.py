"""The forms of values of types that ask a model, and the code that these types share."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from trioeval.errors import GradingError
from trioeval.grading.comparison import (
    CHOICE_SCHEMA,
    combine_choices,
    comparison_names,
    orders_of,
    read_choice,
)
from trioeval.grading.kind import (
    ComparisonJudge,
    Contender,
    ExternalJudge,
    Finding,
    Kind,
    Kinds,
    OutsideJudge,
    is_not_blank,
)
from trioeval.grading.kinds.measures import Panel, config_check, reliable
from trioeval.grading.model import Assertion
from trioeval.grading.services import ExternalServices, own_prompt
from trioeval.grading.strict_reading import JudgeReading, ask, reading_metadata
from trioeval.grading.subject import Subject

EPSILON = 2.0**-52
"""The rounding error that a computed score may miss its threshold by."""

TEXT = "text that is not empty"
NOT_LOOKED_AT = "left out; it is not used"


def text_kind(
    judge: OutsideJudge,
    *,
    right: str = TEXT,
    accepts: Callable[[Any], bool] = is_not_blank,
    bare: bool = False,
    threshold: float = 0.5,
    embeds: bool = False,
) -> Kind:
    """Make a type that asks a text model, once or as often as its config says.

    Args:
        judge: The judge.
        right: What its value must be, for messages.
        accepts: Returns whether a value is valid.
        bare: True if it needs no value.
        threshold: The default threshold for the mean of several judgements.
        embeds: True if it also needs vectors.
    """
    return Kind(
        right,
        accepts,
        ExternalJudge(
            reliable(judge, threshold=threshold),
            frozenset({"text", "embedding"} if embeds else {"text"}),
        ),
        bare=bare,
        check=config_check(),
    )


def object_of(properties: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON schema of an object with exactly these properties."""
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def prompt_of(subject: Subject) -> str:
    """Return the prompt.

    Raises:
        GradingError: It is empty.
    """
    if not subject.prompt:
        msg = "the prompt is empty: the output cannot be judged without it"
        raise GradingError(msg)
    return subject.prompt


def text_output(subject: Subject) -> str:
    """Return the output of a type that only judges text.

    Raises:
        GradingError: It is not text.
    """
    if not isinstance(subject.output, str):
        msg = "the output must be text: convert it with a transform"
        raise GradingError(msg)
    return subject.output


def query_of(subject: Subject) -> str:
    """Return the variable `query`.

    Raises:
        GradingError: It is missing, or not text.
    """
    query = subject.vars.get("query")
    if not isinstance(query, str):
        msg = "the test needs a variable query with the text of the question"
        raise GradingError(msg)
    return query


# The output of one test that meets a criterion best.


_ABSENT = "(no output)"
"""Stands for a missing output in the prompt."""

_WANTED = 'one JSON object {"index": number of the best output, "reason": text}'


async def _choose(
    order: Sequence[int], texts: Sequence[str | None], criteria: str, outside: ExternalServices
) -> JudgeReading[int]:
    """Return the position, among the outputs shown, of the one that a judge chooses."""
    shown = [texts[place] for place in order]
    names = comparison_names(criteria, [_ABSENT if text is None else text for text in shown])
    prompt = outside.grader.render(own_prompt("select_best"), names)
    read = functools.partial(read_choice, there=[text is not None for text in shown])
    return await ask(outside, prompt, read, expected=_WANTED, schema=CHOICE_SCHEMA)


async def _judge(
    contenders: Sequence[Contender | None],
    value: Any,
    assertion: Assertion,
    outside: ExternalServices,
) -> Sequence[Finding]:
    panel = Panel.of(assertion, compares=True)
    texts = [None if one is None else one.subject.text for one in contenders]
    orders = orders_of(len(texts), repeat=panel.repeat, swap=panel.swap)
    reads: list[JudgeReading[int]] = await outside.together(
        [functools.partial(_choose, order, texts, value, outside) for order in orders]
    )
    choices = [order[read.value] for order, read in zip(orders, reads, strict=True)]
    choice = combine_choices(choices)
    if choice.winner is None:
        msg = f"the judge cannot decide: it chose the outputs {', '.join(map(str, choices))}"
        raise GradingError(msg, metadata={**reading_metadata(*reads), "choices": choices})
    metadata = reading_metadata(*reads)
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
        is_not_blank,
        ComparisonJudge(_judge, frozenset({"text"})),
        check=config_check(compares=True),
        invertible=False,
    ),
}
"""By name."""
