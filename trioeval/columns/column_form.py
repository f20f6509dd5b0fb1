"""The entries of `columns` as a suite writes them: one flat object each, whose keys depend on its `type`.

References between columns are checked in `names`.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from pathlib import Path
from typing import Any, TypeAlias, get_args

import attrs
import cattrs

from trioeval.columns.field_types import ONE_FOR_ALL
from trioeval.columns.model import (
    CategorySampler,
    Column,
    DatetimeSampler,
    ExpressionColumn,
    GaussianSampler,
    PythonColumn,
    Sampler,
    SamplerColumn,
    Score,
    SeedColumns,
    Skip,
    SubcategorySampler,
    UniformSampler,
    UuidSampler,
)
from trioeval.documents import read_document
from trioeval.documents.files import FileContext, names_file
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, kind, nearest
from trioeval.documents.paths import read_path
from trioeval.documents.placing import placed, read_placed
from trioeval.documents.structure import Hook, fields_by_key, object_hook, some_text
from trioeval.grading import Assertion, Computed, Kinds, output_text, quote
from trioeval.grading.algebra import SET
from trioeval.grading.kind import ComparisonJudge, ExternalJudge
from trioeval.grading.registry import split_type
from trioeval.grading.schemas import schema_faults
from trioeval.scripting import MOST_WORKERS
from trioeval.suite.form import many
from trioeval.suite.sources.code import python_target
from trioeval.suite.sources.prompts import read_prompts
from trioeval.suite.sources.values import with_files
from trioeval.text import counted, json_text

KINDS: Mapping[str, type[Column]] = {model.kind: model for model in get_args(Column)}
"""The kinds of columns by their names in suites."""

SEED_FILES = (".csv", ".jsonl", ".parquet")
"""The endings of seed files."""

TYPE = "type"
SAMPLER = "sampler"
FindProvider: TypeAlias = Callable[[Any], int]
"""Returns the index of a provider of the task for the value of `provider`."""


def column_hook(converter: cattrs.Converter, context: FileContext, place: FindProvider) -> Hook:
    """Return the hook for one entry; references to other columns stay as in its `requires`."""
    forms = _Forms(converter, context, place)

    def hook(value: Any, _wanted: Any) -> Column:
        if not isinstance(value, dict):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        model = KINDS[chosen(value, TYPE, KINDS, "a column type")]
        return forms.column(model, {key: part for key, part in value.items() if key != TYPE})

    return hook


@attrs.define
class _Forms:
    converter: cattrs.Converter
    context: FileContext
    place: FindProvider
    _hooks: dict[tuple[type[Column], str | None], Hook] = attrs.field(init=False, factory=dict)
    """Hooks that were made; making one is slow."""

    def column(self, model: type[Column], entry: dict[str, Any]) -> Column:
        """Return one column from its keys without `type`."""
        sampler = None
        if model is SamplerColumn:
            sampler = chosen(entry, SAMPLER, SAMPLERS, "a sampler")
            entry = {key: part for key, part in entry.items() if key != SAMPLER}
        if (model, sampler) not in self._hooks:
            self._hooks[model, sampler] = self._hook(model, sampler)
        column: Column = self._hooks[model, sampler](entry, model)
        return _with_outputs(column)

    def _check(self, column: Column) -> Mistakes:
        mistakes = Mistakes(_mistakes_of(column))
        if isinstance(column, ExpressionColumn) and column.python is not None:
            with mistakes.below("python"):
                self.context.check_code(quote(column.python))
        return mistakes

    def _hook(self, model: type[Column], sampler: str | None) -> Hook:
        hooks: dict[str, Hook] = {
            "skip": object_hook(self.converter, Skip),
            "provider": self._provider,
            "prompt": self._prompt,
            "config": self._config,
            "schema": self._schema,
            "file": self._seed_file,
            "scores": self._scores,
            "assertions": self._assertions,
        }
        if sampler is not None:
            hooks["sampler"] = sampler_hook(self.converter, sampler)
        if model is PythonColumn:  # the target of a validation is a column
            hooks["target"] = self._target
        inside = {} if sampler is None else {"sampler": SAMPLERS[sampler]}
        made = {"name": ""} if model is SeedColumns else {}  # its first column, see `_with_outputs`
        # Other columns are found by these keys, in entries of any kind.
        elsewhere = itertools.chain.from_iterable(map(fields_by_key, KINDS.values()))
        return object_hook(
            self.converter,
            model,
            hooks=hooks,
            inside=inside,
            made=made,
            elsewhere=set(elsewhere),
            check=self._check,
        )

    def _provider(self, value: Any, _wanted: Any) -> int:
        return self.place(value)

    def _prompt(self, value: Any, _wanted: Any) -> str:
        return prompt_text(value, self.context)

    def _config(self, value: Any, _wanted: Any) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        found: Mapping[str, Any] = with_files(value, self.context)
        return found

    def _schema(self, value: Any, _wanted: Any) -> Mapping[str, Any]:
        return schema_of(value, self.context)

    def _target(self, value: Any, _wanted: Any) -> str:
        return python_target(value, self.context, "makers of columns")

    def _seed_file(self, value: Any, _wanted: Any) -> Path:
        file = self.context.file(some_text(value))
        if file.suffix.lower() not in SEED_FILES:
            message = f"{quote(file.name)} is not a seed file"
            raise MistakenError(Mistake(message, f"use one of {', '.join(SEED_FILES)}"))
        return file

    def _scores(self, value: Any, _wanted: Any) -> tuple[Score, ...]:
        structure = object_hook(self.converter, Score)
        names: set[str] = set()

        def read(entry: Any) -> tuple[Score]:
            score: Score = structure(entry, Score)
            if score.name in names:
                message = f"another score is also named {quote(score.name)}"
                raise MistakenError(Mistake(message, at=("name",)))
            names.add(score.name)
            return (score,)

        return many(listed(value, "scores"), " of scores", read)

    def _assertions(self, value: Any, _wanted: Any) -> tuple[Assertion, ...]:
        def read(entry: Any) -> tuple[Assertion]:
            assertion: Assertion = self.converter.structure(entry, Assertion)
            Mistakes(unsupported_assertions(assertion, self.context.kinds)).raise_any()
            return (assertion,)

        return many(listed(value, "assertions"), " of assertions", read)


def _mistakes_of(column: Column) -> Iterator[Mistake]:
    """Yield the contradictions within one entry."""
    match column:
        case SeedColumns():
            if not column.columns:
                hint = "list the columns of the source, or write an object to rename them"
                yield Mistake('"columns" is missing', hint)
            if (column.file is None) == (column.from_task is None):
                hint = "a seed has one source: write one of them"
                yield one_of_two("file", "fromTask", both=column.file is not None, hint=hint)
        case ExpressionColumn():
            if (column.template is None) == (column.python is None):
                yield one_of_two("template", "python", both=column.python is not None)
        case PythonColumn():
            yield from _python_mistakes(column)
            yield from _process_mistakes(column)
        case _:
            pass


def _process_mistakes(column: PythonColumn) -> Iterator[Mistake]:
    if column.workers is not None and column.workers > MOST_WORKERS:
        yield Mistake(f"must be 1 to {MOST_WORKERS}, got {column.workers}", at=("workers",))
    if column.ordered and column.workers not in (None, 1):
        hint = "leave out one of the two"
        yield Mistake("groups of an ordered column are made one at a time", hint, at=("workers",))


def _python_mistakes(column: PythonColumn) -> Iterator[Mistake]:
    if column.outputs and column.name not in column.outputs:
        message = f"{quote(column.name)}, the name of the column, is not in outputs"
        yield Mistake(message, "list it first", at=("outputs",))
    outputs = column.outputs or (column.name,)
    for place, name in enumerate(column.extras):
        if name in outputs:
            yield Mistake(f"{quote(name)} is already one of its outputs", at=("extras", place))
    for name in column.as_types:
        if name not in (*outputs, *column.extras, ONE_FOR_ALL):
            hint = nearest(name, (*outputs, *column.extras))
            yield Mistake(
                f"it makes no column named {quote(name)}", hint, at=("as", name), key=True
            )
    if column.ordered and column.scope == "cell":
        hint = 'leave it out, or write "scope": "full"'
        yield Mistake("cells are made in any order", hint, at=("ordered",))
    if column.scope == "scratch":
        hint = 'leave it out, or write "scope": "full"'
        for key, given in (("requires", column.requires), ("skip", column.skip.when)):
            if given:
                message = 'a column of scope "scratch" cannot use other columns'
                yield Mistake(message, hint, at=(key,), key=True)


def _with_outputs(column: Column) -> Column:
    match column:
        case SeedColumns():
            outputs = tuple(column.columns)
            return attrs.evolve(column, name=outputs[0], outputs=outputs)
        case PythonColumn():
            others = (name for name in column.outputs if name != column.name)
            outputs = (column.name, *others)
            given = column.as_types
            if ONE_FOR_ALL in given:
                given = dict.fromkeys((*outputs, *column.extras), given[ONE_FOR_ALL])
            return attrs.evolve(column, outputs=outputs, as_types=given)
        case _:
            return column


def chosen(entry: Mapping[str, Any], key: str, known: Mapping[str, Any], expected: str) -> str:
    """Return the value of the key on which the other keys of an entry depend.

    Raises:
        MistakenError: It is missing or not one of the known values.
    """
    found = entry.get(key)
    if found is None:
        raise MistakenError(Mistake(f'"{key}" is missing', f"known are {', '.join(known)}"))
    if not isinstance(found, str) or found not in known:
        hint = nearest(found if isinstance(found, str) else "", known)
        raise MistakenError(Mistake(f"{kind(found)} is not {expected}", hint, at=(key,)))
    return found


def prompt_text(value: Any, context: FileContext) -> str:
    """Return a prompt: a text, a list of messages, or the content of a file with one prompt.

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
    prompts = read_prompts(value, context)
    if len(prompts) > 1:
        message = f"{quote(value)} contains {counted(len(prompts), 'prompt')}"
        raise MistakenError(Mistake(message, "name a file with one"))
    if prompts[0].function is not None:
        hint = "make the text in a column of type python, and use that column in the prompt"
        raise MistakenError(Mistake("a prompt of a column must be a template, not a program", hint))
    return prompts[0].raw


