"""The rules of the trace event format, as viewers apply them, and sums over the slices of a file."""

import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

import attrs

_KEYS = {
    "M": {"name", "args"},
    "B": {"name", "ts"},
    "E": {"ts"},
    "X": {"name", "ts", "dur"},
    "b": {"name", "ts", "cat", "id"},
    "e": {"name", "ts", "cat", "id"},
    "i": {"name", "ts", "s"},
    "C": {"name", "ts", "args"},
}


@attrs.define
class Drawn:
    """The content that a viewer shows."""

    process: str = ""
    tracks: dict[int, str] = attrs.field(factory=dict)
    calls: Counter[str] = attrs.field(factory=Counter)
    """Number of calls by lane."""
    errors: Counter[str] = attrs.field(factory=Counter)
    tokens: Counter[str] = attrs.field(factory=Counter)
    waits: dict[tuple[str, str], float] = attrs.field(factory=lambda: defaultdict(float))
    """Seconds by lane and reason."""
    refused: Counter[str] = attrs.field(factory=Counter)
    most: Counter[str] = attrs.field(factory=Counter)
    """Maximum of concurrent calls."""
    limits: dict[str, int] = attrs.field(factory=dict)
    """The last value of each lane."""
    jobs: list[dict[str, Any]] = attrs.field(factory=list)
    """The ends of finished calls."""
    unfinished: int = 0
    """Calls without an end."""


def read_cut(text: str) -> list[dict[str, Any]]:
    """Return the records of a file that was cut off after any of its lines, as viewers read it."""
    found: list[dict[str, Any]] = json.loads(text.rstrip().rstrip(",") + "]")
    return found


def check_trace(
    records: Sequence[dict[str, Any]], *, whole: bool = True, process: int = 1
) -> Drawn:
    """Raise `AssertionError` unless a viewer displays it correctly."""
    drawn, slices, jobs = Drawn(), _Slices(), dict[Any, float]()
    for one in records:
        kind, track = one["ph"], one["tid"]
        assert _KEYS[kind] <= one.keys(), one
        assert one["pid"] == process
        assert kind == "M" or one["ts"] >= 0, one
        match kind:
            case "M" if one["name"] == "process_name":
                drawn.process = one["args"]["name"]
            case "M" if one["name"] == "thread_name":
                assert track not in drawn.tracks
                drawn.tracks[track] = one["args"]["name"]
            case "i" if one["s"] == "t":
                drawn.refused[_lane(drawn, track)] += 1
            case "C":
                _count(drawn, one)
            case "b":
                assert one["id"] not in jobs
                jobs[one["id"]] = one["ts"]
            case "e":
                assert one["ts"] >= jobs.pop(one["id"])
                drawn.jobs.append(one)
            case "B" | "E" | "X":
                slices.add(drawn, one)
            case _:
                pass
    drawn.unfinished = len(slices.open)
    assert not whole or (not slices.open and not jobs)
    return drawn


@attrs.define
class _Slices:
    """The slices of all tracks, of which none may overlap on one track."""

    open: dict[int, float] = attrs.field(factory=dict)
    ended_at: dict[int, float] = attrs.field(factory=dict)

    def add(self, drawn: Drawn, one: dict[str, Any]) -> None:
        track, at = one["tid"], one["ts"]
        if one["ph"] == "B":
            assert track not in self.open, "slices of one track overlap"
            assert at >= self.ended_at.get(track, 0.0)
            self.open[track] = at
            drawn.calls[_lane(drawn, track)] += 1
        elif one["ph"] == "E":
            assert at >= self.open.pop(track)
            self.ended_at[track] = at
            details = one.get("args", {})
            drawn.tokens[_lane(drawn, track)] += details.get("tokens", 0)
            if "error" in details:
                drawn.errors[details["error"]] += 1
        else:
            assert at >= self.ended_at.get(track, 0.0) - 0.002, "waits of a lane overlap"
            self.ended_at[track] = at + one["dur"]
            drawn.waits[_lane(drawn, track), one["name"]] += one["dur"] / 1e6


def _count(drawn: Drawn, one: dict[str, Any]) -> None:
    lane, _, what = one["name"].rpartition(": ")
    if what == "limit":
        drawn.limits[lane] = one["args"]["calls"]
    else:
        drawn.most[lane] = max(drawn.most[lane], one["args"]["calls"])


def _lane(drawn: Drawn, track: int) -> str:
    """Return the lane of a track, which must have a name before anything is on it."""
    name = drawn.tracks[track]
    return name.removesuffix(": waits") if name.endswith(": waits") else name.rpartition(" ")[0]
