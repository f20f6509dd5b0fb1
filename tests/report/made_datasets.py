"""Finished datasets for tests of reports."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
from hypothesis import strategies as st

from trioeval.columns.result import (
    FILTERS,
    Cause,
    ColumnProfile,
    DatasetResult,
    DroppedRow,
    Histogram,
)
from trioeval.report.head import Head
from trioeval.report.results import Results, RunInfo
from trioeval.report.strip import KEEP_ALL, Strip
from trioeval.report.totals import Totals
from trioeval.usage import Usage

TOPIC = ColumnProfile(
    name="topic",
    kind="sampler",
    type="text",
    values=98,
    nulls=0,
    skipped=0,
    distinct=2,
    lengths=Histogram(edges=(4.0, 8.0), counts=(98,)),
    common=(("apples", 52), ("tr\x1b[31mains", 46)),
)
PROBLEM = ColumnProfile(
    name="problem",
    kind="llm",
    type="text | null",
    values=98,
    nulls=3,
    skipped=3,
    distinct=95,
    lengths=Histogram(edges=(16.0, 32.0, 64.0), counts=(40, 55)),
    calls=104,
    recalled=2,
    failed=1,
    usage=Usage(prompt=500, completion=700, total=1200),
    cost=0.25,
    seconds=42.5,
)
MADE = DatasetResult(
    task="problems",
    requested=100,
    written=98,
    dropped={"failed": 1, "filtered": 1},
    groups=4,
    failures=(
        DroppedRow(row=7, cause="failed", column="problem", error="down", attempts=6),
        DroppedRow(row=9, cause="filtered", column="problem"),
    ),
    first_error="row 7, column 'problem': down",
    columns=(TOPIC, PROBLEM),
    folder=Path("/a/datasets/problems"),
    format="parquet",
    calls=104,
    usage=Usage(total=1200),
    cost=0.25,
    duration_s=12.34,
)
FINE = attrs.evolve(
    MADE,
    dropped={"filtered": 2},
    failures=(),
    first_error=None,
    columns=(TOPIC, attrs.evolve(PROBLEM, failed=0)),
)
CUT = attrs.evolve(FINE, written=50, dropped={}, not_run={"deadline": 50}, groups=2)


def results_of_dataset(result: DatasetResult, *, strip: Strip = KEEP_ALL) -> Results:
    """Return the data of result files for a task with this dataset."""
    head = Head(
        eval_id="e1",
        utc_created="2026-01-01T00:00:00+00:00",
        columns=(),
        config={"prompts": []},
        runtime_options={},
        versions={"trioevalVersion": "0"},
        task=result.task,
        dataset_folder=None if result.folder is None else str(result.folder),
    )
    info = RunInfo(utc_exported="2026-01-01T00:00:01+00:00", duration_ms=1000.0, strip=strip)
    return Results(
        head=Head.read(json.loads(json.dumps(head.json()))),
        totals=Totals.of(()),
        info=info,
        records=lambda _: iter(()),
        dataset=result,
    )


_CAUSES: tuple[Cause, ...] = ("failed", "early_shutdown", *sorted(FILTERS))
_counts = st.integers(min_value=0, max_value=2**40)
_finite = st.floats(allow_nan=False, allow_infinity=False)
_texts = st.text(max_size=12)
_values = st.recursive(
    st.none() | st.booleans() | st.integers() | _finite | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=6,
)
_usages = st.builds(Usage, **{field.name: st.none() | _counts for field in attrs.fields(Usage)})
_histograms = st.builds(
    Histogram,
    edges=st.lists(_finite, max_size=4).map(tuple),
    counts=st.lists(_counts, max_size=3).map(tuple),
)
_rows = st.builds(
    DroppedRow,
    row=_counts,
    cause=st.sampled_from(_CAUSES),
    column=st.none() | _texts,
    error=st.none() | _texts,
    kind=st.none() | _texts,
    attempts=_counts,
)
_NUMBERS: Mapping[str, Any] = dict.fromkeys(("min", "max", "mean", "std"), _finite)
_columns = st.builds(
    ColumnProfile,
    name=_texts,
    kind=_texts,
    type=_texts,
    values=_counts,
    nulls=_counts,
    skipped=_counts,
    distinct=_counts,
    is_estimate=st.booleans(),
    lengths=st.none() | _histograms,
    numbers=st.just({}) | st.fixed_dictionaries(_NUMBERS),
    common=st.lists(st.tuples(_values, _counts), max_size=3).map(tuple),
    calls=_counts,
    recalled=_counts,
    failed=_counts,
    usage=_usages,
    cost=st.none() | _finite,
    seconds=_finite,
)
datasets = st.builds(
    DatasetResult,
    task=st.none() | _texts,
    requested=_counts,
    written=_counts,
    dropped=st.dictionaries(st.sampled_from(_CAUSES), _counts, max_size=4),
    not_run=st.dictionaries(_texts, _counts, max_size=3),
    unfinished=st.sampled_from([None, "cancel", "deadline"]),
    groups=_counts,
    partial_groups=st.lists(_counts, max_size=3).map(tuple),
    early_shutdown=st.booleans(),
    failures=st.lists(_rows, max_size=3).map(tuple),
    first_error=st.none() | _texts,
    error=st.none() | _texts,
    columns=st.lists(_columns, max_size=3).map(tuple),
    folder=st.none() | st.just(Path("/a b/c")),
    format=st.sampled_from((None, "parquet", "jsonl")),
    calls=_counts,
    usage=_usages,
    cost=st.none() | _finite,
    duration_s=_finite,
)
"""Generate any finished dataset."""
