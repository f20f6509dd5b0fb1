# Separate from `cli.commands.simulate`: pure text of forecasts, without files and flags.
"""The text and the JSON of a forecast. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.kernel import WaitReason
from trioeval.report.activity import WAIT_WORDS, lane_names
from trioeval.report.counts import money
from trioeval.simulation.alternatives import AlternativeEffect, SuiteForecast
from trioeval.simulation.model import ProviderModel
from trioeval.simulation.run import Forecast, LaneForecast
from trioeval.simulation.suite import SimulatedSuite
from trioeval.text import counted

_COLUMNS = 60
"""Columns of the chart."""
_LEVELS = "▁▂▃▄▅▆▇█"
_NAME = 24
"""Characters of the name of a lane."""
_LEAST_WAIT = 0.05
"""Seconds; shorter waits are not shown."""


@attrs.frozen(kw_only=True)
class ForecastBounds:
    """The bounds that a user asks about; None asks nothing."""

    deadline: float | None = None
    """Seconds."""
    budget: float | None = None
    """US dollars."""

    def fits(self, forecast: SuiteForecast) -> bool:
        """Return whether every simulation is within the bounds."""
        return self._in_time(forecast) and self._in_budget(forecast)

    def lines(self, forecast: SuiteForecast) -> Iterator[str]:
        """Yield an answer for each bound, with the first setting that would keep to it."""
        if self.deadline is not None:
            room = abs(self.deadline - forecast.makespans[-1])
            bound = f"deadline   {duration_text(self.deadline)}"
            if self._in_time(forecast):
                yield f"{bound}: fits, {duration_text(room)} to spare"
            else:
                yield f"{bound}: does not fit, {duration_text(room)} too long{self._way(forecast)}"
        if self.budget is not None:
            room = abs(self.budget - forecast.forecast.money)
            bound = f"budget     {money(self.budget)}"
            if self._in_budget(forecast):
                yield f"{bound}: fits, {money(room)} to spare"
            else:
                yield f"{bound}: does not fit, {money(room)} too much"

    def _in_time(self, forecast: SuiteForecast) -> bool:
        return self.deadline is None or forecast.makespans[-1] <= self.deadline

    def _in_budget(self, forecast: SuiteForecast) -> bool:
        return self.budget is None or forecast.forecast.money <= self.budget

    def _way(self, forecast: SuiteForecast) -> str:
        deadline = math.inf if self.deadline is None else self.deadline
        ways = [one for one in forecast.comparisons if one.makespan <= deadline]
        if not ways:
            return ""
        first = min(ways, key=lambda one: (not one.is_setting, one.cost, one.makespan))
        return f"; it fits with {first.name}"


def forecast_lines(
    suite: SimulatedSuite,
    found: SuiteForecast,
    questions: ForecastBounds,
    notes: Sequence[str] = (),
) -> Iterator[str]:
    """Yield the forecast for people.

    Args:
        suite: The simulated suite.
        found: Its forecast.
        questions: The bounds to answer about.
        notes: Sentences about the models.
    """
    forecast = found.forecast
    lanes = counted(len(forecast.lanes), "lane")
    rows = counted(suite.all_rows, "row", grouped=True)
    requests = counted(forecast.requests, "request", grouped=True)
    yield f"{rows}, {requests} on {lanes}; nothing was called"
    for name, model in suite.models.items():
        yield f"  {name}: {model_text(model)}"
    yield from (f"note: {note}" for note in notes)
    yield ""
    yield f"makespan   {duration_text(forecast.makespan)}{_range(found.makespans)}"
    yield f"cost       {money(forecast.money)}"
    yield f"tokens     {forecast.tokens:,}"
    share = forecast.refused / max(1, forecast.requests)
    yield f"429s       {forecast.refused:,} of {forecast.requests:,} requests ({share:.1%})"
    if forecast.retried > forecast.refused:
        yield f"failures   {forecast.retried - forecast.refused:,} requests"
    if forecast.failed or forecast.not_run:
        yield f"rows       {forecast.done:,} done, {forecast.failed:,} failed, {forecast.not_run:,} not run"
    waits = [
        f"{WAIT_WORDS[WaitReason(why)]} {duration_text(seconds)}"
        for why, seconds in forecast.waits.items()
        if seconds >= _LEAST_WAIT
    ]
    yield f"waits      {', '.join(waits) or 'none'}"
    full = max((lane.full for lane in forecast.lanes.values()), default=0.0)
    share = min(1.0, full / (forecast.makespan or 1))
    yield f"full       all slots of a lane in use for {share:.0%} of the time"
    yield from questions.lines(found)
    yield ""
    yield from chart_lines(forecast)
    if found.comparisons:
        yield ""
        yield from _table(found, forecast)
    if found.recommendations:
        yield ""
        yield from (f"recommendation: {sentence}" for sentence in found.recommendations)


def model_text(model: ProviderModel) -> str:
    """Return a model in a few words.

    Example:
        >>> from trioeval.simulation.model import SampledCall
        >>> model_text(ProviderModel(calls=(SampledCall(0.5, 100, 20),), source="given figures"))
        'given figures, mean 0.5 s and 120 tokens'
    """
    text = f"{model.source}, mean {duration_text(model.mean_latency)} and {model.mean_tokens:,.0f} tokens"
    if model.failure_share:
        text += f", {model.failure_share:.1%} fail"
    if model.refusal_share:
        text += f", {model.refusal_share:.1%} refused at random"
    return text


def chart_lines(forecast: Forecast) -> Iterator[str]:
    """Yield a chart of the lanes over time: calls in flight, refusals and the main wait of each column."""
    if not forecast.makespan:
        return
    names = lane_names(forecast.lanes)
    yield f"lanes over time, {duration_text(forecast.makespan / _COLUMNS)} a column"
    for lane in forecast.lanes.values():
        columns = [*_columns(lane, forecast.makespan)]
        title = names[lane.name][:_NAME]
        limit = lane.spec.max_concurrency
        yield f"  {title}: in flight, up to {limit}"
        yield f"    {''.join(_level(column.in_flight, limit) for column in columns)}"
        if any(column.refused for column in columns):
            yield f"    {''.join('x' if column.refused else ' ' for column in columns)} 429"
        reasons = {column.why: None for column in columns if column.why is not None}
        for why in reasons:
            marks = "".join("-" if column.why == why else " " for column in columns)
            yield f"    {marks} waits: {WAIT_WORDS[WaitReason(why)]}"


def forecast_json(
    suite: SimulatedSuite,
    found: SuiteForecast,
    questions: ForecastBounds,
    notes: Sequence[str] = (),
) -> Mapping[str, Any]:
    """Return the forecast as JSON data."""
    forecast = found.forecast
    answers = {}
    if questions.deadline is not None:
        answers["fitsDeadline"] = attrs.evolve(questions, budget=None).fits(found)
    if questions.budget is not None:
        answers["fitsBudget"] = attrs.evolve(questions, deadline=None).fits(found)
    return {
        "rows": suite.all_rows,
        "done": forecast.done,
        "failed": forecast.failed,
        "notRun": forecast.not_run,
        "makespanS": forecast.makespan,
        "makespansS": [*found.makespans],
        "costUsd": forecast.money,
        "tokens": forecast.tokens,
        "requests": forecast.requests,
        "refused": forecast.refused,
        "failedRequests": forecast.retried - forecast.refused,
        "waitsS": dict(forecast.waits),
        **answers,
        "providers": {
            name: {
                "source": model.source,
                "meanLatencyS": model.mean_latency,
                "meanTokens": model.mean_tokens,
                "failureShare": model.failure_share,
                "refusalShare": model.refusal_share,
            }
            for name, model in suite.models.items()
        },
        "lanes": {lane.name: _lane_json(lane) for lane in forecast.lanes.values()},
        "alternatives": [_comparison_json(one) for one in found.comparisons],
        "recommendations": [*found.recommendations],
        "notes": [*notes],
    }


def duration_text(seconds: float) -> str:
    """Return a duration with two units at most.

    Example:
        >>> [duration_text(one) for one in (0, 0.0213, 2.5, 75, 3720, 200_000)]
        ['0 s', '0.0213 s', '2.5 s', '1 min 15 s', '1 h 2 min', '2 d 7 h']
    """
    if seconds < 59.95:  # noqa: PLR2004 - rounded, a minute
        return f"{seconds:.3g} s" if seconds < 10 else f"{seconds:.1f} s"  # noqa: PLR2004
    whole = round(seconds)
    for unit, size, part, least in (("d", 86_400, "h", 3600), ("h", 3600, "min", 60)):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // least} {part}"
    return f"{whole // 60} min {whole % 60} s"


def _range(makespans: Sequence[float]) -> str:
    first, last = duration_text(makespans[0]), duration_text(makespans[-1])
    if first == last:
        return ""
    return f" ({first} to {last} over {len(makespans)} simulations)"


@attrs.frozen
class _ChartColumn:
    """One column of the chart."""

    in_flight: int
    refused: int
    why: str | None
    """The reason of the longest wait, if it takes half of the column."""


def _columns(lane: LaneForecast, makespan: float) -> Iterator[_ChartColumn]:
    width = makespan / _COLUMNS
    for number in range(_COLUMNS):
        first = int(number * width / lane.bucket_s)
        last = max(first + 1, math.ceil((number + 1) * width / lane.bucket_s - 1e-9))
        several = lane.buckets[first:last]
        waits: dict[str, float] = {}
        for bucket in several:
            for why, seconds in bucket[5].items():
                if why == WaitReason.SLOT.value:
                    continue  # the first line shows it
                waits[why] = waits.get(why, 0.0) + seconds
        why = max(waits, key=lambda one: waits[one], default=None)
        if why is not None and waits[why] < len(several) * lane.bucket_s / 2:
            why = None
        yield _ChartColumn(
            max((bucket[0] for bucket in several), default=0),
            sum(bucket[3] for bucket in several),
            why,
        )


def _level(in_flight: int, limit: int) -> str:
    if not in_flight:
        return " "
    return _LEVELS[min(len(_LEVELS), math.ceil(in_flight * len(_LEVELS) / limit)) - 1]


def _table(found: SuiteForecast, forecast: Forecast) -> Iterator[str]:
    head = ("setting", "makespan", "change", "cost", "429s")
    share = forecast.refused / max(1, forecast.requests)
    now = ("as it is", duration_text(forecast.makespan), "", money(forecast.money), f"{share:.1%}")
    lines = [head, now]
    lines += [
        (
            one.name,
            duration_text(one.makespan),
            f"{one.ratio - 1:+.0%}",
            money(one.money),
            f"{one.refused_share:.1%}",
        )
        for one in found.comparisons
    ]
    widths = [max(len(line[place]) for line in lines) for place in range(len(head))]
    for line in lines:
        first, *rest = line
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()


def _comparison_json(one: AlternativeEffect) -> Mapping[str, Any]:
    return {
        "setting": one.name,
        "isSetting": one.is_setting,
        "makespanS": one.makespan,
        "ratio": one.ratio,
        "costUsd": one.money,
        "refusedShare": one.refused_share,
        "workers": one.workers,
    }


def _lane_json(lane: LaneForecast) -> Mapping[str, Any]:
    return {
        "maxConcurrency": lane.spec.max_concurrency,
        "rpm": lane.spec.rpm,
        "tpm": lane.spec.tpm,
        "requests": lane.requests,
        "refused": lane.refused,
        "failed": lane.failed,
        "tokens": lane.tokens,
        "costUsd": lane.money,
        "waitsS": dict(lane.waits),
        "fullS": lane.full,
        "bucketS": lane.bucket_s,
        "buckets": [*lane.buckets],
    }
