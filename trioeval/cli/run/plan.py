"""`--plan`: what a run would do, without calling a provider."""

import datetime as dt
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from trioeval.agent.model import AgentSettings, case_of
from trioeval.columns.graph import ColumnGraph, Producer, RowGrouping
from trioeval.columns.model import (
    Column,
    ColumnsSettings,
    EmbeddingColumn,
    JudgeColumn,
    LlmColumn,
    SeedColumns,
    folder_of,
)
from trioeval.columns.types import producers_of
from trioeval.grading.judge_calls import Count
from trioeval.kernel import LaneSpec
from trioeval.limits.model import LimitKey, SharedLimit
from trioeval.providers.metering import most_money
from trioeval.providers.programs import AGENT_RUNS
from trioeval.report.activity import lane_names
from trioeval.report.columns import shown_path
from trioeval.run import PreparedSuite, PreparedTask
from trioeval.run.judge_plan import planned_judging
from trioeval.suite.limit_form import known_limits
from trioeval.suite.model import EvaluateOptions, LimitsSettings, RunLimits
from trioeval.suite.sizes import TooManyRowsError, list_notes, stretch_sizes
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

# The lines of agent tasks.


_NAME = 60  # characters of a name


def agent_lines(part: PreparedTask, settings: AgentSettings) -> Iterator[str]:
    """Yield the bounds of a task's agents."""
    prepared = part.prepared
    waiting = 0
    for stretch, tests in stretch_sizes(prepared.steps):
        several = prepared.steps.tests[stretch.first_place : stretch.first_place + tests]
        found = (case_of(test) for test in several)
        waits = sum(case is not None and bool(case.depends_on) for case in found)
        waiting += waits * stretch.shape.steps
    workspace = (
        "empty"
        if settings.workspace is None
        else escape_control_characters(settings.workspace, _NAME)
    )
    cases = counted(waiting, "case waits", "cases wait")
    dependent = f"; {cases} for others" if waiting else ""
    done_file = escape_control_characters(settings.done_file, _NAME)
    yield f"  workspace {workspace}, done with {done_file}{dependent}"
    lanes = {prepared.lane_names[column.provider_index] for column in prepared.steps.columns}
    yield f"  a case: {', '.join(_bounds(settings, has_models=bool(lanes - {AGENT_RUNS})))}"


def _bounds(settings: AgentSettings, *, has_models: bool) -> Iterator[str]:
    yield f"at most {settings.max_restarts} attempts"
    if settings.attempt_timeout is not None:
        yield f"{settings.attempt_timeout:g} seconds each"
    if has_models:
        yield f"{settings.max_steps} replies of a model each"
    if settings.max_tokens is not None:
        yield f"none after {settings.max_tokens} tokens"
    if settings.max_cost is not None:
        yield f"none after {settings.max_cost:g} US dollars"


def turns_line(limits: RunLimits) -> str | None:
    """Return the line about how many cases run at once; None if that is not bounded.

    Example:
        >>> turns_line(RunLimits(max_concurrent_root_tasks=2))
        'agent cases: at most 2 at once, over all programs that share the database'
    """
    most = limits.max_concurrent_root_tasks
    if not most:
        return None
    return f"agent cases: at most {most} at once, over all programs that share the database"


# The lines of datasets, and of tests that are their rows.


_PLAN_DATASETS_NAME = 60  # characters of a name
_SCOPES = {"cell": "a job a row", "full": "a job a group", "scratch": "a job a group, from nothing"}


def dataset_lines(
    part: PreparedTask, settings: ColumnsSettings, names: Mapping[str, str], cells: Counter[str]
) -> Iterator[str]:
    """Yield the rows and groups of a task's dataset, and its columns in the order of their generation.

    Args:
        part: The task.
        settings: The settings of its dataset.
        names: The displayed name of each lane.
        cells: Receives the minimum number of calls of its columns, by lane.
    """
    graph = ColumnGraph.of(producers_of(settings))
    after = f", after {', '.join(part.depends_on)}" if part.depends_on else ""
    yield f"task {escape_control_characters(part.id, _PLAN_DATASETS_NAME)}{after}: {_size(settings, graph)}"
    folder = folder_of(settings, part.id or "dataset")
    yield f"  files in {shown_path(folder, folder.cwd())}, {settings.format}"
    columns = {column.name: column for column in settings.columns}
    for producer in graph.producers:
        column = columns[producer.name]
        place = _provider(column)
        lane = ""
        if place is not None:
            name = part.prepared.lane_names[place]
            lane = f" on lane {escape_control_characters(names[name], _PLAN_DATASETS_NAME)}"
            cells[name] += settings.rows or 0
        yield f"  column {_names(producer)}: {column.kind}, {_SCOPES[producer.scope]}{lane}"


