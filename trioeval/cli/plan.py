"""`--plan`: what a run would do, without asking anybody."""

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from trioeval.cli.plan_agents import agent_lines, turns_line
from trioeval.cli.plan_datasets import dataset_lines, rows_later
from trioeval.cli.plan_limits import counted_against, limit_lines, limit_seconds
from trioeval.grading.judge_calls import Count
from trioeval.kernel import LaneSpec
from trioeval.providers.metering import most_money
from trioeval.report import inert
from trioeval.suite.models import EvaluateOptions
from trioeval.suite.sizes import TooManyRowsError, stretch_sizes
from trioeval.tasks import PreparedSuite, PreparedTask
from trioeval.tasks.judge_plan import planned_judging

_COLUMNS = 200  # columns of a task that are named
_MINUTE = 60  # seconds
_SAMPLE = 1000  # rows of a task whose prompts are looked at


def plan_lines(prepared: PreparedSuite) -> Iterator[str]:
    """Rows, columns, and for each lane its rows, its limits and the time that they take at the least.

    Calls to judges are told with their lanes, and behind them the limits that are shared with others.
    """
    rows, cells = Counter[str](), Counter[str]()
    judging: dict[str, Count] = {}
    wanted = {
        part.id: columns.rows
        for part in prepared.parts
        if (columns := part.prepared.suite.columns) is not None
    }
    for part in prepared.parts:
        settings = part.prepared.suite.columns
        if settings is not None:
            yield from dataset_lines(part, settings, cells)
            continue
        yield from _part_lines(part, rows, wanted)
        if (agents := part.prepared.suite.agents) is not None:
            yield from agent_lines(part, agents)
        if part.settle is not None:
            continue
        for name, count in planned_judging(part.prepared).items():
            judging[name] = judging.get(name, Count()) + count
    seconds, calls = [], Counter[str]()
    quotas = prepared.lane_quotas if prepared.suite.quota is not None else {}
    for spec in prepared.lane_specs:
        judged = judging.get(spec.name, Count())
        calls[spec.name] = rows[spec.name] + cells[spec.name] + judged.usual
        if calls[spec.name]:
            told = f"{_calls(rows[spec.name], judged, cells[spec.name])}, {_limits(spec)}"
            shared = counted_against(quotas.get(spec.name, ()))
            yield f"  lane {inert(spec.name, 60)}: {told}{shared}"
            seconds.append(least_seconds(spec, calls[spec.name]))
    if prepared.suite.quota is not None:
        yield from limit_lines(prepared.suite.quota, quotas)
        seconds += limit_seconds(prepared.suite.quota, quotas, calls)
    if (turns := turns_line(prepared.suite.run_limits)) is not None:
        yield turns
    yield from (f"not known before the run: {inert(makes, 200)}" for makes in prepared.unknown)
    yield from _use_lines(prepared.parts, judged=bool(judging))
    yield from _bound_lines(prepared.suite.evaluate_options)
    yield _duration(seconds, shares=bool(quotas))


def size_lines(error: TooManyRowsError) -> Iterator[str]:
    """What a plan tells of a suite that is too large to be run."""
    yield from str(error).splitlines()
    yield "nothing was asked, and nothing else was looked at; --plan --max-rows 0 tells all of it"


def _part_lines(
    part: PreparedTask, rows: Counter[str], wanted: Mapping[str | None, int | None]
) -> Iterator[str]:
    """What one task asks; its rows are added to those of the lanes, as far as they are known."""
    prepared = part.prepared
    steps = prepared.steps
    tests = 0
    for stretch, several in stretch_sizes(steps) if part.settle is None else ():
        shape = stretch.shape
        rounds = several * shape.repeats * shape.chosen
        tests += rounds
        for place in shape.columns:
            own = shape.provider_index
            asked = steps.columns[place].provider_index if own is None else own
            rows[prepared.lane_names[asked]] += rounds
    after = f", after {', '.join(part.depends_on)}" if part.depends_on else ""
    task = "" if part.id is None else f"task {part.id}{after}: "
    size = (
        f"{len(steps)} rows of {tests} tests" if part.settle is None else rows_later(part, wanted)
    )
    yield f"{task}{size} in {len(steps.columns)} columns"
    if (why := prepared.why_in_order) is not None:
        yield f"  one row at a time, because {inert(why, 200)}"
    for column in steps.columns[:_COLUMNS]:
        entry = steps.providers[column.provider_index]
        name = inert(entry.label or entry.id, 60)
        yield f"  column {column.prompt_idx}: {name} | {inert(column.prompt.label, 60)}"
    if (more := len(steps.columns) - _COLUMNS) > 0:
        yield f"  and {more} more columns"


