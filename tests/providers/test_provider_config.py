import math
from collections.abc import Mapping
from typing import Any

import pytest

from trioeval.errors import Problem
from trioeval.providers.config import Key, config_path, is_number, is_text, read_config, show

KEYS = (
    Key("maxTokens", "a number", is_number),
    Key("stop", "text", is_text),
    Key("apiKey", "text", is_text, secret=True),
)


@pytest.mark.parametrize("spelling", ["maxTokens", "max_tokens"])
def test_both_spellings_are_one_key(spelling: str) -> None:
    """CamelCase and snake_case are the same key."""
    assert read_config({spelling: 3}, KEYS) == ({"max_tokens": 3}, [])


def test_null_is_kept() -> None:
    """Null is valid for every key, so that it can remove a default."""
    assert read_config({"stop": None}, KEYS) == ({"stop": None}, [])


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (
            {"maxTokns": 3},
            Problem(".config.maxTokns", '"maxTokns" is not a key', 'did you mean "maxTokens"?'),
        ),
        (
            {"maxCots": 3},
            Problem(".config.maxCots", '"maxCots" is not a key', 'did you mean "maxCost"?'),
        ),
        (
            {"x y": 3},
            Problem('.config["x y"]', '"x y" is not a key', "known are apiKey, maxTokens, stop"),
        ),
        (
            {"maxTokens": 3, "max_tokens": 3},
            Problem(
                ".config.max_tokens",
                '"maxTokens" and "max_tokens" mean the same',
                "keep one of them",
            ),
        ),
        ({"maxTokens": True}, Problem(".config.maxTokens", "must be a number, got true")),
        ({"maxTokens": math.nan}, Problem(".config.maxTokens", "must be a number, got NaN")),
        ({"stop": " "}, Problem(".config.stop", 'must be text, got " "')),
        ({"apiKey": 1234}, Problem(".config.apiKey", "must be text (its value is not shown)")),
    ],
)
def test_each_mistake_is_reported_with_its_place(
    config: Mapping[str, Any], problem: Problem
) -> None:
    """A problem has the place, the value and the requirement; never a secret."""
    assert read_config(config, KEYS)[1] == [problem]


def test_all_mistakes_are_found_together() -> None:
    """One reading finds every problem."""
    assert len(read_config({"a": 1, "maxTokens": "x", "stop": 1}, KEYS)[1]) == 3


def test_a_provider_without_keys_suggests_none() -> None:
    """A provider without config suggests no keys."""
    assert read_config({"a": 1}, ())[1] == [
        Problem(".config.a", '"a" is not a key', "this provider takes no config")
    ]


def test_long_and_unusual_values_can_be_shown() -> None:
    """Shown values are short, and every value can be shown."""
    assert show("é" * 100) == '"' + "é" * 58 + "…"
    assert show({1, 2}) == "{1, 2}"
    assert config_path(3) == '.config["3"]'