def _size(settings: ColumnsSettings, graph: ColumnGraph) -> str:
    if settings.rows is None:
        return f"a dataset; {_rows_of(settings)}"
    grouping = RowGrouping(settings.group_size, (settings.rows,))
    jobs = graph.jobs(settings.rows, len(grouping))
    return f"a dataset of {settings.rows} rows in {len(grouping)} groups, {jobs} jobs"


def _rows_of(settings: ColumnsSettings) -> str:
    """Return where the number of rows comes from that the suite does not set."""
    seed = next(column for column in settings.columns if isinstance(column, SeedColumns))
    if seed.file is not None:
        return (
            f"as many rows as {escape_control_characters(seed.file.name, _PLAN_DATASETS_NAME)} has"
        )
    return f"rows known when {escape_control_characters(seed.from_task or '', _PLAN_DATASETS_NAME)} has ended"


def rows_later(part: PreparedTask, requested: Mapping[str | None, int | None]) -> str:
    """Return the number of rows, as far as it is known, of a task whose tests come from a dataset.

    Args:
        part: The task.
        requested: The requested number of rows of each dataset, where it is known.
    """
    source = part.prepared.suite.rows_of
    if source is None:
        return ""
    bounds = [one for one in (source.limit, requested.get(source.task)) if one is not None]
    each = len(part.prepared.steps)
    most = f" (at most {min(bounds) * each})" if bounds else ""
    return f"rows known when {escape_control_characters(source.task, _PLAN_DATASETS_NAME)} has ended{most}"


def _provider(column: Column) -> int | None:
    """Return the index of the provider of a column; None if it calls none."""
    match column:
        case LlmColumn() | JudgeColumn():
            return column.asking.provider
        case EmbeddingColumn():
            return column.provider
        case _:
            return None


def _names(producer: Producer) -> str:
    return ", ".join(
        escape_control_characters(name, _PLAN_DATASETS_NAME) for name in producer.outputs
    )


# The lines of shared limits.


_KEY = 80  # characters of a key
_ONE_EACH = frozenset({"requests", "slots"})
_UNITS = {"requests": "requests", "tokens": "tokens", "cost_micro": "millionths of a US dollar"}
"""The unit names of limits that are not held, by unit."""


def counted_against(keys: Sequence[LimitKey]) -> str:
    """Return the shared limits of a lane as text, which is empty if there are none.

    Example:
        >>> counted_against([LimitKey(key="m:rpm", unit="requests")])
        ', counts against m:rpm'
    """
    return (
        f", counts against {', '.join(escape_control_characters(one.key, _KEY) for one in keys)}"
        if keys
        else ""
    )


def limit_lines(settings: LimitsSettings, lanes: Mapping[str, Sequence[LimitKey]]) -> Iterator[str]:
    """Yield a line for each shared limit of a lane."""
    uses = {use.key: use for keys in lanes.values() for use in keys}
    known = (known_limits(settings) if settings.backend == "memory" else None) or {}
    for key, use in uses.items():
        if settings.backend != "memory":
            state = f"kept by {'Redis' if settings.backend == 'redis' else 'a server'}"
        elif key in known:
            state = _words(known[key], use)
        else:
            state = "not defined"
        yield f"  limit {escape_control_characters(key, _KEY)}: {state}"


def limit_seconds(
    settings: LimitsSettings, lanes: Mapping[str, Sequence[LimitKey]], calls: Mapping[str, int]
) -> Iterator[float]:
    """Yield the minimum duration of a run's calls for each limit in memory, from their number alone.

    Example:
        >>> limit = SharedLimit(key="m:rpm", kind="rolling", capacity=2, window=60.0)
        >>> settings = LimitsSettings(define=(limit,))
        >>> use = LimitKey(key="m:rpm", unit="requests")
        >>> list(limit_seconds(settings, {"a": [use], "b": [use]}, {"a": 3, "b": 2}))
        [120.0]
    """
    if settings.backend != "memory":
        return
    known, requested = known_limits(settings) or {}, Counter[str]()
    for lane, keys in lanes.items():
        requested.update({use.key: calls[lane] for use in keys if use.unit in _ONE_EACH})
    for key, count in requested.items():
        limit = known.get(key)
        if count and limit is not None and limit.window is not None:
            yield math.floor((count - 1) / limit.capacity) * limit.window