def schema_of(value: Any, context: FileContext) -> Mapping[str, Any]:
    """Return a JSON schema: an object, or the content of the file that it names.

    Raises:
        MistakenError: Everything that is wrong with it.
    """
    if not names_file(value):
        return _checked(value)
    file = context.file(value)
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


def unsupported_assertions(assertion: Assertion, kinds: Kinds) -> Iterator[Mistake]:
    """Yield the parts of an assertion that call a model or run code; members of a set by their places."""
    if assertion.type == SET:
        for place, member in enumerate(assertion.assertions):
            yield from (one.below("assert", place) for one in unsupported_assertions(member, kinds))
        return
    hint = "a validation makes no calls; make a column of type judge or python, and validate that column"
    base, _ = split_type(assertion.type)
    found = kinds.get(base)
    if found is not None and isinstance(found.judge, ExternalJudge | ComparisonJudge):
        does = (
            "compares rows"
            if isinstance(found.judge, ComparisonJudge)
            else "calls a model or runs code"
        )
        yield Mistake(f"{assertion.type} {does}", hint, at=("type",))
    elif isinstance(assertion.value, Computed):
        yield Mistake("the value would be computed by a program", hint, at=("value",))
    for key, text in (
        ("transform", assertion.transform),
        ("contextTransform", assertion.context_transform),
    ):
        if text is not None:
            yield Mistake(f"a {key} runs code", hint, at=(key,), key=True)


