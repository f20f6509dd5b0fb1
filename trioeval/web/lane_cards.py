"""The lanes of a page: of a running run, or of an ended one. Pure."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioeval.kernel.events import WaitReason
from trioeval.report.activity import WAIT_WORDS, labels_of, lane_names, longest_waits
from trioeval.report.text import cut_middle
from trioeval.web.history import LaneHistory, Series, series_of_buckets
from trioeval.web.pages import count_text, money_text, seconds_text

_SHOWN = 80  # cells of a name


@attrs.frozen(kw_only=True)
class LaneCard:
    """A lane as a page shows it. Its texts are foreign."""

    id: str
    """The id of its elements in the page."""
    name: str
    """The key of the lane, for commands."""
    shown: str
    """The short name."""
    mood: str
    """`open`, `paused`, `probing` or `closed`; `ended` for an ended run."""
    in_flight: int = 0
    limit: int = 0
    max_concurrency: int = 0
    rpm: float | None = None
    tpm: float | None = None
    facts: Sequence[tuple[str, str]] = ()
    """The facts to show, each with its name."""
    waits: str | None = None
    """The reason of its present wait, or of its past waits."""
    reason: str | None = None
    """The reason why it is closed."""
    series: Series = ((), (), ())

    @property
    def points(self) -> str:
        """The chart as JSON."""
        return json.dumps(self.series, separators=(",", ":"))


def lane_id(name: str) -> str:
    """Return the id of the elements of a lane in a page, for any name.

    Example:
        >>> lane_id("openai:gpt-4o") == lane_id("openai:gpt-4o") != lane_id("")
        True
    """
    return "lane-" + hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=6).hexdigest()


def live_cards(state: Mapping[str, Any], history: LaneHistory) -> list[LaneCard]:
    """Return the lanes of a running run.

    Args:
        state: The state from `RunState.json`.
        history: The history of the lanes.
    """
    labels = {lane["name"]: lane["label"] for lane in state["lanes"] if lane.get("label")}
    names = lane_names((lane["name"] for lane in state["lanes"]), labels)
    return [_live_card(lane, names[lane["name"]], history) for lane in state["lanes"]]


def _live_card(lane: Mapping[str, Any], shown: str, history: LaneHistory) -> LaneCard:
    facts = [("queued", count_text(lane["queued"]))]
    for name, used, allowed in (("rpm", "usedRpm", "rpm"), ("tpm", "usedTpm", "tpm")):
        if lane[allowed] is not None:
            facts.append((name, f"{count_text(lane[used])} of {count_text(lane[allowed])}"))
        elif lane[used]:
            facts.append((name, count_text(lane[used])))
    return LaneCard(
        id=lane_id(lane["name"]),
        name=lane["name"],
        shown=cut_middle(shown, _SHOWN),
        mood=lane["mood"],
        in_flight=lane["inFlight"],
        limit=lane["limit"],
        max_concurrency=lane["maxConcurrency"],
        rpm=lane["rpm"],
        tpm=lane["tpm"],
        facts=[*facts, *_counts(lane, retried=lane["retried"])],
        waits=None if lane["why"] is None else _wait(lane["why"], lane["waitS"]),
        reason=lane["reason"],
        series=history.series(lane["name"]),
    )


@attrs.frozen(kw_only=True)
class WorkerLaneLine:
    """A lane of a worker of a run on several machines, as a line of a table. Its texts are foreign."""

    worker: str
    rows: int | None
    """Rows that the worker has finished; None except on its first line."""
    lane: str | None
    """The short name; None if the worker has not used a lane yet."""
    in_flight: int = 0
    limit: int = 0
    queued: int = 0
    calls: int = 0
    refused: int = 0
    waits: str | None = None
    """The reason of its present wait, or why it is closed."""


def worker_lines(state: Mapping[str, Any]) -> list[WorkerLaneLine]:
    """Return the lanes of the workers of a running run; none for a run on one machine.

    Args:
        state: The state from `RunState.json`.
    """
    labels = {lane["name"]: lane["label"] for lane in state["lanes"] if lane.get("label")}
    names = lane_names((lane["name"] for lane in state["lanes"]), labels)
    found: list[WorkerLaneLine] = []
    for worker in state.get("workers", ()):
        shown = cut_middle(worker["name"], _SHOWN)
        if not worker["lanes"]:
            found.append(WorkerLaneLine(worker=shown, rows=worker["rows"], lane=None))
        for number, lane in enumerate(worker["lanes"]):
            waits = None if lane["why"] is None else _wait(lane["why"], lane["waitS"])
            found.append(
                WorkerLaneLine(
                    worker=shown,
                    rows=None if number else worker["rows"],
                    lane=cut_middle(names.get(lane["name"], lane["name"]), _SHOWN),
                    in_flight=lane["inFlight"],
                    limit=lane["limit"],
                    queued=lane["queued"],
                    calls=lane["calls"],
                    refused=lane["refused"],
                    waits=waits if lane["reason"] is None else f"closed: {lane['reason']}",
                )
            )
    return found


def ended_cards(activities: Sequence[Mapping[str, Any]]) -> list[LaneCard]:
    """Return the lanes of an ended run.

    Args:
        activities: The results of `Reader.activity`; charts show the last execution.
    """
    if not activities:
        return []
    names = lane_names(activities[-1]["lanes"], labels_of(activities[-1:]))
    waits: dict[str, list[str]] = {}
    for wait in longest_waits(activities[-1:]):
        if wait.seconds:
            text = f"{wait_word(wait.why.value)} {seconds_text(wait.seconds)}"
            waits.setdefault(wait.lane, []).append(text)
    return [
        LaneCard(
            id=lane_id(name),
            name=name,
            shown=cut_middle(names[name], _SHOWN),
            mood="ended",
            facts=_counts(lane),
            waits=", ".join(waits.get(name, ())) or None,
            reason=lane["closed"],
            series=series_of_buckets(lane),
        )
        for name, lane in activities[-1]["lanes"].items()
    ]


def _counts(lane: Mapping[str, Any], retried: int = 0) -> list[tuple[str, str]]:
    facts = [("calls", count_text(lane["calls"]))]
    facts += [("429", count_text(lane["refused"]))] if lane["refused"] else []
    facts += [("repeated", count_text(retried))] if retried else []
    facts += [("tokens", count_text(lane["tokens"]))] if lane["tokens"] else []
    return facts + ([("cost", money_text(lane["cost"]))] if lane["cost"] else [])


def wait_word(why: str) -> str:
    """Return the reason of a wait in a word or two.

    Example:
        >>> wait_word("tokens"), wait_word("Godot")
        ('tpm', 'Godot')
    """
    try:
        return WAIT_WORDS[WaitReason(why)]
    except ValueError:
        return why


def _wait(why: str, seconds: float | None) -> str:
    word = wait_word(why)
    return word if seconds is None else f"{word}, {seconds_text(seconds)}"
