"""Alternatives and recommendations: the right settings are found for the provider's real limits."""

import pytest
from test_laws import limited, model, simulated

from trioeval.simulation.alternatives import (
    AlternativeEffect,
    SuiteForecast,
    alternatives,
    forecast_suite,
    recommend,
)
from trioeval.simulation.model import ServerLimits
from trioeval.simulation.report import ForecastBounds, chart_lines, duration_text
from trioeval.simulation.run import simulate
from trioeval.simulation.suite import SimulatedSuite


def names(suite: SimulatedSuite) -> list[str]:
    return [one.name for one in alternatives(suite, simulate(suite))]


def test_alternatives_follow_from_lane_and_limits() -> None:
    """Rates are varied where there are any; a rate that the lane does not know can be declared."""
    widths = ["maxConcurrency 2", "maxConcurrency 8", "maxConcurrency 16"]
    plain = simulated(8, maxConcurrency=4)
    more = ["2 keys", "2 workers", "4 workers"]
    assert names(plain) == [*widths, *more]
    known = limited(plain, ServerLimits(rpm=60, tpm=9000))
    tiers = ["a tier of 120 rpm", "a tier of 18000 tpm"]
    assert names(known) == [*widths, "rpm 60", "tpm 9000", *tiers, *more]
    paced = simulated(8, maxConcurrency=4, rpm=600)
    assert names(paced) == [*widths, "a tier of 1200 rpm", *more]
    bursting = limited(paced, ServerLimits(rpm=600))
    assert names(bursting) == [*widths, "a tier of 1200 rpm", "burst 4", *more]


def test_a_wider_lane_is_recommended_to_an_unlimited_provider() -> None:
    """It is the only setting that helps; twice the width takes half of the time."""
    found = forecast_suite(simulated(160, maxConcurrency=4))
    assert found.recommendations[0] == "set maxConcurrency 16: the run takes 74% less time"
    ratios = {one.name: one.ratio for one in found.comparisons}
    assert ratios["maxConcurrency 8"] == pytest.approx(0.5, abs=0.03)
    assert ratios["2 keys"] == pytest.approx(0.5, abs=0.03)


@pytest.mark.slow
def test_a_declared_rate_is_recommended_against_refusals() -> None:
    """The run takes as long, and nothing is refused."""
    suite = limited(
        simulated(100, maxConcurrency=16), ServerLimits(rpm=120, burst=2, reports=False)
    )
    found = forecast_suite(suite)
    assert found.forecast.refused > 0
    (effect,) = [one for one in found.comparisons if one.name == "rpm 120"]
    assert effect.refused_share == 0
    assert any(sentence.startswith("set rpm 120: ") for sentence in found.recommendations)


@pytest.mark.slow
def test_nothing_is_recommended_to_a_lane_at_its_rate() -> None:
    """Only another account helps; a smaller width suffices."""
    suite = simulated(100, model(0.5, 0.1), maxConcurrency=8, rpm=120)
    found = forecast_suite(suite).recommendations
    assert found[:2] == [
        "no other setting of the lanes makes the run noticeably faster",
        "maxConcurrency 4 suffices: the run takes as long",
    ]
    assert found[2].startswith("with another account: ")


@pytest.mark.slow
def test_a_large_suite_is_compared_by_its_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ratio of the part applies to the makespan of the whole."""
    monkeypatch.setattr("trioeval.simulation.alternatives.MOST_ROWS", 100)
    whole = forecast_suite(simulated(300, maxConcurrency=4))
    (double,) = [one for one in whole.comparisons if one.name == "maxConcurrency 8"]
    assert double.makespan == pytest.approx(whole.forecast.makespan / 2, rel=0.06)
    assert double.money == pytest.approx(whole.forecast.money, rel=0.01)


def test_the_first_way_that_fits_is_the_smallest_change() -> None:
    """Settings come before other accounts."""
    forecast = simulate(simulated(40, maxConcurrency=4))
    effects = [
        AlternativeEffect(name, is_setting, cost, at, at / forecast.makespan, 0.0, 0.0)
        for name, is_setting, cost, at in (
            ("2 keys", False, 0, 1.0),
            ("maxConcurrency 16", True, 4, 1.0),
            ("maxConcurrency 8", True, 2, 2.0),
            ("maxConcurrency 2", True, -1, 90.0),
        )
    ]
    found = SuiteForecast(
        forecast=forecast, makespans=[8.0], comparisons=effects, recommendations=()
    )
    (line,) = ForecastBounds(deadline=3.0).lines(found)
    assert line == "deadline   3 s: does not fit, 5 s too long; it fits with maxConcurrency 8"
    assert recommend(forecast, effects[2:])[0].startswith("set maxConcurrency 8: ")


def test_workers_pay_only_if_one_process_computes_most_of_the_time() -> None:
    """Rates hold over all workers, and each has the width of the lane."""
    found = forecast_suite(simulated(160, maxConcurrency=4))
    assert found.recommendations[-1] == "one process suffices: it computes about 0.5% of the time"
    effects = {one.name: one for one in found.comparisons}
    assert effects["2 workers"].makespan == effects["maxConcurrency 8"].makespan
    fast = simulated(320, model(0.01, 0), maxConcurrency=32)
    (*_, sentence) = forecast_suite(fast).recommendations
    assert sentence == (
        "run it on 5 workers (--on local:5): one process would compute about 320% of the time"
    )


def test_the_chart_shows_refusals_and_waits_where_they_happen() -> None:
    """Each line has 60 columns; a full lane is a full block."""
    suite = limited(simulated(150, maxConcurrency=8), ServerLimits(rpm=60))
    head, title, flight, refusals, *waits = chart_lines(simulate(suite))
    assert head.startswith("lanes over time, ")
    assert title == "  m: in flight, up to 8"
    assert flight[4] == "█"
    assert refusals.endswith(" 429")
    assert "x" in refusals[4:64]
    assert any(line.endswith(" waits: 429") for line in waits)
    assert {len(line.split(" waits: ")[0].split(" 429")[0]) for line in waits} <= {64}


def test_durations_have_two_units() -> None:
    """A minute is not 60.0 s."""
    assert [duration_text(one) for one in (59.98, 60, 3599.6, 3600)] == [
        "1 min 0 s",
        "1 min 0 s",
        "1 h 0 min",
        "1 h 0 min",
    ]
