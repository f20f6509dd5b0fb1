"""A run that is stopped while its rows wait for shared limits does not wait for a window."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from asked_questions import RIGHT, Pupil, Ran, asked, quiz

from trioeval.errors import ProviderError

DAY = {"key": "pupils:rpm", "kind": "rolling", "capacity": 2, "windowSeconds": 86400}
LIMITED: dict[str, Any] = {
    "providers": [{"id": "pupil", "lane": {"limits": ["pupils:rpm"]}}],
    "limits": {"limits": [DAY]},
}


async def stopped(go: Callable[..., Awaitable[None]], _ran: Ran) -> None:
    """Stop after three seconds."""
    stop = trio.Event()
    async with trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(3)
            stop.set()

        nursery.start_soon(later)
        await go(stop=stop)


@pytest.mark.parametrize("workers", [1, 3])
def test_qe_41_a_stop_waits_for_no_window(tmp_path: Path, workers: int) -> None:
    """Two got replies; the third had no permit: it is not run, like those that were never started."""
    document = quiz(tmp_path, 5, entry={"workers": workers}, **LIMITED)
    pupil = Pupil()
    ran = asked(document, pupil, around=stopped)
    assert ran.ended_at == 3
    assert len(pupil.requests) == 2
    assert ran.outcomes == ["correct"] * 2 + ["cancelled"] * 3
    assert [row.outcome for row in ran.rows] == ["done"] * 2 + ["not_run"] * 3
    assert {row.error for row in ran.rows[2:]} == {"not run: the run was stopped"}
    errors = [question.run_error for question in ran.questions[2:]]
    assert {error and (error.kind, error.retryable) for error in errors} == {("interrupted", True)}
    assert ran.end == {"status": "error", "reason": "cancelled"}


def test_rows_of_prompts_are_not_run_either(tmp_path: Path) -> None:
    """The kernel treats all tasks the same."""
    tests = [{"vars": {"question": f"Colour {n}?"}} for n in range(4)]
    document = {"prompts": ["{{question}}"], "tests": tests, **LIMITED}
    ran = asked(document, Pupil(), around=stopped)
    assert ran.ended_at == 3
    assert [row.outcome for row in ran.rows] == ["done"] * 2 + ["not_run"] * 2


def test_a_judge_without_a_permit_continues_with_the_paid_reply(tmp_path: Path) -> None:
    """Its row has a reply: it waits for its permit, as for any other limit of its lane."""
    window = {**DAY, "capacity": 1, "windowSeconds": 10}
    judge = {"id": "pupil", "lane": "judges"}
    rubric = {"type": "llm-rubric", "value": "right", "provider": judge}
    document = {
        "providers": ["pupil"],
        "prompts": ["{{question}}"],
        "tests": [{"vars": {"question": f"Colour {n}?"}, "assert": [rubric]} for n in range(2)],
        "lanes": {"judges": {"limits": ["pupils:rpm"]}},
        "limits": {"limits": [window]},
    }
    graded = '{"pass": true, "score": 1, "reason": "so it is"}'
    ran = asked(document, Pupil(says=lambda _, step: graded if step else RIGHT), around=stopped)
    assert [row.outcome for row in ran.rows] == ["done"] * 2
    assert ran.ended_at == 12


def test_fail_fast_waits_for_no_window_either(tmp_path: Path) -> None:
    """Questions that wait when the first one fails are skipped, like those that were never started."""
    document = quiz(tmp_path, 4, entry={"workers": 4, "failFast": True}, **LIMITED)
    pupil = Pupil(
        says=lambda number, _: ProviderError("auth", "wrong key") if number == 0 else RIGHT
    )
    ran = asked(document, pupil)
    assert ran.ended_at == 1
    assert ran.outcomes == ["runtime_error", "correct", "skipped", "skipped"]
