"""Important events of a run are logged on their levels, and inert."""

import logging

import pytest

import trioeval.errors
from trioeval.cli.logs import shown_logs
from trioeval.errors import ProviderError
from trioeval.kernel import (
    CallEnded,
    CallStarted,
    Event,
    LaneClosed,
    LimitChanged,
    Salvaged,
    Throttled,
    Waiting,
)
from trioeval.kernel.events import WaitReason
from trioeval.report.event_log import log_events

EVENTS: list[Event] = [
    CallStarted(1.0, 7, "m"),
    Waiting(1.0, "m", WaitReason.TOKENS, None, None),
    Waiting(1.0, "m", WaitReason.BACKOFF, None, 7),
    Throttled(2.0, 7, "m", 12.0, 14.0),
    CallEnded(2.0, 7, "m", ProviderError("rate_limited", "what was said")),
    CallEnded(2.0, 8, "m"),
    LimitChanged(2.0, "m", 2, 2),
    Salvaged(3.0, (1, 2)),
    LaneClosed(4.0, "m\x1b[31m\nx", "auth: no\u202e key"),
]


def test_each_event_is_logged_on_its_level(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trioeval")
    for event in EVENTS:
        log_events(event)
    assert {record.name for record in caplog.records} == {"trioeval.run"}
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "lane m: the next job waits for tokens"),
        ("DEBUG", "lane m: job 7 waits for backoff"),
        ("INFO", "lane m refused a call of job 7; it asks to wait 12 s"),
        ("INFO", "lane m: a call of job 7 failed: rate_limited"),
        ("INFO", "lane m: at most 2 calls at once"),
        ("INFO", "final retry round: running 2 jobs with transient failures again"),
        ("WARNING", "lane m [31m x is closed: auth: no key"),
    ]


def test_logs_are_shown_from_a_level_and_only_in_the_block(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for level, count in [("info", 5), ("warning", 1), (None, 0)]:
        with shown_logs(level):  # type: ignore[arg-type]
            for event in EVENTS:
                log_events(event)
        assert len(capsys.readouterr().err.splitlines()) == count
    log_events(EVENTS[-1])
    assert capsys.readouterr().err == ""


def test_without_configured_logging_nothing_is_printed() -> None:
    """The library has a handler that drops everything, so Python's last resort prints nothing."""
    assert trioeval.errors is not None
    kinds = [type(handler) for handler in logging.getLogger("trioeval").handlers]
    assert logging.NullHandler in kinds
