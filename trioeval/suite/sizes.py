"""Row counts of a suite, the factors of these, and the checks against their bounds.

Everything is counted by multiplication, so the cost is the same for ten rows and for a billion.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from trioeval.errors import Problem, SuiteError
from trioeval.suite.expand import Expansion, TestRange
from trioeval.suite.merge import merged
from trioeval.suite.model import Suite
from trioeval.text import counted

MOST_NUMBERED = 2**31 - 1
"""The maximum number of rows of one task that a store can number."""

_FACTORS = 12  # the maximum number of variables named
_EXAMINED = 1000  # the maximum number of tests examined for list variables
_NAME = 40  # the maximum number of characters of a name


class TooManyRowsError(SuiteError):
    """The suite expands to more rows than a run may have.

    Args:
        problem: The number, its factors, and what to do.
        rows: The number of rows.
    """

    def __init__(self, problem: Problem, rows: int) -> None:
        self.rows = rows
        super().__init__([problem])


@attrs.frozen
class RowCount:
    """The number of rows of a suite, or of several parts of it."""

    rows: int
    factors: str
    """The factors of that number, in words."""
    path: str = "$"
    """The path of the part of the suite that most of them come from."""


def count_rows(steps: Expansion) -> RowCount:
    """Return the number of rows of an expansion, and the factors of most of them.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> digits = [str(digit) for digit in range(10)]
        >>> suite = parse_suite(
        ...     {
        ...         "providers": ["echo"],
        ...         "prompts": ["{{a}}{{b}}", "{{b}}"],
        ...         "tests": [{"vars": {"a": digits, "b": digits}, "options": {"repeat": 3}}],
        ...     }
        ... )
        >>> count_rows(expand(suite)).factors
        '2 prompts × 1 provider × tests[0] with 10 × 10 of vars a, b × repeat 3'
    """
    parts = [*stretch_sizes(steps)]
    if not parts:
        return RowCount(0, "no tests")
    most, tests = max(parts, key=lambda part: part[1] * part[0].shape.steps)
    rows = tests * most.shape.steps
    factors = " × ".join([_columns(steps, most), *_tests(steps, most, tests)])
    if rows < len(steps):
        factors = f"most of them {rows:,} rows: {factors}"
    path = f"{steps.path_of(most.first_place)}" if tests == 1 else "$.tests"
    return RowCount(len(steps), factors, path)


def count_columns(suite: Suite) -> RowCount:
    """Return the number of columns if every provider without own prompts gets all prompts."""
    prompts = len(suite.prompts)
    providers = sum(entry.prompts is None for entry in suite.providers)
    text = f"{counted(prompts, 'prompt', grouped=True)} × {counted(providers, 'provider', grouped=True)}"
    return RowCount(prompts * providers, text, "$.prompts")


def stretch_sizes(steps: Expansion) -> Iterator[tuple[TestRange, int]]:
    """Yield the stretches of an expansion that have steps, each with its number of tests."""
    ends = (*(stretch.first_index for stretch in steps.stretches), len(steps))[1:]
    # Without any step there is one end more than stretches.
    for stretch, end in zip(steps.stretches, ends, strict=False):
        if stretch.first_index < end:
            yield stretch, max(1, (end - stretch.first_index) // stretch.shape.steps)


def rows_by_column(steps: Expansion, indices: range) -> dict[int, int]:
    """Return how many of some consecutive steps each column has, by its number.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> suite = parse_suite(
        ...     {"providers": ["echo"], "prompts": ["a", "b"], "tests": [{"vars": {}}] * 3}
        ... )
        >>> rows_by_column(expand(suite), range(1, 6))
        {0: 2, 1: 3}
    """
    found: dict[int, int] = {}
    for stretch, tests in stretch_sizes(steps):
        columns = stretch.shape.columns
        first = max(0, indices.start - stretch.first_index)
        stop = min(tests * stretch.shape.steps, indices.stop - stretch.first_index)
        for place, column in enumerate(columns):
            if count := len(range(first + (place - first) % len(columns), stop, len(columns))):
                found[column] = found.get(column, 0) + count
    return found


def list_notes(steps: Expansion) -> Iterator[str]:
    """Yield notes about list variables: lists of texts that expand, and lists of numbers that do not.

    One note for each variable, for its first test; only the first tests are examined.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> suite = parse_suite(
        ...     {
        ...         "providers": ["echo"],
        ...         "prompts": ["{{a}} {{b[0]}}"],
        ...         "tests": [{"vars": {"a": ["x", "y"], "b": [1, 2, 3]}}],
        ...     }
        ... )
        >>> for note in list_notes(expand(suite)):
        ...     print(note)
        tests[0]: the list a expands into 2 tests; with options.disableVarExpansion it stays one value
        tests[0]: the list b of 3 numbers stays one value; quote its members to expand it into 3 tests
    """
    places = itertools.chain.from_iterable(span.places for span in steps.spans)
    noted: set[tuple[str, bool]] = set()
    for place in itertools.islice(places, _EXAMINED):
        test = merged(steps.suite.default_test, steps.tests[place])
        if test.options.disable_var_expansion or test.is_data:
            continue
        for name, value in test.vars.items():
            size = len(value) if isinstance(value, list) else 0
            expands = size > 1 and isinstance(value[0], str)
            if not (expands or is_number_list(value)) or (name, expands) in noted:
                continue
            noted.add((name, expands))
            if len(noted) > _FACTORS:
                return
            where = f"{steps.path_of(place).removeprefix('$.')}: the list {_short(name)}"
            if expands:
                yield (
                    f"{where} expands into {size:,} tests; "
                    "with options.disableVarExpansion it stays one value"
                )
            else:
                yield (
                    f"{where} of {size:,} numbers stays one value; "
                    f"quote its members to expand it into {size:,} tests"
                )


def is_number_list(value: Any) -> bool:
    """Return whether a variable is a list of several numbers, which promptfoo does not expand either.

    Example:
        >>> is_number_list([1, 2]), is_number_list(["1", "2"]), is_number_list([1])
        (True, False, False)
    """
    return (
        isinstance(value, list)
        and len(value) > 1
        and all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)
    )


def check_rows(count: RowCount, most: int, *, numbered: bool = True) -> None:
    """Refuse a suite that is too large to run.

    Args:
        count: The rows that would be run.
        most: The maximum number of rows of a run; 0 means unlimited.
        numbered: It is one task, whose rows a store numbers.

    Raises:
        TooManyRowsError: There are more.
    """
    text = f"{count.rows:,} rows: {count.factors}"
    if most and count.rows > most:
        hint = f"a run may have {most:,}; raise --max-rows (evaluateOptions.maxRows), or use -n"
        raise TooManyRowsError(Problem(count.path, text, hint), count.rows)
    if numbered and count.rows > MOST_NUMBERED:
        hint = f"a task can have at most {MOST_NUMBERED:,} rows; split the suite, or use -n"
        raise TooManyRowsError(Problem(count.path, text, hint), count.rows)


def _columns(steps: Expansion, stretch: TestRange) -> str:
    columns = [steps.columns[place] for place in stretch.shape.columns]
    prompts = len({id(column.prompt) for column in columns})
    providers = len({column.provider_index for column in columns})
    if prompts * providers == len(columns):
        return f"{counted(prompts, 'prompt', grouped=True)} × {counted(providers, 'provider', grouped=True)}"
    return counted(len(columns), "column", grouped=True)


def _tests(steps: Expansion, stretch: TestRange, tests: int) -> Iterator[str]:
    shape = stretch.shape
    path = steps.path_of(stretch.first_place).removeprefix("$.")
    several = f"{tests:,} tests" if path.startswith("tests") else f"{tests:,} tests of scenarios"
    yield (path if tests == 1 else several) + _alternatives(steps, stretch)
    if shape.repeats > 1:
        yield f"repeat {shape.repeats:,}"


def _alternatives(steps: Expansion, stretch: TestRange) -> str:
    """Describe the number of sets of variables of a test, and the variables that make them."""
    shape = stretch.shape
    if shape.chosen == 1:
        return ""
    if shape.chosen < shape.combinations:
        return f" with the first {shape.chosen:,} of {shape.combinations:,} sets of vars"
    test = merged(steps.suite.default_test, steps.tests[stretch.first_place])
    found = {
        name: len(value)
        for name, value in test.vars.items()
        if isinstance(value, list) and len(value) > 1 and isinstance(value[0], str)
    }
    named = [*found][:_FACTORS]
    sizes, names = (
        _listed([str(found[name]) for name in named], " × ", len(found) - len(named)),
        _listed([_short(name) for name in named], ", ", len(found) - len(named)),
    )
    return f" with {sizes} of {'vars' if len(found) > 1 else 'var'} {names}"


def _listed(shown: Sequence[str], between: str, more: int) -> str:
    return between.join(shown) + (f"{between}… ({more} more)" if more else "")


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