def one_of_two(first: str, second: str, *, both: bool, hint: str = "write one of them") -> Mistake:
    """Return the mistake that both or neither of two keys are given."""
    message = f"both {first} and {second} are given"
    return Mistake(message if both else f"neither {first} nor {second} is given", hint)


def listed(value: Any, members: str) -> list[Any]:
    """Return a list that is not empty.

    Raises:
        MistakenError: It is empty or not a list.
    """
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of {members}, got {kind(value)}"))
    if not value:
        raise MistakenError(Mistake(f"no {members} are given"))
    return value


# Samplers as a suite writes them, and the checks that their values can be drawn.


SAMPLERS: Mapping[str, type[Sampler]] = {
    "category": CategorySampler,
    "subcategory": SubcategorySampler,
    "uniform": UniformSampler,
    "gaussian": GaussianSampler,
    "datetime": DatetimeSampler,
    "uuid": UuidSampler,
}
"""The samplers by their names in suites."""

RAREST = 0.02
"""The minimum share of a normal distribution between its bounds: values outside are drawn again, and that
must end."""

_DIGITS = 15
"""The digits of a float: with more decimals every range contains a number."""

MOST_DECIMALS = 100
"""Maximum decimals of a number that is drawn."""

_WHOLE = 2.0**63 - 1024
"""The largest float that fits into 64 bits."""
_FLOAT = 1e200
"""Far below the largest float, also with all decimals."""
_FARTHEST = 9
"""The largest distance from the mean of a number that may be drawn, in deviations."""

_Check: TypeAlias = Callable[[Any], Iterator[Mistake]]


def sampler_hook(converter: cattrs.Converter, named: str) -> Hook:
    """Return the hook for the keys of one kind of sampler."""
    structure = object_hook(converter, SAMPLERS[named])
    check = _CHECKS[named]

    def hook(value: Any, target: Any) -> Sampler:
        sampler: Sampler = structure(value, target)
        Mistakes(check(sampler)).raise_any()
        return sampler

    return hook


