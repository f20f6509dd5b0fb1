"""The facts that all workers of a run must share with its coordinator, and its refusals."""

import hashlib
import pickle
import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from trioeval.agent import is_agent
from trioeval.columns import is_columns
from trioeval.errors import UsageError
from trioeval.evaluation.identity import Identities
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.suite_files import CodeFiles
from trioeval.providers import Provider
from trioeval.providers.local.custom import CustomSettings
from trioeval.providers.programs import AGENT_RUNS
from trioeval.question_eval import is_question_eval
from trioeval.run.same_rows import task_digest
from trioeval.scaleout.before_all import extension_refusals
from trioeval.scaleout.chains import Chains
from trioeval.scaleout.messages import WorkerFacts
from trioeval.scaleout.shards import LaneUse
from trioeval.text import counted

_PACKAGES = ("trioeval", "distributed")
_SAMPLE = 1000
"""Rows of a task that are compared."""


def versions() -> tuple[tuple[str, str], ...]:
    """Return the versions that the coordinator and its workers must share, by name."""
    found = [("python", ".".join(platform.python_version_tuple()[:2]))]
    for name in _PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:  # a checkout that is not installed
            found.append((name, "not installed"))
    return tuple(found)


def suite_digest(prepared: PreparedSuite) -> str:
    """Return a digest of the suite, of the number of its rows, and of a sample of them."""
    sources = CodeFiles(prepared.suite.directory)
    identities = Identities(sources)
    found = hashlib.sha256()
    for part in prepared.parts:
        steps = part.prepared.steps
        facts = [str(part.id), task_digest(part, sources), str(len(steps))]
        looked_at = min(len(steps), _SAMPLE)
        for place in range(looked_at):
            step = steps[place * len(steps) // looked_at]
            facts.append(identities.of(step, steps.providers[step.column.provider_index]).content)
        found.update("\n".join([*facts, ""]).encode("utf-8", "surrogatepass"))
    return found.hexdigest()[:32]


def differences(address: str, own: WorkerFacts, found: WorkerFacts) -> Iterator[str]:
    """Yield what keeps a worker from running rows of a coordinator.

    Args:
        address: The address of the worker.
        own: The facts of the coordinator.
        found: Those of the worker.
    """
    of_worker = dict(found.versions)
    for name, wanted in own.versions:
        if (has := of_worker.get(name, "unknown")) != wanted:
            yield f"worker {address} has {name} {has}, the run {wanted}"
    if found.directory != own.directory:
        yield f"worker {address} runs in {found.directory}, the run in {own.directory}; start it there"
    elif found.error is not None:
        yield f"worker {address} cannot load the suite: {found.error}"
    elif found.obstacle is not None:
        yield (
            f"worker {address} cannot use the folder in which agents work: {found.obstacle}; it must "
            "be the same folder at the same path, as on a shared file system"
        )
    elif found.digest != own.digest:
        yield (
            f"worker {address} has loaded another suite: its files, or the variables of its "
            "environment, differ from those of the run"
        )


def coordinator_facts(prepared: PreparedSuite) -> WorkerFacts:
    """Return the facts of this process."""
    return WorkerFacts(
        session="",
        versions=versions(),
        directory=str(Path.cwd()),
        digest=suite_digest(prepared),
    )


# Suites that cannot run on several machines yet.


def refusals(prepared: PreparedSuite) -> Iterator[str]:
    """Yield what in a suite cannot run on other machines yet."""
    if prepared.suite.evaluate_options.budget is not None:
        yield "a budget (evaluateOptions.budget, --max-requests, --max-tokens, --max-cost)"
    for part in prepared.parts:
        where = "" if part.id is None else f" of task {part.id}"
        for what in _task_refusals(part):
            yield f"{what}{where}"


def _task_refusals(part: PreparedTask) -> Iterator[str]:
    prepared, settings = part.prepared, part.prepared.suite.settings
    is_single = is_agent(settings) or is_question_eval(settings)
    found = {
        "columns (type: columns)": is_columns(settings),
        "rows of agents or questions that share data, run serially or are compared": is_single
        and Chains.of(prepared) is not None,
        "extensions of agents or questions": is_single and bool(prepared.extensions),
    }
    yield from (what for what, is_so in found.items() if is_so)
    yield from extension_refusals(part)
    for spec in prepared.specs:
        if isinstance(spec.settings, CustomSettings) and not _can_import(
            spec.settings.own.function
        ):
            yield (
                f"provider {spec.settings.name}, which other processes cannot import "
                "(define its function at the top of a module other than the main program)"
            )


def _can_import(function: Provider) -> bool:
    """Return whether another process gets the same function by its name."""
    try:
        data = pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return b"__main__" not in data


# The lanes of a suite that only one worker may use.


def lane_uses(prepared: PreparedSuite) -> Sequence[LaneUse]:
    """Return the lanes that the rows of a suite may use."""
    return [use for part in prepared.parts for use in _task_lane_uses(part)]


def _task_lane_uses(part: PreparedTask) -> Iterator[LaneUse]:
    prepared = part.prepared
    lanes = [*dict.fromkeys(prepared.lane_names[place] for place in prepared.steps.used_providers)]
    users = {
        prepared.lane_names[stretch.shape.user.place]
        for stretch in prepared.steps.stretches
        if stretch.shape.user is not None
    }
    chains = Chains.of(prepared)
    # A chain runs on one worker, which then makes all of its calls.
    with_others = lanes if chains is not None and chains.use_several_lanes else ()
    for lane in lanes:
        yield LaneUse(
            (part.id, lane), frozenset({lane, *with_others, *users, *prepared.judge_lanes})
        )


def agent_tasks(prepared: PreparedSuite) -> frozenset[str | None]:
    """Return the ids of the tasks of agents."""
    return frozenset(part.id for part in prepared.parts if is_agent(part.prepared.suite.settings))


def called_lanes(prepared: PreparedSuite) -> frozenset[str]:
    """Return the lanes whose calls take time or cost something."""
    return frozenset(
        lane
        for part in prepared.parts
        for lane, spec in zip(part.prepared.lane_names, part.prepared.specs, strict=True)
        if not spec.is_instant_and_free
    )


def owned_lanes(prepared: PreparedSuite) -> frozenset[str]:
    """Return the lanes whose limits hold only if one worker makes all of their calls.

    A lane may be used by all workers if its calls are free and have no rate, or if a server keeps its limits.
    So may that of programs that are agents, unless the suite limits their concurrent attempts.
    """
    called = called_lanes(prepared)
    limits = prepared.suite.limits
    shared = set() if limits is None or limits.backend == "memory" else {*prepared.lane_limits}
    if not prepared.suite.run_limits.max_concurrent_runs:
        shared.add(AGENT_RUNS)
    return frozenset(
        spec.name
        for spec in prepared.lane_specs
        if spec.rpm or spec.tpm or spec.min_gap or spec.name in called - shared
    )


def check_suite(prepared: PreparedSuite, others: Iterable[str] = ()) -> None:
    """Raise if something cannot run on other machines yet.

    Args:
        prepared: The suite.
        others: What else cannot be used: the names of flags.

    Raises:
        UsageError: With all of it.
    """
    wrong = [*others, *dict.fromkeys(refusals(prepared))]
    if wrong:
        listed = "".join(f"\n  {one}" for one in wrong)
        things = counted(len(wrong), "thing")
        raise UsageError(f"--on: {things} cannot be used on several workers yet:{listed}")
