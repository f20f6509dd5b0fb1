"""`trioeval simulate`: the forecast of a run, on a virtual clock, without calling a provider."""

import gc
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.cli.environment import read_environment
from trioeval.cli.flags import RunFlags, SimulateFlags, SuiteFlags, check_flags, read_age
from trioeval.cli.interrupts import Interrupts
from trioeval.cli.run.command import load
from trioeval.cli.stored_results import open_runs
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import FAULT_BY_KIND, Problem, SuiteError, UsageError
from trioeval.providers.local.recordings import parse_file
from trioeval.report.stored import StoredCall, StoredRunFacts
from trioeval.run import PreparedSuite, prepare
from trioeval.simulation.alternatives import forecast_suite
from trioeval.simulation.datasets import SimulatedDataset
from trioeval.simulation.model import ProviderModel, ServerLimits, Spread
from trioeval.simulation.observed import (
    GivenFigures,
    ObservedCall,
    observed_models,
    provider_models,
    recorded_calls,
    without_random_refusals,
)
from trioeval.simulation.report import ForecastBounds, forecast_json, forecast_lines
from trioeval.simulation.rows import SimulatedTask, simulated_tasks
from trioeval.simulation.suite import SimulatedSuite
from trioeval.store.reader import StoreReader

_MOST_ROWS = 2000
"""Rows of each task of a stored run whose calls are read; of more, evenly spaced ones are read."""
_LIMITS = {
    "limit_rpm": "rpm",
    "limit_burst": "burst",
    "limit_tpm": "tpm",
    "limit_in_flight": "max_in_flight",
}


def simulate_command(suite: Path, given: SimulateFlags, interrupts: Interrupts) -> int:
    """Simulate a suite, show the forecast, and return the exit code.

    Raises:
        SuiteError: The suite is wrong, or has a task that cannot be simulated; or a recording is.
        UsageError: A flag is wrong, the run does not exist, or nothing is known about a provider.
        StoreError: The database cannot be read.
    """
    questions = ForecastBounds(
        deadline=None if given.deadline is None else read_age(given.deadline, "--deadline"),
        budget=given.budget,
    )
    figures = _figures(given)
    observed = _observed(given)
    what = SuiteFlags(env_file=given.env_file, untrusted=given.untrusted, allow_env=given.allow_env)
    flags = RunFlags(what=what)
    check_flags(flags)
    loaded = load(suite, flags)
    prepared = prepare(
        loaded.suite,
        environ=loaded.environ,
        max_concurrency=given.max_concurrency,
        tasks=given.task,
        max_rows=0,
    )
    for warning in prepared.warnings:
        say(f"warning: {warning}")
    simulated, notes = _simulated(prepared, given, figures, observed)
    if not simulated.rows:
        raise UsageError("the suite has no rows to simulate")
    gc.collect()
    gc.freeze()  # else each full collection looks at the whole program again
    interrupts.begin_run()
    found = forecast_suite(
        simulated, compare=given.compare, is_stopped=lambda: bool(interrupts.received)
    )
    if interrupts.received:
        say(f"interrupted before it finished; exit {interrupts.code}")
        return interrupts.code
    if given.json:
        show(json.dumps(forecast_json(simulated, found, questions, notes), indent=2))
    else:
        show("\n".join(forecast_lines(simulated, found, questions, notes)))
    return Exit.OK if questions.fits(found) else Exit.FAILED


def _simulated(
    prepared: PreparedSuite,
    given: SimulateFlags,
    figures: GivenFigures,
    observed: Mapping[str | None, ProviderModel],
) -> tuple[SimulatedSuite, Sequence[str]]:
    tasks = simulated_tasks(prepared)
    models, notes = provider_models(tasks, observed, figures)
    limits = _server_limits(tasks, given)
    models = {
        name: without_random_refusals(model) if name in limits else model
        for name, model in models.items()
    }
    if not limits and not any(model.refusal_share for model in models.values()):
        notes = [
            *notes,
            "no limits of the providers are given (--limit-rpm and others): none refuses",
        ]
    suite = SimulatedSuite.of(prepared, models, limits=limits, seed=given.seed)
    return suite, [*notes, *_left_out(prepared, suite)]


def _left_out(prepared: PreparedSuite, simulated: SimulatedSuite) -> Iterator[str]:
    """Yield notes about parts of a suite that are not simulated."""
    if simulated.lane_limits:
        yield "shared limits are simulated as if no other program used them"
    known = {limit.key for limit in simulated.shared}
    named = (one.key for keys in prepared.lane_limits.values() for one in keys)
    if unknown := [key for key in dict.fromkeys(named) if key not in known]:
        yield f"shared limits that the suite does not define are not simulated: {', '.join(unknown)}"
    if any(part.prepared.has_simulated_users for part in prepared.parts):
        yield "conversations with simulated users have all of their turns (maxTurns)"
    if any(isinstance(task, SimulatedDataset) for task in simulated.tasks):
        yield "no cell of a dataset is skipped or made again, and no row is dropped"
    if any(part.prepared.extensions for part in prepared.parts):
        yield "hooks are not simulated: they take no time"