def missing_categories(
    sampler: SubcategorySampler, category: CategorySampler
) -> tuple[list[str], list[str]]:
    """Return the categories without values, and the keys that are not categories."""
    drawn = dict.fromkeys(map(output_text, category.values))
    missing = [name for name in drawn if name not in sampler.values]
    return missing, [name for name in sampler.values if name not in drawn]


def _category(sampler: CategorySampler) -> Iterator[Mistake]:
    if not sampler.values:
        yield Mistake("no values are given", at=("values",))
    weights = sampler.weights
    if weights is None:
        return
    if len(weights) != len(sampler.values):
        weights_given, values_given = (
            counted(len(weights), "weight"),
            counted(len(sampler.values), "value"),
        )
        message = f"{weights_given} for {values_given}"
        yield Mistake(message, "write one for each value", at=("weights",))
    elif weights and not any(weights):
        yield Mistake(
            "all weights are 0", "give at least one value a weight above 0", at=("weights",)
        )
    elif not math.isfinite(sum(weights)):
        yield Mistake("the sum of the weights is too large", "use smaller weights", at=("weights",))


def _subcategory(sampler: SubcategorySampler) -> Iterator[Mistake]:
    if not sampler.values:
        yield Mistake("no values are given", at=("values",))
    for name, several in sampler.values.items():
        if not several:
            yield Mistake("no values are given", at=("values", name))


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
        message = f"almost no number is {bounds} with mean {sampler.mean:g}"
        hint = f"at least {RAREST:g} of all numbers must be; widen the range or the deviation"
        yield Mistake(message, hint, at=("low" if sampler.low is not None else "high",))


def _share(sampler: GaussianSampler, low: float, high: float) -> float:
    """Return the share of a normal distribution within a range, including what is rounded into it."""
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
    """Yield a mistake if numbers of a range cannot be represented or do not fit their column."""
    if decimals is not None and decimals > MOST_DECIMALS:
        message = f"must be at most {MOST_DECIMALS}, got {decimals}"
        yield Mistake(message, "leave it out to get unrounded numbers", at=("decimals",))
        return
    bound = _WHOLE if decimals == 0 else _FLOAT
    far = next((at for at in zip(keys, (low, high), strict=True) if not abs(at[1]) <= bound), None)
    if far is not None:
        hint = f"stay from {-bound:g} to {bound:g}"
        yield Mistake(f"{far[1]:g} is too far from 0 to be represented", hint, at=(far[0],))


def _wrong_order(low: float, high: float) -> Mistake:
    return Mistake(f"low is {low:g}, above high, {high:g}", "low must come first", at=("low",))


def _between(low: float, high: float, decimals: int | None) -> Iterator[Mistake]:
    """Yield a mistake if a range contains no number with so many decimals."""
    if decimals is None or decimals > _DIGITS or not (math.isfinite(low) and math.isfinite(high)):
        return
    least, most = (Decimal(repr(bound)).scaleb(decimals) for bound in (low, high))
    if least.to_integral_value(ROUND_CEILING) > most:
        message = f"no number with {counted(decimals, 'decimal')} is between {low:g} and {high:g}"
        yield Mistake(message, "allow more decimals", at=("decimals",))


def _datetime(sampler: DatetimeSampler) -> Iterator[Mistake]:
    found: dict[str, datetime] = {}
    for key, text in (("start", sampler.start), ("end", sampler.end)):
        try:
            found[key] = datetime.fromisoformat(text)
        except ValueError:
            message = f"must be a date or a date and time in ISO 8601, got {kind(text)}"
            yield Mistake(message, 'for example "2026-01-31" or "2026-01-31T12:00"', at=(key,))
    if len(found) == len(("start", "end")):
        start, end = found.values()
        if (start.tzinfo is None) != (end.tzinfo is None):
            hint = "give both a time zone, or neither"
            yield Mistake("only one of start and end has a time zone", hint, at=("end",))
        elif end < start:
            message = f"end is {quote(sampler.end)}, before start, {quote(sampler.start)}"
            yield Mistake(message, at=("end",))
        elif sampler.format is not None:
            yield from _format(sampler.format, start)


def _format(text: str, instant: datetime) -> Iterator[Mistake]:
    try:
        written = instant.strftime(text)
    except ValueError as error:
        yield Mistake(f"{quote(text)} is not a valid format: {error}", at=("format",))
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
