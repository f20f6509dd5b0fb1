"""The lanes of a run as a page draws them: of each execution what was in flight, refused and waited for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.report.cutting import cut_middle
from trioeval.report.html_report.inert_text import plain
from trioeval.report.lane_names import lane_names
from trioeval.report.wait_words import WAIT_WORDS

_NAME = 200  # characters
_SHORTEST_S = 0.05
_WORDS = {why.value: word for why, word in WAIT_WORDS.items()}


def lanes_json(told: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """What a page needs to draw them.

    Args:
        told: What `Activity.json` said of each execution.
    """
    names = lane_names(key for execution in told for key in execution["lanes"])
    return [
        {
            "seconds": execution["durationS"],
            "lanes": [
                _lane(key, names[key], lane, execution["durationS"])
                for key, lane in execution["lanes"].items()
            ],
        }
        for execution in told
        if execution["lanes"]
    ]


def _lane(key: str, name: str, lane: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    return {
        "name": plain(cut_middle(name, _NAME), _NAME),
        "key": plain(key, 4 * _NAME),
        "told": plain(", ".join(_facts(lane, seconds)), 4 * _NAME),
        "reasons": [_word(why) for why, _ in _waits(lane)],
        "bucket": lane["bucketS"],
        "buckets": [
            [*bucket[:5], {_word(why): waited for why, waited in bucket[5].items()}]
            for bucket in lane["buckets"]
        ],
    }


def _facts(lane: Mapping[str, Any], seconds: float) -> Iterator[str]:
    """What the picture shows, in words."""
    yield "1 call" if lane["calls"] == 1 else f"{lane['calls']} calls"
    if lane["failed"]:
        yield f"{lane['failed']} failed"
    if lane["refused"]:
        yield f"{lane['refused']} refused (429)"
    if lane["tokens"]:
        yield f"{lane['tokens']} tokens"
    if lane["cost"]:
        yield f"{lane['cost']:.4f} US dollars"
    if lane["closed"] is not None:
        yield f"closed: {lane['closed']}"
    waits = _waits(lane)
    if waits:
        parts = ", ".join(f"{_word(why)} {waited:.1f} s" for why, waited in waits)
        total = sum(waited for _, waited in waits)
        yield f"waited {total:.1f} s of {seconds:.1f} s: {parts}"


def _waits(lane: Mapping[str, Any]) -> Sequence[tuple[str, float]]:
    """The longest first, without those that would be told as 0.0 s."""
    waits = (found for found in lane["waits"].items() if found[1] >= _SHORTEST_S)
    return sorted(waits, key=lambda found: -found[1])


def _word(why: str) -> str:
    return _WORDS.get(why, why)