def _figures(given: SimulateFlags) -> GivenFigures:
    latency = {name: Spread.read(text, "--latency") for name, text in map(_named, given.latency)}
    prompt = given.prompt_tokens
    return GivenFigures(
        latency=latency,
        prompt_tokens=None if prompt is None else Spread.read(prompt, "--prompt-tokens"),
        reply_tokens=Spread.read(given.reply_tokens, "--reply-tokens"),
        failure_share=given.failure_rate,
        agent_calls=None
        if given.agent_calls is None
        else Spread.read(given.agent_calls, "--agent-calls"),
    )


def _named(text: str) -> tuple[str | None, str]:
    """Return the provider that a value is given for, None for all of them, and the value."""
    name, equals, value = text.rpartition("=")
    return (name, value) if equals else (None, text)


def _server_limits(
    tasks: Sequence[SimulatedTask | SimulatedDataset], given: SimulateFlags
) -> Mapping[str, ServerLimits]:
    """Return the limits of the servers, by the label or id of a provider.

    Raises:
        UsageError: A limit is not a whole number, or is given for a provider that the suite lacks.
    """
    specs = [spec for task in tasks for _, spec in task.called()]
    names = [spec.name for spec in specs if not spec.is_instant_and_free]
    found: dict[str, dict[str, int]] = {}
    for field, limit in _LIMITS.items():
        flag = f"--{field.replace('_', '-')}"
        # Limits of single providers replace those of all.
        for name, text in sorted(map(_named, getattr(given, field)), key=lambda one: one[0] or ""):
            if not text.strip().isdecimal() or int(text) < 1:
                raise UsageError(f"{flag} must be a whole number of at least 1, got {text!r}")
            if name is not None and name not in names:
                raise UsageError(f"{flag} names {name!r}; the providers are {', '.join(names)}")
            for one in names if name is None else [name]:
                found.setdefault(one, {})[limit] = int(text)
    return {
        name: ServerLimits(**limits, reports=not given.bare_refusals)
        for name, limits in found.items()
    }


def _observed(given: SimulateFlags) -> Mapping[str | None, ProviderModel]:
    """Return the models from the calls of a stored run or a recording; none without one.

    Raises:
        UsageError: Both are given, the run does not exist, or it has no calls.
        SuiteError: The recording cannot be read.
    """
    if given.run is not None and given.recording is not None:
        raise UsageError("--from and --recording exclude each other")
    if given.recording is not None:
        path = given.recording
        found = observed_models(_recorded(path), str(path))
        if not found:
            raise UsageError(f"{path} contains no successful call with a latency")
        return found
    if given.run is None:
        return {}
    with open_runs(given.db, read_environment(os.environ)) as reader:
        run = reader.run(given.run)
        found = observed_models(_stored(reader, run), f"run {run.id}")
    if not found:
        raise UsageError(f"run {run.id} contains no successful call of a provider")
    return found


def _recorded(path: Path) -> Iterator[ObservedCall]:
    try:
        content = path.read_bytes()
    except OSError as error:
        message = f"the recording cannot be read: {error.strerror}"
        raise SuiteError([Problem("$", message, file=str(path))]) from None
    read = parse_file(content, str(path))
    if read.problems:
        raise SuiteError(attrs.evolve(problem, path="$") for problem in read.problems)
    return recorded_calls(read.recordings)


def _stored(reader: StoreReader, run: StoredRunFacts) -> Iterator[ObservedCall]:
    for task, size in zip(run.tasks, run.sizes, strict=True):
        several = min(size or 0, _MOST_ROWS)
        for number in range(several):
            row = number * (size or 0) // several
            calls = [*reader.calls(run, task, row)]
            # An attempt of a model contains its calls; that of a program is the only thing known of it.
            is_model = any(call.role == "provider" for call in calls)
            for call in calls:
                if is_model and call.role == "attempt":
                    continue
                if not call.cached and call.latency_ms is not None:
                    at = None if call.role == "grader" else (task, row)
                    yield _observed_call(call, call.latency_ms / 1000, at)


def _observed_call(
    call: StoredCall, latency: float, row: tuple[str | None, int] | None
) -> ObservedCall:
    fault = None if call.error is None else FAULT_BY_KIND.get(call.error.get("kind", ""))
    usage: Mapping[str, Any] = (call.reply or {}).get("usage") or {}
    prompt = usage.get("prompt") or 0
    reply = usage.get("completion") or 0
    if not prompt and not reply:
        reply = call.tokens or 0
    return ObservedCall(
        provider=call.provider,
        latency=latency,
        prompt_tokens=prompt,
        reply_tokens=reply,
        money=call.cost or 0.0,
        fault=fault,
        row=row,
    )
