"""The context of judging code, as JSON."""

import datetime as dt
import json
import math
from typing import Any

import pytest

from trioeval.evaluation.judge_services import json_data, with_more
from trioeval.providers.programs.workers import Encoded


@pytest.mark.parametrize(
    "more",
    [
        {"config": {"least": 3, "name": "ä"}},
        {"config": {"on": dt.date(2024, 5, 1)}},
        {"config": {"limit": math.inf, "rest": [math.nan, {"low": -math.inf}]}},
    ],
)
def test_values_that_json_lacks_are_null(more: dict[str, Any]) -> None:
    """In one pass or in two, the text is that of `json_data`."""
    found = json.loads(
        with_more(Encoded.of({"prompt": "p"}), more).json, parse_constant=pytest.fail
    )
    assert found == {"prompt": "p", **json_data(more)}
