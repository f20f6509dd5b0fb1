"""Single values in the entries of `columns`: names, choices, prompts, schemas, assertions that ask nobody."""

import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import Any, TypeAlias

import cattrs

from trioeval.columns.model import (
    CategorySampler,
    DatetimeSampler,
    GaussianSampler,
    Sampler,
    SubcategorySampler,
    UniformSampler,
    UuidSampler,
)
from trioeval.documents import read_document
from trioeval.documents.files import Around, names_file
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, nearest
from trioeval.documents.paths import read_path
from trioeval.documents.placing import placed, read_placed
from trioeval.documents.structure import Hook, object_hook
from trioeval.grading import Assertion, Computed, Kinds, output_text, quote
from trioeval.grading.algebra import SET
from trioeval.grading.kind import Asking, Comparing
from trioeval.grading.registry import split_type
from trioeval.grading.schemas import schema_faults
from trioeval.suite.sources.prompts import read_prompts
from trioeval.text import json_text


def chosen(entry: Mapping[str, Any], key: str, known: Mapping[str, Any], what: str) -> str:
    """What stands under the key that says which keys there are beside it.

    Args:
        entry: The object.
        key: Its key.
        known: What may stand there.
        what: What that is, for messages.

    Raises:
        MistakenError: Nothing, or something else.
    """
    found = entry.get(key)
    if found is None:
        raise MistakenError(Mistake(f'"{key}" is missing', f"known are {', '.join(known)}"))
    if not isinstance(found, str) or found not in known:
        hint = nearest(found if isinstance(found, str) else "", known)
        raise MistakenError(Mistake(f"{kind(found)} is not {what}", hint, at=(key,)))
    return found


def prompt_text(value: Any, around: Around) -> str:
    """A prompt: a text, a list of messages, or what stands in the one file that it names.

    Raises:
        MistakenError: It is none of these.
    """
    if isinstance(value, list) and value:
        return json_text(value)
    if not isinstance(value, str) or not value.strip():
        message = f"must be the text of a prompt, or a list of messages, got {kind(value)}"
        raise MistakenError(Mistake(message))
    if not names_file(value):
        return value
    prompts = read_prompts(value, around)
    if len(prompts) > 1:
        message = f"{quote(value)} holds {len(prompts)} prompts"
        raise MistakenError(Mistake(message, "name a file with one"))
    if prompts[0].function is not None:
        hint = "make the text in a column of type python, and use that"
        raise MistakenError(Mistake("prompts of columns are templates, not programs", hint))
    return prompts[0].raw


def schema_of(value: Any, around: Around) -> Mapping[str, Any]:
    """A JSON schema: an object, or what stands in the file that it names.

    Raises:
        MistakenError: Everything that is wrong with it.
    """
    if not names_file(value):
        return _checked(value)
    file = around.file(value)
    document = read_placed(file, read_document)
    try:
        return _checked(document.data)
    except MistakenError as error:
        raise MistakenError(*placed(error.parts, file, document)) from None


