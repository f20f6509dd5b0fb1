"""The dataset of a journal in memory, whose writes stand among those of its run."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import attrs

from trioeval.datasets.files import GroupFile
from trioeval.datasets.grouping import Grouping
from trioeval.datasets.result import DroppedRow
from trioeval.tasks.columns.dataset_journal import MadeRecord, Restored


@attrs.frozen
class Begun:
    """What a dataset is."""

    grouping: Grouping
    fingerprint: Mapping[str, str]


@attrs.frozen
class Stage:
    """A stage of the whole dataset has begun, or is over."""

    name: str
    state: str


DatasetFact: TypeAlias = Begun | MadeRecord | DroppedRow | GroupFile | Stage


@attrs.frozen
class DatasetWrite:
    """Something that was written down of the dataset of a task."""

    task: str | None
    what: DatasetFact


@attrs.define(eq=False)
class MemoryDataset:
    """A `trioeval.tasks.columns.dataset_journal.DatasetJournal` of one execution."""

    task: str | None
    earlier: Sequence[DatasetFact]
    """What other executions have written down of it, in order."""
    _writes: list[Any] = attrs.field(repr=False)
    """Where it is written down."""
    _stages: dict[str, str] = attrs.field(init=False, factory=dict)
    _before: Sequence[DatasetFact] = attrs.field(init=False)
    _grouping: Grouping | None = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._before = _counting(self.earlier)
        begun = _begun(self.earlier)
        self._grouping = None if begun is None else begun.grouping
        self._stages = {one.name: one.state for one in self._before if isinstance(one, Stage)}

    @property
    def resumed(self) -> bool:
        """Whether there is anything to find."""
        return self._grouping is not None

    @property
    def grouping(self) -> Grouping | None:
        """How rows were grouped before."""
        return self._grouping

    def begin(self, grouping: Grouping, fingerprint: Mapping[str, str]) -> None:
        """What the dataset is: of another one, only what was made counts."""
        begun = Begun(grouping, dict(fingerprint))
        self._write(begun)
        self._before = _counting([*self._before, begun])
        self._stages = {one.name: one.state for one in self._before if isinstance(one, Stage)}

    def made(self, record: MadeRecord) -> None:
        """Write down what a job has made."""
        self._write(record)

    def dropped(self, row: DroppedRow) -> None:
        """Write down that a row is gone."""
        self._write(row)

    def written(self, group: GroupFile) -> None:
        """Write down that a group is written."""
        self._write(group)

    def stage(self, name: str, state: str) -> None:
        """Write down that a stage has begun, or is over."""
        self._write(Stage(name, state))
        self._stages[name] = state

    def stages(self) -> Mapping[str, str]:
        """What was written down of stages."""
        return dict(self._stages)

    def groups(self) -> Sequence[GroupFile]:
        """The groups that were written before."""
        found = {one.group: one for one in self._before if isinstance(one, GroupFile)}
        return [found[group] for group in sorted(found)]

    def again(self) -> frozenset[int]:
        """The groups that are to be written anew: none, where nobody asks for it."""
        return frozenset()

    def restored(self, group: int, rows: range) -> Restored:
        """What was written down of a group before; the last of each."""
        made: dict[tuple[str, int, bool], MadeRecord] = {}
        dropped: dict[int, DroppedRow] = {}
        for one in self._before:
            match one:
                case MadeRecord():
                    own = {*one.values, *one.skipped}
                    is_cell = own == {one.unit}
                    if (one.unit in rows) if is_cell else (one.unit == group):
                        made[one.producer, one.unit, is_cell] = one
                case DroppedRow() if one.row in rows:
                    dropped[one.row] = one
        return Restored(made=tuple(made.values()), dropped=tuple(dropped.values()))

    async def durable(self) -> None:
        """Everything is as safe as it will ever be."""

    def _write(self, what: DatasetFact) -> None:
        self._writes.append(DatasetWrite(self.task, what))


def _begun(facts: Sequence[DatasetFact]) -> Begun | None:
    found = [one for one in facts if isinstance(one, Begun)]
    return found[-1] if found else None


def _counting(facts: Sequence[DatasetFact]) -> list[DatasetFact]:
    """What counts of facts: of another dataset that came before, only what was made."""
    counting: list[DatasetFact] = []
    begun: Begun | None = None
    for one in facts:
        if isinstance(one, Begun):
            if begun is not None:
                old, new = begun.grouping, one.grouping
                is_longer = old.size == new.size and new.targets[: len(old.targets)] == old.targets
                if not is_longer or begun.fingerprint != one.fingerprint:
                    counting = [
                        made
                        for made in counting
                        if isinstance(made, MadeRecord)
                        and (is_longer or {*made.values, *made.skipped} == {made.unit})
                    ]
            begun = one
        counting.append(one)
    return counting
