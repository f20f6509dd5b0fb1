# Apart from `columns.open`: processors are steps of their own between two folders.
"""Processors of a suite: functions of its own, and lists of columns to leave out.

A function gets a list of rows and a list of their numbers, and returns both. It may change values and leave
out rows; `spec` says what it may not do. Nor may it add or take away columns: all files of a
dataset have the same ones.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trioeval.columns.makers.base import CellError
from trioeval.columns.makers.code import called, function_of
from trioeval.columns.model import Processor
from trioeval.columns.spec import Process, Processed, Rows, StageProcessor, Stages, mistake
from trioeval.documents.mistakes import kind
from trioeval.evaluation.scripts import Scripts
from trioeval.grading import quote


def stages_of(processors: Iterable[Processor], scripts: Scripts) -> Stages:
    """The processors of a dataset by stage, ready to be called.

    Args:
        processors: As the suite lists them.
        scripts: What runs their functions.
    """
    by_stage: dict[str, list[StageProcessor]] = {}
    for place, processor in enumerate(processors):
        name = f"processors[{place}]"
        ready = StageProcessor(
            name=name,
            run=_dropping(processor)
            if processor.target is None
            else _calling(processor, processor.target, scripts),
            on_error=processor.on_error,
        )
        by_stage.setdefault(processor.stage, []).append(ready)
    return Stages(**{stage: tuple(ready) for stage, ready in by_stage.items()})


def _calling(processor: Processor, target: str, scripts: Scripts) -> Process:
    file, name = function_of(target)

    async def run(_group: int | None, rows: Rows) -> Processed:
        arguments = [[dict(row) for _, row in rows], [number for number, _ in rows]]
        answer = await called(lambda: scripts.call(file, name, arguments, processor.timeout_s))
        return Processed(read_answer(rows, answer, f"{file.name}:{name}"))

    return run


def _dropping(processor: Processor) -> Process:
    async def run(_group: int | None, rows: Rows) -> Processed:  # noqa: ASYNC124 - computes only
        return without_columns(processor, rows)

    return run


def without_columns(processor: Processor, rows: Rows) -> Processed:
    """Rows without the columns that a processor leaves out. Pure.

    Example:
        >>> drops = Processor(stage="after_batch", drop_columns=("*_raw",))
        >>> found = without_columns(drops, [(4, {"a": 1, "a_raw": 2})])
        >>> found.rows, found.aside
        ([(4, {'a': 1})], [(4, {'a_raw': 2})])
    """
    columns = dict.fromkeys(name for _, row in rows for name in row)
    dropped = named_by(processor.drop_columns, columns)
    if not dropped:
        return Processed(rows)
    left = [(number, _part(row, row.keys() - dropped)) for number, row in rows]
    aside: Rows = ()
    if processor.keep_aside:
        aside = [(number, _part(row, row.keys() & dropped)) for number, row in rows]
    return Processed(left, aside, dropped)


def named_by(patterns: Iterable[str], columns: Iterable[str]) -> frozenset[str]:
    """The columns that patterns name, in which `*` stands for any text.

    Example:
        >>> sorted(named_by(["*__trace", "a"], ["a", "b", "b__trace", "ab"]))
        ['a', 'b__trace']
    """
    texts = (".*".join(map(re.escape, pattern.split("*"))) for pattern in patterns)
    wanted = re.compile("|".join(texts) or r"(?!)", re.DOTALL)
    return frozenset(name for name in columns if wanted.fullmatch(name))


def read_answer(given: Rows, answer: Any, name: str) -> Rows:
    """The rows that a function returned, if it is what it may return. Pure.

    Args:
        given: What it got.
        answer: What it returned, as JSON.
        name: What messages call it.

    Raises:
        CellError: It is not.
    """
    match answer:
        case [list() as rows, list() as numbers]:
            pass
        case _:
            raise CellError(
                f"{name} must return a list of rows and a list of their numbers, got {kind(answer)}"
            )
    if len(rows) != len(numbers):
        raise CellError(
            f"{name} must return a number for each row, got {len(rows)} rows and {len(numbers)} numbers"
        )
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            raise CellError(f"{name}: the number of a row is {kind(number)}")
    back = list(zip(numbers, rows, strict=True))
    if what := mistake(given, back):
        raise CellError(f"{name}: {what}")
    before = dict(given)
    for number, row in back:
        _check_row(name, number, before[number], row)
    return back


def _check_row(name: str, number: int, before: Mapping[str, Any], row: Any) -> None:
    if not isinstance(row, dict):
        raise CellError(f"{name}: row {number} must be an object, got {kind(row)}")
    for what, names in (
        ("lacks the column", before.keys() - row.keys()),
        ("has the new column", row.keys() - before.keys()),
    ):
        if names:
            raise CellError(f"{name}: row {number} {what} {', '.join(map(quote, sorted(names)))}")


def _part(row: Mapping[str, Any], names: Iterable[str]) -> Mapping[str, Any]:
    kept = frozenset(names)
    return {name: value for name, value in row.items() if name in kept}
