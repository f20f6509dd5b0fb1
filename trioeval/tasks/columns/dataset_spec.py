"""Everything that a dataset is made with: put together by whoever opens the task."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.datasets.graph import ColumnGraph
from trioeval.datasets.grouping import Grouping
from trioeval.datasets.result import Cause
from trioeval.datasets.types import ColumnType
from trioeval.suite.column_models import ColumnsSettings, Skip
from trioeval.tasks.columns.dataset_stages import Stages
from trioeval.tasks.columns.making import Maker

Condition: TypeAlias = Callable[[Mapping[str, Any]], bool]
"""Says something of a row; raises where it cannot."""


@attrs.frozen(kw_only=True)
class Making:
    """What makes the columns of one producer, and what holds for their values."""

    maker: Maker
    kind: str
    """`seed`, `sampler`, …; for the profile."""
    digest: str
    """Of all that the values depend on, see `fingerprints`."""
    is_recorded: bool = False
    """Whether what it makes is written down: what costs money or time, and cannot be computed again."""
    leaves_out: bool = False
    """Whether it may leave out rows, which are dropped then: expressions."""
    skip: Skip = attrs.field(factory=Skip)
    skip_when: Condition | None = None
    """`skip.when`, compiled."""
    drops: Sequence[tuple[Cause, Condition]] = ()
    """When a row is dropped, with its new values: `dropWhen`, and a validation that says so."""
    weight: float = 1.0
    """Its share of its lane, > 0: configured parallelism."""


@attrs.frozen(kw_only=True)
class DatasetSpec:
    """A dataset that is to be built."""

    task: str | None
    settings: ColumnsSettings
    graph: ColumnGraph
    makings: Sequence[Making]
    """One for each producer, in the order of the graph."""
    types: Mapping[str, ColumnType]
    """Of all columns, side-effect columns and those that are not written among them."""
    columns: Sequence[str]
    """Those that are written, in order."""
    grouping: Grouping
    fingerprint: Mapping[str, str] = attrs.field(factory=dict)
    """As of `Header`."""
    stages: Stages = attrs.field(factory=Stages)
    timeout: float = math.inf
    """Seconds of working time of a job that calls somebody."""
