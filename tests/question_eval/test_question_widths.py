"""The max concurrency of lanes for tasks of questions follows the number of workers."""

from pathlib import Path
from typing import Any

import pytest
from asked_questions import Pupil, asked, quiz

from trioeval import parse_suite, prepare


async def pupil(_request: Any) -> str:
    return ""  # it is not used


def widths(document: Any, cap: int | None = None) -> dict[str, int]:
    suite = parse_suite(document, environ={}, allow_outside=True)
    people = {"pupil": pupil, "other": pupil}
    prepared = prepare(suite, providers=people, environ={}, max_concurrency=cap)
    return {spec.name: spec.max_concurrency for spec in prepared.lane_specs}


@pytest.mark.parametrize(
    ("workers", "options", "lane", "cap", "width"),
    [
        (None, {}, {}, None, 4),
        (8, {}, {}, None, 8),
        (2, {}, {}, None, 4),
        (8, {"maxConcurrency": 1}, {}, None, 8),
        (8, {"maxConcurrency": 20}, {}, None, 20),
        (8, {}, {"maxConcurrency": 3}, None, 3),
        (8, {}, {"rpm": 60}, None, 8),
        (8, {}, {}, 5, 5),
        (8, {}, {"maxConcurrency": 3}, 5, 3),
    ],
)
def test_a_lane_has_room_for_all_workers_by_default(
    tmp_path: Path, *, workers: int | None, options: Any, lane: Any, cap: int | None, width: int
) -> None:
    """A configured max concurrency applies, and so does a cap."""
    document = quiz(
        tmp_path,
        entry={"workers": workers},
        providers=[{"id": "pupil", "lane": lane}],
        evaluateOptions=options,
    )
    assert list(widths(document, cap).values()) == [width]


def test_workers_of_the_limits_have_room_too(tmp_path: Path) -> None:
    """They apply to every task without its own workers."""
    document = quiz(tmp_path, limits={"limits": [], "workers": 9})
    assert list(widths(document).values()) == [9]


def test_tasks_that_share_a_lane_share_its_room(tmp_path: Path) -> None:
    """A lane that another task also uses is not smaller; lanes of other tasks are unchanged."""
    document = quiz(tmp_path, entry={"workers": 8, "providers": ["pupil"]})
    (task,) = document["tasks"]
    said = {"type": "prompt_eval", "prompts": ["a"], "providers": ["pupil", "other"]}
    document["tasks"] = [
        {**task, "id": "few", "workers": 2},
        {"id": "said", **said},
        {**task, "id": "many"},
    ]
    assert widths(document) == {"pupil": 8, "other": 4}
    assert widths(document, cap=3) == {"pupil": 3, "other": 3}


def test_a_max_concurrency_set_by_one_task_applies_to_all(tmp_path: Path) -> None:
    """It is a setting of the lane."""
    document = quiz(tmp_path, entry={"workers": 8})
    narrow = [{"id": "pupil", "lane": {"maxConcurrency": 2}}]
    said = {"id": "said", "type": "prompt_eval", "prompts": ["a"], "providers": narrow}
    document["tasks"].append(said)
    assert widths(document) == {"pupil": 2}


def test_eight_workers_have_eight_calls_in_flight(tmp_path: Path) -> None:
    """Sixteen questions of a second each take two seconds."""
    asker = Pupil()
    ran = asked(quiz(tmp_path, 16, entry={"workers": 8}), asker)
    assert asker.began_at == [0] * 8 + [1] * 8
    assert ran.ended_at == 2
