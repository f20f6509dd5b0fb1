"""The stages of a group: what processors do with it, and how its rows are written."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.datasets.result import Cause
from trioeval.datasets.tracker import FINISH, MakeJob
from trioeval.datasets.types import fits
from trioeval.errors import DatasetError
from trioeval.tasks.columns.dataset_endings import left_out, say
from trioeval.tasks.columns.dataset_events import ProcessorBegun, ProcessorEnded
from trioeval.tasks.columns.dataset_groups import GroupState
from trioeval.tasks.columns.dataset_output import Output
from trioeval.tasks.columns.dataset_profile import Profiles
from trioeval.tasks.columns.dataset_progress import Progress
from trioeval.tasks.columns.dataset_stages import Processed, Rows, StageProcessor, check

_AFTER_GENERATION = "after_generation"
_DONE = re.compile(r"done for (\d+) rows, without (\d+)")
"""What is written down of that stage when it is over."""


@attrs.define(eq=False)
class Finishing:
    """The bodies of the jobs that end something."""

    progress: Progress
    output: Output
    profiles: Profiles

    async def prepare(self, index: int) -> None:
        """Let processors see a group that has its seeds, and nothing else. A checkpoint if one is.

        Raises:
            DatasetError: One failed, and the run is to fail with it.
        """
        progress = self.progress
        job = progress.ready[index].job
        flight, group = progress.begin(index), progress.groups[job.group]
        stages = progress.spec.stages.before_batch
        before = self._rows(group)
        processed: Processed | None = None
        with flight.scope:
            processed = await self._process(stages, group.number, before)
        if flight.is_gone:
            return
        if processed is None:
            self._drop(group, [row for row, _ in before])
            return
        kept = {row for row, _ in processed.rows}
        for row, values in processed.rows:
            if progress.tracker.is_dropped(row):
                continue
            self._check_values(stages[-1].name, row, values, set(progress.buffer.view(row)))
            progress.buffer.set(row, values)
        self._drop(group, [row for row, _ in before if row not in kept])
        progress.complete(job)

    async def finish(self, number: int, index: int | None = None) -> None:
        """Write a group that is complete. Always a checkpoint.

        Args:
            number: The group.
            index: Of its job; None behind the plan.

        Raises:
            DatasetError: It cannot be written, or a processor failed and the run is to fail with it.
        """
        progress, group = self.progress, self.progress.groups[number]
        if index is None:
            progress.tracker.begin(MakeJob(FINISH, number))
        else:
            progress.begin(index)
        stages = progress.spec.stages.after_batch
        rows = self._rows(group) if stages else self._as_they_are(group)
        aside: Rows = ()
        gone: list[int] = []
        if rows and stages:
            processed = await self._process(stages, number, rows)
            kept = () if processed is None else processed.rows
            there = {row for row, _ in kept}
            gone = [row for row, _ in rows if row not in there]
            rows, aside = kept, () if processed is None else processed.aside
        written = [(row, self._columns(row, values)) for row, values in rows]
        counts = group.dropped + Counter[Cause](processor=len(gone))
        if aside:
            await self.output.write_aside(number, aside)
        file = await self.output.write(number, written, dict(counts))
        await self.profiles.add(written, group.skipped)
        self._drop(group, gone)
        progress.written(group, file)

    async def generation(self) -> None:
        """Let processors see the whole dataset, once. A checkpoint if there are any.

        Raises:
            DatasetError: One failed; or they did already, when the dataset had another size.
        """
        progress, journal = self.progress, self.progress.journal
        stages, grouping = progress.spec.stages.after_generation, progress.spec.grouping
        if not stages:
            return
        state = None if journal is None else journal.stages().get(_AFTER_GENERATION)
        done = None if state is None else _DONE.fullmatch(state)
        if done is not None and self.output.is_processed:
            rows_then, gone_then = map(int, done.groups())
            if rows_then == grouping.rows:
                progress.account.left_out_at_last(gone_then)
                return
            raise DatasetError(
                f"processors after generation are done for {rows_then} rows, and the dataset has"
                f" {grouping.rows} now; begin it anew to process all of them"
            )
        if journal is not None:
            journal.stage(_AFTER_GENERATION, "begun")
        rows = await self.output.read()
        processed = await self._process(stages, None, rows)
        if processed is None:
            raise DatasetError("a processor after generation cannot drop a group")
        columns = {
            name: progress.spec.types[name]
            for name in progress.spec.columns
            if name not in processed.left_out
        }
        by_group: dict[int, list[tuple[int, Mapping[str, Any]]]] = {
            number: [] for number in sorted(self.output.written)
        }
        for row, values in processed.rows:
            by_group[grouping.group_of(row)].append((row, values))
        aside: dict[int, list[tuple[int, Mapping[str, Any]]]] = {}
        for row, values in processed.aside:
            aside.setdefault(grouping.group_of(row), []).append((row, values))
        for number, several in aside.items():
            await self.output.write_aside(number, several)
        await self.output.replace(by_group.items(), columns)
        gone = len(rows) - len(processed.rows)
        progress.account.left_out_at_last(gone)
        if journal is not None:
            journal.stage(_AFTER_GENERATION, f"done for {grouping.rows} rows, without {gone}")

    def complete_groups(self) -> Sequence[int]:
        """Groups that are open, and lack nothing but their end."""
        return [
            number
            for number in self.progress.groups
            if self.progress.tracker.needed(number) == (MakeJob(FINISH, number),)
        ]

    async def _process(
        self, stages: Sequence[StageProcessor], group: int | None, rows: Rows
    ) -> Processed | None:
        """What all processors of a stage leave; None if the group is dropped."""
        left_out_columns: frozenset[str] = frozenset()
        aside: dict[int, dict[str, Any]] = {}
        for processor in stages:
            try:
                processed = await self._run(processor, group, rows)
            except DatasetError:
                if processor.on_error == "abort" or group is None:
                    raise
                return None
            rows = processed.rows
            left_out_columns |= processed.left_out
            for row, values in processed.aside:
                aside.setdefault(row, {}).update(values)
        return Processed(rows, sorted(aside.items()), left_out_columns)

    async def _run(self, processor: StageProcessor, group: int | None, rows: Rows) -> Processed:
        observe = self.progress.observe
        error: str | None = None
        if observe is not None:
            observe(ProcessorBegun(trio.current_time(), processor.name, group))
        try:
            processed = await processor.run(group, rows)
            check(rows, processed.rows)
        except Exception as caught:
            error = say(caught)
            where = "" if group is None else f" (group {group})"
            raise DatasetError(f"{processor.name}{where}: {error}") from caught
        finally:
            if observe is not None:
                observe(ProcessorEnded(trio.current_time(), processor.name, group, error))
        return processed

    def _rows(self, group: GroupState) -> Rows:
        """What there is of a group, copied."""
        buffer = self.progress.buffer
        return [
            (row, buffer.copy(row, buffer.view(row)))
            for row in self.progress.tracker.left(group.number)
        ]

    def _as_they_are(self, group: GroupState) -> Rows:
        """The same for who changes nothing."""
        view = self.progress.buffer.view
        return [(row, view(row)) for row in self.progress.tracker.left(group.number)]

    def _columns(self, row: int, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Those that are written."""
        try:
            return {name: values[name] for name in self.progress.spec.columns}
        except KeyError as error:
            raise DatasetError(f"row {row} lacks column {error} after its processors") from None

    def _check_values(
        self, name: str, row: int, values: Mapping[str, Any], known: set[str]
    ) -> None:
        types = self.progress.spec.types
        for column, value in values.items():
            if column not in known:
                raise DatasetError(f"{name}: it added column {column!r} to row {row}")
            if not fits(value, types[column]):
                raise DatasetError(
                    f"{name}: column {column!r} of row {row} is {value!r} now, which is no {types[column]}"
                )

    def _drop(self, group: GroupState, rows: Sequence[int]) -> None:
        self.progress.drop(group, [left_out(row, "processor") for row in rows])