def _words(limit: SharedLimit, use: LimitKey) -> str:
    if limit.kind == "concurrency":
        return f"{limit.capacity} at once"
    amount = f"{limit.capacity} {_UNITS.get(use.unit, 'calls')}"
    if limit.window is not None:
        return f"{amount} in any {limit.window:g} seconds"
    return amount if limit.reset is None else f"{amount} every {limit.reset:g} seconds"


_COLUMNS = 200  # listed columns of a task
_MINUTE = 60  # seconds
_SAMPLE = 1000  # sampled rows of a task whose prompts are counted


def plan_lines(prepared: PreparedSuite) -> Iterator[str]:
    """Yield the rows and columns of tasks, then the rows, limits and minimum duration of each lane.

    Lanes include their judge calls and are followed by the shared limits.
    """
    names = lane_names((spec.name for spec in prepared.lane_specs), prepared.lane_labels)
    rows, cells = Counter[str](), Counter[str]()
    judging: dict[str, Count] = {}
    requested = {
        part.id: own.rows
        for part in prepared.parts
        if isinstance(own := part.prepared.suite.settings, ColumnsSettings)
    }
    for part in prepared.parts:
        settings = part.prepared.suite.settings
        if isinstance(settings, ColumnsSettings):
            yield from dataset_lines(part, settings, names, cells)
            continue
        yield from _part_lines(part, rows, requested)
        yield from (
            f"  {escape_control_characters(note, 200)}" for note in list_notes(part.prepared.steps)
        )
        if isinstance(settings, AgentSettings):
            yield from agent_lines(part, settings)
        if part.prepare_with_rows is not None:
            continue
        for name, count in planned_judging(part.prepared).items():
            judging[name] = judging.get(name, Count()) + count
    seconds, calls = [], Counter[str]()
    limits = prepared.lane_limits if prepared.suite.limits is not None else {}
    for spec in prepared.lane_specs:
        judged = judging.get(spec.name, Count())
        calls[spec.name] = rows[spec.name] + cells[spec.name] + judged.usual
        if calls[spec.name]:
            work = f"{_calls(rows[spec.name], judged, cells[spec.name])}, {_limits(spec)}"
            shared = counted_against(limits.get(spec.name, ()))
            yield f"  lane {escape_control_characters(names[spec.name], 60)}: {work}{shared}"
            seconds.append(least_seconds(spec, calls[spec.name]))
    if prepared.suite.limits is not None:
        yield from limit_lines(prepared.suite.limits, limits)
        seconds += limit_seconds(prepared.suite.limits, limits, calls)
    if (turns := turns_line(prepared.suite.run_limits)) is not None:
        yield turns
    yield from (
        f"not known before the run: {escape_control_characters(makes, 200)}"
        for makes in prepared.unknown
    )
    yield from _use_lines(prepared.parts, judged=bool(judging))
    yield from _bound_lines(prepared.suite.evaluate_options)
    yield _duration(seconds, shares=bool(limits))


def size_lines(error: TooManyRowsError) -> Iterator[str]:
    """Yield the plan of a suite that has too many rows to run."""
    yield from str(error).splitlines()
    yield "no provider was called, and nothing else was checked; --plan --max-rows 0 shows the whole plan"


def _part_lines(
    part: PreparedTask, rows: Counter[str], requested: Mapping[str | None, int | None]
) -> Iterator[str]:
    """Yield the lines of one task, and add its rows to those of its lanes as far as they are known."""
    prepared = part.prepared
    steps = prepared.steps
    tests = 0
    conversations: dict[str, int] = {}
    for stretch, several in stretch_sizes(steps) if part.prepare_with_rows is None else ():
        shape = stretch.shape
        rounds = several * shape.repeats * shape.chosen
        tests += rounds
        for place in shape.columns:
            own = shape.provider_index
            called = steps.columns[place].provider_index if own is None else own
            rows[prepared.lane_names[called]] += rounds
        if shape.user is not None:
            lane = prepared.lane_names[shape.user.place]
            conversations[lane] = conversations.get(lane, 0) + rounds * len(shape.columns)
    after = f", after {', '.join(part.depends_on)}" if part.depends_on else ""
    task = "" if part.id is None else f"task {part.id}{after}: "
    size = (
        f"{counted(len(steps), 'row')} of {counted(tests, 'test')}"
        if part.prepare_with_rows is None
        else rows_later(part, requested)
    )
    yield f"{task}{size} in {counted(len(steps.columns), 'column')}"
    if (why := prepared.why_in_order) is not None:
        yield f"  one row at a time, because {escape_control_characters(why, 200)}"
    for lane, count in conversations.items():
        user = f"a simulated user on lane {escape_control_characters(lane, 60)}"
        yield f"  {counted(count, 'row is a conversation', 'rows are conversations')} with {user}"
    for column in steps.columns[:_COLUMNS]:
        entry = steps.providers[column.provider_index]
        name = escape_control_characters(entry.name, 60)
        yield f"  column {column.prompt_idx}: {name} | {escape_control_characters(column.prompt.label, 60)}"
    if (more := len(steps.columns) - _COLUMNS) > 0:
        yield f"  and {counted(more, 'more column')}"


