"""The reference lists the events of questions as they are reported, in both spellings."""

import re
from pathlib import Path

import pytest

from trioeval.documents.structure import camel
from trioeval.question_eval.answer import QuestionEvent
from trioeval.question_eval.events import NOTES

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "questions.md").read_text()
ROWS = dict(re.findall(r"^\| `(\w+)` \|([^|]*)\|", PAGE.partition("## Events")[2], re.MULTILINE))


def test_every_event_of_a_question_has_a_row() -> None:
    """This includes waits; outcomes share one row."""
    waits = {
        f"waiting_{what}" for what in ("rate_limit", "limit_decreasing", "limiter_error", "lane")
    }
    assert set(ROWS) == {"queued", "scheduled", "reserving", "running", *waits, *NOTES}


@pytest.mark.parametrize("name", sorted(ROWS))
def test_details_have_the_names_of_observers_and_of_records(name: str) -> None:
    """The page has both if they differ."""
    details = re.findall(r"`(\w+)`", ROWS[name])
    event = QuestionEvent(
        sequence=0,
        at=0.0,
        task=None,
        index=0,
        name=name,
        details=dict.fromkeys(details, 1),
    )
    recorded = set(event.json()) - {"sequence", "at", "event"}
    assert recorded == {camel(detail) for detail in details}
    assert [one for one in recorded if f"`{one}`" not in PAGE] == []