def _checked(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        hint = 'write a JSON schema, or "file://schema.json"'
        raise MistakenError(Mistake(f"must be an object, got {kind(value)}", hint))
    Mistakes(
        Mistake(fault.message, fault.hint, at=read_path(f"${fault.path}"))
        for fault in schema_faults(value)
    ).raise_any()
    return value


def who_is_asked(assertion: Assertion, kinds: Kinds) -> Iterator[Mistake]:
    """That an assertion asks somebody, or runs code; those of a set by their places."""
    if assertion.type == SET:
        for place, member in enumerate(assertion.assertions):
            yield from (one.below("assert", place) for one in who_is_asked(member, kinds))
        return
    hint = "a validation asks nobody; make a column of type judge or python, and look at that"
    base, _ = split_type(assertion.type)
    found = kinds.get(base)
    if found is not None and isinstance(found.judge, Asking | Comparing):
        does = (
            "compares rows" if isinstance(found.judge, Comparing) else "asks a model or runs code"
        )
        yield Mistake(f"{assertion.type} {does}", hint, at=("type",))
    elif isinstance(assertion.value, Computed):
        yield Mistake("a program would compute the value", hint, at=("value",))
    for key, text in (
        ("transform", assertion.transform),
        ("contextTransform", assertion.context_transform),
    ):
        if text is not None:
            yield Mistake(f"a {key} runs code", hint, at=(key,), key=True)


def listed(value: Any, what: str) -> list[Any]:
    """A list that is not empty.

    Args:
        value: The list.
        what: What stands in it, for messages.

    Raises:
        MistakenError: It is none.
    """
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of {what}, got {kind(value)}"))
    if not value:
        raise MistakenError(Mistake(f"there are no {what}"))
    return value


# Samplers as a suite writes them: what they draw from, and whether that can be drawn.


SAMPLERS: Mapping[str, type[Sampler]] = {
    "category": CategorySampler,
    "subcategory": SubcategorySampler,
    "uniform": UniformSampler,
    "gaussian": GaussianSampler,
    "datetime": DatetimeSampler,
    "uuid": UuidSampler,
}
"""By what a suite calls them."""

RAREST = 0.02
"""The least share of a normal distribution that must lie between its bounds: what lies outside is drawn
again, and that must end."""

_DIGITS = 15
"""What floats have: with more of them there is a number in every range."""

MOST_DECIMALS = 100
"""Digits behind the point of a number that is drawn."""

_WHOLE = 2.0**63 - 1024
"""Of 64 bits: the greatest of them that is a float."""
_FLOAT = 1e200
"""Far from where floats end, also with all decimals."""
_FARTHEST = 9
"""Deviations from the mean of the farthest number that may be drawn."""

_Check: TypeAlias = Callable[[Any], Iterator[Mistake]]


def sampler_hook(converter: cattrs.Converter, named: str) -> Hook:
    """For the keys of one kind of sampler."""
    structure = object_hook(converter, SAMPLERS[named])
    check = _CHECKS[named]

    def hook(value: Any, wanted: Any) -> Sampler:
        sampler: Sampler = structure(value, wanted)
        Mistakes(check(sampler)).raise_any()
        return sampler

    return hook


def missing_categories(
    sampler: SubcategorySampler, category: CategorySampler
) -> tuple[list[str], list[str]]:
    """Categories without values, and values of what is no category."""
    drawn = dict.fromkeys(map(output_text, category.values))
    missing = [name for name in drawn if name not in sampler.values]
    return missing, [name for name in sampler.values if name not in drawn]


def _category(sampler: CategorySampler) -> Iterator[Mistake]:
    if not sampler.values:
        yield Mistake("there are no values", at=("values",))
    weights = sampler.weights
    if weights is None:
        return
    if len(weights) != len(sampler.values):
        message = f"there are {len(weights)} weights for {len(sampler.values)} values"
        yield Mistake(message, "write one for each value", at=("weights",))
    elif weights and not any(weights):
        yield Mistake("all weights are 0", "give one value a weight above it", at=("weights",))
    elif not math.isfinite(sum(weights)):
        yield Mistake("the weights add up to too much", "write smaller ones", at=("weights",))


def _subcategory(sampler: SubcategorySampler) -> Iterator[Mistake]:
    if not sampler.values:
        yield Mistake("there are no values", at=("values",))
    for name, several in sampler.values.items():
        if not several:
            yield Mistake("there are no values", at=("values", name))


def _uniform(sampler: UniformSampler) -> Iterator[Mistake]:
    if sampler.low > sampler.high:
        yield _wrong_order(sampler.low, sampler.high)
    elif wrong := [*_too_far(sampler.low, sampler.high, sampler.decimals, ("low", "high"))]:
        yield from wrong
    else:
        yield from _between(sampler.low, sampler.high, sampler.decimals)


def _gaussian(sampler: GaussianSampler) -> Iterator[Mistake]:
    low = -math.inf if sampler.low is None else sampler.low
    high = math.inf if sampler.high is None else sampler.high
    if low > high:
        yield _wrong_order(low, high)
        return
    mean, far = sampler.mean, _FARTHEST * sampler.deviation
    least, most = max(low, mean - far), min(high, mean + far)
    wrong = [*_too_far(least, most, sampler.decimals, ("mean", "deviation"))]
    wrong = wrong or [*_between(low, high, sampler.decimals)]
    yield from wrong
    if not wrong and _share(sampler, low, high) < RAREST:
        bounds = " and ".join(
            f"{word} {bound:g}"
            for word, bound in (("at least", sampler.low), ("at most", sampler.high))
            if bound is not None
        )
        message = f"hardly a number is {bounds} with mean {sampler.mean:g}"
        hint = f"at least {RAREST:g} of all must be; widen the range or the deviation"
        yield Mistake(message, hint, at=("low" if sampler.low is not None else "high",))


def _share(sampler: GaussianSampler, low: float, high: float) -> float:
    """The part of a normal distribution that lies in a range, with what is rounded into it."""
    if sampler.decimals is not None:
        half = 0.5 * 10.0**-sampler.decimals
        low, high = low - half, high + half
    below, above = (
        (bound - sampler.mean) / (sampler.deviation * math.sqrt(2)) for bound in (low, high)
    )
    return 0.5 * (math.erf(above) - math.erf(below))


def _too_far(
    low: float, high: float, decimals: int | None, keys: tuple[str, str]
) -> Iterator[Mistake]:
    """Whether some numbers of a range cannot be told, or are none of their column."""
    if decimals is not None and decimals > MOST_DECIMALS:
        message = f"must be at most {MOST_DECIMALS}, got {decimals}"
        yield Mistake(message, "leave it out for numbers as they are", at=("decimals",))
        return
    bound = _WHOLE if decimals == 0 else _FLOAT
    far = next((at for at in zip(keys, (low, high), strict=True) if not abs(at[1]) <= bound), None)
    if far is not None:
        hint = f"stay from {-bound:g} to {bound:g}"
        yield Mistake(f"a number as far away as {far[1]:g} cannot be told", hint, at=(far[0],))


def _wrong_order(low: float, high: float) -> Mistake:
    return Mistake(f"low is {low:g}, and high is {high:g}", "low comes first", at=("low",))


def _between(low: float, high: float, decimals: int | None) -> Iterator[Mistake]:
    """Whether there is a number of so many digits in a range."""
    if decimals is None or decimals > _DIGITS or not (math.isfinite(low) and math.isfinite(high)):
        return
    least, most = (Decimal(repr(bound)).scaleb(decimals) for bound in (low, high))
    if least.to_integral_value(ROUND_CEILING) > most:
        message = f"no number with {decimals} decimals is between {low:g} and {high:g}"
        yield Mistake(message, "allow more of them", at=("decimals",))


def _datetime(sampler: DatetimeSampler) -> Iterator[Mistake]:
    found: dict[str, datetime] = {}
    for key, text in (("start", sampler.start), ("end", sampler.end)):
        try:
            found[key] = datetime.fromisoformat(text)
        except ValueError:
            message = f"must be a date or an instant in ISO 8601, got {kind(text)}"
            yield Mistake(message, 'for example "2026-01-31" or "2026-01-31T12:00"', at=(key,))
    if len(found) == len(("start", "end")):
        start, end = found.values()
        if (start.tzinfo is None) != (end.tzinfo is None):
            hint = "give both or neither a zone"
            yield Mistake("one of start and end has a zone", hint, at=("end",))
        elif end < start:
            message = f"end is {quote(sampler.end)}, before start, {quote(sampler.start)}"
            yield Mistake(message, at=("end",))
        elif sampler.format is not None:
            yield from _format(sampler.format, start)


def _format(text: str, instant: datetime) -> Iterator[Mistake]:
    try:
        written = instant.strftime(text)
    except ValueError as error:
        yield Mistake(f"{quote(text)} is no format: {error}", at=("format",))
        return
    if not written:
        yield Mistake("must not be empty", 'for example "%Y-%m-%d"', at=("format",))


def _nothing(_sampler: UuidSampler) -> Iterator[Mistake]:
    yield from ()


_CHECKS: Mapping[str, _Check] = {
    "category": _category,
    "subcategory": _subcategory,
    "uniform": _uniform,
    "gaussian": _gaussian,
    "datetime": _datetime,
    "uuid": _nothing,
}