def _calls(rows: int, judged: Count, cells: int = 0) -> str:
    """Rows and cells of datasets that are asked for, and what judges are asked.

    Example:
        >>> _calls(2, Count(3, 6)), _calls(0, Count(1, math.inf))
        ('2 rows, 3 judge calls (at most 6)', '1 judge calls or more')
        >>> _calls(0, Count(), 5)
        '5 cells'
    """
    found = [f"{rows} rows"] if rows else []
    found += [f"{cells} cells"] if cells else []
    if judged.usual:
        bound = f" (at most {judged.most:.0f})" if judged.most > judged.usual else ""
        known = math.isfinite(judged.most)
        found.append(f"{judged.usual} judge calls{bound if known else ' or more'}")
    return ", ".join(found)


def _bound_lines(options: EvaluateOptions) -> Iterator[str]:
    """What bounds the whole run."""
    if options.max_total_concurrency is not None:
        yield f"{options.max_total_concurrency} calls at once on all lanes together"
    budget = options.budget
    """What the run may use, whatever it wants."""
    if budget is None:
        return
    names = {"requests": "requests", "tokens": "tokens", "usd": "US dollars"}
    said = {name: getattr(budget, name) for name in names}
    bounds = [f"{said[name]:.12g} {unit}" for name, unit in names.items() if said[name] is not None]
    if bounds:
        yield f"the budget, for rows and judges together: {', '.join(bounds)}"


def _use_lines(parts: Sequence[PreparedTask], *, judged: bool) -> Iterator[str]:
    """What services may use, by their bounds and the length of what prompts are made of."""
    tokens, money, priced, paid = 0.0, 0.0, False, False
    for part in parts:
        # Nobody knows how many rows there will be, or how often an agent will ask.
        if part.settle is not None or part.prepared.suite.agents is not None:
            continue
        steps, metering = part.prepared.steps, [spec.metering for spec in part.prepared.specs]
        looked_at = min(len(steps), _SAMPLE)
        for place in range(looked_at):
            step = steps[place * len(steps) // looked_at]
            known = metering[step.provider_index]
            if not known.is_paid and known.price is None and known.most_cost is None:
                continue
            text = step.template + "".join(v for v in step.vars.values() if isinstance(v, str))
            prompt, weight = known.overhead + known.count(text), len(steps) / looked_at
            tokens += weight * (prompt + known.longest_reply)
            money += weight * most_money(known, prompt, known.longest_reply)
            is_priced = known.price is not None or known.most_cost is not None
            priced = priced or is_priced
            paid = paid or not is_priced
    if tokens:
        cost = f", at most about {money:.2f} US dollars" if priced else ""
        unknown = ("; some prices" if priced else "; prices") + " are not known" if paid else ""
        judges = "; what judges use is not among that" if judged else ""
        yield f"at most about {tokens:.0f} tokens{cost}{unknown}{judges}"


def least_seconds(spec: LaneSpec, calls: int) -> float:
    """How long a lane takes at the least to start some calls, by its rate and its gap.

    Example:
        >>> least_seconds(LaneSpec("a", 4, rpm=60, burst=2), 12)
        10.0
    """
    by_rate = max(0, calls - spec.burst) * _MINUTE / spec.rpm if spec.rpm else 0.0
    return max(by_rate, max(0, calls - 1) * spec.min_gap)


def _limits(spec: LaneSpec) -> str:
    found = [f"{spec.width} at once"]
    found += [f"{spec.rpm:g} requests a minute"] if spec.rpm else []
    found += [f"{spec.tpm:g} tokens a minute"] if spec.tpm else []
    found += [f"{1000 * spec.min_gap:g} ms between two"] if spec.min_gap else []
    return ", ".join(found)


def _duration(seconds: Sequence[float], *, shares: bool) -> str:
    longest = max(seconds, default=0.0)
    if not longest and shares:
        return "the run takes as long as its calls and the shared limits let it; nothing was asked"
    if not longest:
        return "no lane has a rate: the run takes as long as its calls; nothing was asked"
    shown = dt.timedelta(seconds=round(longest, 1))
    return (
        f"the rates make it last {str(shown).removesuffix('00000')} at the least; nothing was asked"
    )
