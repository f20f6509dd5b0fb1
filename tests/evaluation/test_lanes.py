"""The lanes of a suite, and the lanes of a program: one set of names."""

from typing import Any

import attrs
import pytest

from trioeval import LaneSpec, SuiteError, parse_suite, prepare
from trioeval.run import make_lanes
from trioeval.suite import LaneSettings
from trioeval.suite.model import WIDTH, EvaluateOptions

ONLY_IN_SUITES = {"key", "delay", "overload_statuses", "limits"}
"""The name of the lane, a gap in milliseconds, and two settings that are not about the lane itself."""
FROM_OPTIONS = {"max_concurrency": WIDTH, "min_gap": EvaluateOptions().delay / 1000}
"""The values of keys that take those of the suite by default."""
VALUES: dict[str, Any] = {
    "max_concurrency": 9,
    "rpm": 30.0,
    "burst": 2,
    "tpm": 600.0,
    "token_burst": 7,
    "min_gap": 0.25,
    "adaptive": "latency",
    "slow_start": True,
    "retries": 5,
    "max_retries": 6,
    "retry_delay": 0.75,
    "refusal_delay": 1.5,
    "max_retry_delay": 40.0,
    "patience": 20.0,
    "breaker_threshold": 4,
    "oversize": "refuse",
}
"""A value of each setting that is not its default."""


def lane_of(*lanes: dict[str, Any], **options: Any) -> LaneSpec:
    """Return the lane of suites that configure it."""
    suites = [
        prepare(
            parse_suite({"providers": [{"id": "echo", "lane": lane}], "evaluateOptions": options})
        )
        for lane in lanes
    ]
    return make_lanes(*suites)["echo"].spec


def problems_of(lane: dict[str, Any]) -> list[str]:
    """Return the problems of a lane."""
    with pytest.raises(SuiteError) as caught:
        lane_of(lane)
    return [str(problem) for problem in caught.value.problems]


def test_a_lane_has_the_same_settings_in_programs_and_in_suites() -> None:
    """Names, order and defaults are equal; suites have the listed keys besides."""
    spec = {field.name: field.default for field in attrs.fields(LaneSpec)}
    assert spec.pop("name") is attrs.NOTHING
    settings = {field.name: field.default for field in attrs.fields(LaneSettings)}
    assert settings.keys() - spec.keys() == ONLY_IN_SUITES
    assert [name for name in settings if name not in ONLY_IN_SUITES] == list(spec)
    for name, default in spec.items():
        if name in FROM_OPTIONS:
            assert (settings[name], FROM_OPTIONS[name]) == (None, default)
        else:
            assert (name, settings[name]) == (name, default)


def test_every_setting_of_a_suite_is_that_of_its_lane() -> None:
    """No setting has another unit, or is lost on its way."""
    spec = LaneSpec("echo", **VALUES)
    assert [name for name in VALUES if getattr(spec, name) == getattr(LaneSpec("echo"), name)] == []
    assert len(VALUES) == len(attrs.fields(LaneSpec)) - 1
    assert lane_of(VALUES) == spec
    assert lane_of({}) == LaneSpec("echo")


@pytest.mark.parametrize("name", [name for name in VALUES if name != "adaptive"])
def test_the_stricter_setting_of_two_suites_applies(name: str) -> None:
    """It does not depend on their order."""
    one, other = {name: VALUES[name]}, {name: getattr(LaneSpec("echo"), name)}
    other = {key: value for key, value in other.items() if value is not None}
    merged = lane_of(one, other)
    assert lane_of(other, one) == merged
    assert merged in (lane_of(one), lane_of(other))


def test_a_gap_is_in_seconds_or_in_milliseconds() -> None:
    """The largest gap of a lane and its entries applies; that of the options, if they have none."""
    assert lane_of({"minGap": 0.25}).min_gap == lane_of({"delay": 250}).min_gap == 0.25
    assert lane_of({"minGap": 0}, delay=500).min_gap == 0
    assert lane_of({}, delay=500).min_gap == 0.5
    entries = [{"id": "echo", "lane": {"minGap": 0.5}, "delay": 100}, {"id": "echo", "delay": 900}]
    for some, gap in ((entries[:1], 0.5), (entries, 0.9)):
        assert prepare(parse_suite({"providers": some})).lane_specs[0].min_gap == gap


def test_a_gap_is_given_once() -> None:
    """Two spellings of one setting may contradict each other."""
    (problem,) = problems_of({"delay": 5, "minGap": 0.005})
    assert problem == (
        "$.providers[0].lane.delay: delay and minGap are the same gap, in milliseconds and in seconds"
        "\n  write one of them"
    )


def test_a_misspelt_key_of_a_lane_is_refused_with_the_right_one() -> None:
    """A similar key is suggested."""
    (problem,) = problems_of({"lanePatience": 3})
    assert 'did you mean "patience"?' in problem
