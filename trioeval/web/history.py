"""The history of the lanes of a watched run, with a bounded number of points. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

MOST_POINTS = 240
"""The most points of each lane."""

_FIRST = 0.2  # seconds between two points

Series = tuple[Sequence[float | None], Sequence[float | None], Sequence[float | None]]
"""Seconds since the start of the run; the calls in flight at each; the limit at each."""


@attrs.define
class LaneHistory:
    """Points in time with the calls in flight and the limit of each lane."""

    _times: list[float] = attrs.field(factory=list)
    _lanes: dict[str, list[tuple[int, int] | None]] = attrs.field(factory=dict)
    _apart: float = _FIRST

    def add(self, state: Mapping[str, Any]) -> None:
        """Add the state of a run from `RunState.json`."""
        at = state["elapsedS"]
        if self._times and at - self._times[-1] < self._apart:
            return
        self._times.append(at)
        for lane in state["lanes"]:
            points = self._lanes.setdefault(lane["name"], [None] * (len(self._times) - 1))
            points.append((lane["inFlight"], lane["limit"]))
        if len(self._times) > MOST_POINTS:
            self._apart *= 2
            self._times = self._times[::2]
            self._lanes = {name: points[::2] for name, points in self._lanes.items()}

    def series(self, lane: str) -> Series:
        """Return the points of a lane; none for an unknown lane."""
        points = self._lanes.get(lane, [])
        return (
            self._times[: len(points)],
            [None if point is None else point[0] for point in points],
            [None if point is None else point[1] for point in points],
        )


def series_of_buckets(lane: Mapping[str, Any]) -> Series:
    """Return the points of a lane from `LaneActivity.json`.

    Example:
        >>> series_of_buckets(
        ...     {"bucketS": 0.5, "buckets": [[2, 4, 3, 0, 9, {}], [1, None, 0, 0, 0, {}]]}
        ... )
        ([0.0, 0.5], [2, 1], [4, None])
    """
    buckets = lane["buckets"]
    return (
        [round(number * lane["bucketS"], 3) for number in range(len(buckets))],
        [bucket[0] for bucket in buckets],
        [bucket[1] for bucket in buckets],
    )