def _calls(rows: int, judged: Count, cells: int = 0) -> str:
    """Return the numbers of rows, cells of datasets and judge calls as text.

    Example:
        >>> _calls(2, Count(3, 6)), _calls(0, Count(1, math.inf))
        ('2 rows, 3 judge calls (at most 6)', '1 judge call or more')
        >>> _calls(0, Count(), 5)
        '5 cells'
    """
    found = [counted(rows, "row")] if rows else []
    found += [counted(cells, "cell")] if cells else []
    if judged.usual:
        bound = f" (at most {judged.most:.0f})" if judged.most > judged.usual else ""
        known = math.isfinite(judged.most)
        found.append(f"{counted(judged.usual, 'judge call')}{bound if known else ' or more'}")
    return ", ".join(found)


def _bound_lines(options: EvaluateOptions) -> Iterator[str]:
    """Yield the bounds of the whole run."""
    if options.max_total_concurrency is not None:
        yield f"{options.max_total_concurrency} calls at once on all lanes together"
    budget = options.budget
    if budget is None:
        return
    names = {"requests": "requests", "tokens": "tokens", "usd": "US dollars"}
    amounts = {name: getattr(budget, name) for name in names}
    bounds = [
        f"{amounts[name]:.12g} {unit}" for name, unit in names.items() if amounts[name] is not None
    ]
    if bounds:
        yield f"the budget, for rows and judges together: {', '.join(bounds)}"


def _use_lines(parts: Sequence[PreparedTask], *, judged: bool) -> Iterator[str]:
    """Yield the most that services may use, from their bounds and the lengths of templates and variables."""
    tokens, money, priced, is_unpriced = 0.0, 0.0, False, False
    for part in parts:
        # The number of rows, or of calls of an agent, is not known.
        if part.prepare_with_rows is not None or isinstance(
            part.prepared.suite.settings, AgentSettings
        ):
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
            is_unpriced = is_unpriced or not is_priced
    if tokens:
        cost = f", at most about {money:.2f} US dollars" if priced else ""
        unknown = (
            ("; some prices" if priced else "; prices") + " are not known" if is_unpriced else ""
        )
        judges = ", without judges" if judged else ""
        yield f"at most about {tokens:.0f} tokens{cost}{unknown}{judges}"


def least_seconds(spec: LaneSpec, calls: int) -> float:
    """Return the minimum seconds in which a lane starts some calls, from its rate and its minimum gap.

    Example:
        >>> least_seconds(LaneSpec("a", 4, rpm=60, burst=2), 12)
        10.0
    """
    by_rate = max(0, calls - spec.burst) * _MINUTE / spec.rpm if spec.rpm else 0.0
    return max(by_rate, max(0, calls - 1) * spec.min_gap)


def _limits(spec: LaneSpec) -> str:
    found = [f"{spec.max_concurrency} at once"]
    found += [f"{spec.rpm:g} requests a minute"] if spec.rpm else []
    found += [f"{spec.tpm:g} tokens a minute"] if spec.tpm else []
    found += [f"{1000 * spec.min_gap:g} ms between two"] if spec.min_gap else []
    return ", ".join(found)


def _duration(seconds: Sequence[float], *, shares: bool) -> str:
    longest = max(seconds, default=0.0)
    if not longest and shares:
        return "the duration depends on the calls and the shared limits; no provider was called"
    if not longest:
        return "no lane has a rate, so the duration depends on the calls; no provider was called"
    shown = dt.timedelta(seconds=round(longest, 1))
    return f"minimum duration {str(shown).removesuffix('00000')}, from the rates; no provider was called"
