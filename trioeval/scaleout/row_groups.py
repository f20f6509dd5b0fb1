# Separate from `scaleout.coordinator`: which rows go together follows from the suite alone.
"""The groups in which the rows of a suite are sent, and the sizes that follow from their lanes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import attrs

from trioeval.evaluation.prepared import PreparedSuite
from trioeval.scaleout.facts import agent_tasks, called_lanes, lane_uses, owned_lanes, shares_lanes
from trioeval.scaleout.shards import LaneUse, RowKind, block_rows, owner_groups, with_case_groups


@attrs.frozen(eq=False, repr=False)
class RowGroups:
    """The groups of the rows of a suite."""

    _prepared: PreparedSuite
    _uses: Sequence[LaneUse]
    by_kind: Mapping[RowKind, str | None]
    """See `owner_groups`."""
    widths: Mapping[str | None, int]
    """The calls that a worker may make at once for rows of each group."""

    @classmethod
    def of(cls, prepared: PreparedSuite, *, lane_owner: bool) -> RowGroups:
        """Return the groups of a suite.

        Args:
            prepared: The suite.
            lane_owner: Whether each lane has one owner, although the suite has Redis.
        """
        uses = lane_uses(prepared)
        cap = prepared.suite.evaluate_options.max_total_concurrency
        is_capped = cap is not None and not shares_lanes(prepared, lane_owner=lane_owner)
        owned = owned_lanes(prepared, lane_owner=lane_owner)
        groups = with_case_groups(
            owner_groups(uses, owned, is_capped=is_capped), agent_tasks(prepared)
        )
        of_lane = {spec.name: spec.max_concurrency for spec in prepared.lane_specs}
        lanes: dict[str | None, set[str]] = {None: set()}
        for use in uses:
            lanes.setdefault(groups[use.rows], set()).update(use.lanes)
        widths = {group: sum(of_lane[lane] for lane in found) for group, found in lanes.items()}
        return cls(prepared, uses, groups, widths)

    def of_task(self, task: str | None) -> Mapping[str | None, str | None]:
        """Return the groups of the rows of a task, by lane."""
        return {lane: group for (kind, lane), group in self.by_kind.items() if kind == task}

    def block_rows(self, task: str | None) -> int:
        """Return the number of rows of each block of a task."""
        used = {lane for use in self._uses if use.rows[0] == task for lane in use.lanes}
        called = called_lanes(self._prepared)
        return block_rows(
            (spec.max_concurrency, spec.rpm)
            for spec in self._prepared.lane_specs
            if spec.name in used and (spec.name in called or spec.rpm)
        )
