"""The statuses of a success."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.providers.generic.keys import STATUSES, read_statuses


@pytest.mark.parametrize(
    ("written", "holds"),
    [
        ("200-299", lambda s: 200 <= s <= 299),
        ("200 - 204, 404,5xx", lambda s: 200 <= s <= 204 or s == 404 or 500 <= s <= 599),
        ("2xx", lambda s: s // 100 == 2),
        (200, lambda s: s == 200),
        ([200, "404", "5xx"], lambda s: s in (200, 404) or s // 100 == 5),
        ("status >= 200 && status < 300", lambda s: 200 <= s < 300),
        ("status === 200 || (status !== 404 && status > 400)", lambda s: s == 200 or (s > 400 and s != 404)),
        ("!(status >= 500)", lambda s: s < 500),
        ("(status) => status < 500", lambda s: s < 500),
        ("s => s == 200", lambda s: s == 200),
        ("200 <= status < 300 or status == 304", lambda s: 200 <= s < 300 or s == 304),
        ("not status > 299 and status != 204", lambda s: s <= 299 and s != 204),
        ("true", lambda _s: True),
        ("() => true", lambda _s: True),
    ],
)  # fmt: skip
def test_lists_ranges_and_comparisons(written: Any, holds: Any) -> None:
    """The forms of documentation and of program code are accepted."""
    assert read_statuses(written) == frozenset(status for status in STATUSES if holds(status))


@pytest.mark.parametrize(
    "written",
    [
        *("", "ok", "99", "20x", "300-200", "200-", "status", "status <", "other < 300", "false"),
        *(
            "status < '300'",
            "f(status)",
            "status is 200",
            "True",
            "status < 300.5",
            "status + 1 < 3",
        ),
        *("status < 1000 || other", [], [200, "ok"], None, True, 20, 2.5, {"a": 1}, "(" * 200),
        "status < 300 and " * 100 + "true",
        "__import__('os').system('true') == 0",
    ],
)
def test_other_forms_are_refused(written: Any) -> None:
    """An empty set of statuses and an ineffective mistake are refused as well."""
    assert read_statuses(written) is None


@given(st.text() | st.text("status<>=!&|()0123456789 -,x"))
def test_every_text_is_a_valid_set_of_statuses_or_refused(text: str) -> None:
    """No text raises another exception, and none is executed."""
    read = read_statuses(text)
    assert read is None or (read and read <= set(STATUSES))
