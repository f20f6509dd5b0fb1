"""The facts that all workers of a run must share with its coordinator, and its refusals."""

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Sequence

import attrs

from trioeval.agent import is_agent
from trioeval.agent.model import case_of
from trioeval.columns import is_columns
from trioeval.errors import UsageError
from trioeval.evaluation.identity import Identities
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.suite_files import CodeFiles
from trioeval.providers import Provider
from trioeval.providers.programs import AGENT_RUNS
from trioeval.question_eval import is_question_eval
from trioeval.run.same_rows import task_digest
from trioeval.scaleout.before_all import extension_refusals
from trioeval.scaleout.chains import Chains
from trioeval.scaleout.messages import Needs, WorkerFacts
from trioeval.scaleout.needs import own_functions, variables, versions
from trioeval.scaleout.private_files import Location, with_texts
from trioeval.scaleout.shards import LaneUse
from trioeval.text import counted

_SAMPLE = 1000
"""Rows of a task that are compared."""


def suite_digest(prepared: PreparedSuite, location: Location | None = None) -> str:
    """Return a digest of the suite, of the number of its rows, and of a sample of them.

    Args:
        prepared: The suite.
        location: The place of its files on this machine; None on the coordinator.
    """
    moved = Location() if location is None else location
    code = CodeFiles(prepared.suite.directory)

    def sources(text: str) -> str | None:
        return code(moved.text(text))

    identities = Identities(sources, moved.original if moved.root else None)
    found = hashlib.sha256()
    for part in prepared.parts:
        steps = part.prepared.steps
        facts = [str(part.id), task_digest(_original(part, moved), sources), str(len(steps))]
        looked_at = min(len(steps), _SAMPLE)
        for place in range(looked_at):
            step = steps[place * len(steps) // looked_at]
            facts.append(identities.of(step, steps.providers[step.column.provider_index]).content)
        found.update("\n".join([*facts, ""]).encode("utf-8", "surrogatepass"))
    return found.hexdigest()[:32]


def _original(part: PreparedTask, moved: Location) -> PreparedTask:
    """Return a task whose settings have the paths of the coordinator."""
    if not moved.root:
        return part
    suite = part.prepared.suite
    suite = attrs.evolve(
        suite,
        extensions=with_texts(suite.extensions, moved.original),
        nunjucks_filters=with_texts(dict(suite.nunjucks_filters), moved.original),
        assertion_types=with_texts(dict(suite.assertion_types), moved.original),
    )
    return attrs.evolve(part, prepared=attrs.evolve(part.prepared, suite=suite))


def differences(address: str, own: WorkerFacts, found: WorkerFacts) -> Iterator[str]:
    """Yield everything that keeps a worker from running rows of a coordinator.

    Args:
        address: The address of the worker.
        own: The facts of the coordinator.
        found: Those of the worker.
    """
    of_worker = dict(found.versions)
    for name, wanted in own.versions:
        if (has := of_worker.get(name, "unknown")) != wanted:
            yield f"worker {address} has {name} {has}, the run {wanted}"
    wrong = [*_different_variables(own, found)]
    yield from (f"worker {address} {text}" for text in wrong)
    if found.error is not None:
        text = found.error.replace("\n", "\n    ")
        yield f"worker {address} cannot load the suite: {text}"
    elif found.obstacle is not None:
        yield (
            f"worker {address} cannot use the folder in which agents work: {found.obstacle}; it must "
            "be the same folder at the same path, as on a shared file system"
        )
    elif found.digest != own.digest and not wrong:
        yield (
            f"worker {address} has loaded another suite: its code creates other tests there, it reads "
            "files that the suite does not name, or a key in a template has another value"
        )


def _different_variables(own: WorkerFacts, found: WorkerFacts) -> Iterator[str]:
    wanted, has = dict(own.variables), dict(found.variables)
    for name in sorted(wanted.keys() | has.keys()):
        if name not in has:
            yield f"lacks the environment variable {name}, which the run has"
        elif name not in wanted:
            if has[name]:  # it may have more keys
                yield f"has the environment variable {name}, which the run lacks"
        elif has[name] != wanted[name]:
            yield f"has another value of the environment variable {name} than the run"


def coordinator_facts(prepared: PreparedSuite, needs: Needs) -> WorkerFacts:
    """Return the facts of this process."""
    environ = prepared.context.environ
    return WorkerFacts(
        session="",
        versions=versions(needs, environ),
        variables=variables(needs, environ),
        digest=suite_digest(prepared),
    )


# Suites that cannot run on several machines yet.


def refusals(prepared: PreparedSuite) -> Iterator[str]:
    """Yield what in a suite cannot run on other machines yet."""
    for part in prepared.parts:
        where = "" if part.id is None else f" of task {part.id}"
        for what in _task_refusals(part):
            yield f"{what}{where}"


def _task_refusals(part: PreparedTask) -> Iterator[str]:
    prepared, settings = part.prepared, part.prepared.suite.settings
    if is_columns(settings) and prepared.suite.evaluate_options.budget is not None:
        yield "a budget for columns (type: columns)"
    if is_agent(settings):
        yield from _case_refusals(prepared)
    yield from extension_refusals(part)
    for name, function in own_functions(prepared):
        if not _can_import(function):
            yield (
                f"provider {name}, which other processes cannot import (define its function or class at the "
                "top of a module other than the main program, and without locks, sockets and open files)"
            )


def _case_refusals(prepared: PreparedSuite) -> Iterator[str]:
    """Yield what in a task of agents cannot run on other machines yet."""
    compared = next((span.start for span in prepared.steps.spans if span.compared), None)
    if compared is not None:
        case = case_of(prepared.steps[compared].test)
        example = "" if case is None else f", such as case {case.name}"
        # Each case is sent alone, when it is its turn.
        yield f"cases that are compared with each other (select-best, max-score{example})"
    for extension in prepared.extensions:
        if extension.handles("beforeEach"):
            # The folder of a case is made here, for the case as it is in the suite.
            yield f"beforeEach of {extension} for the agents"


def _can_import(function: Provider) -> bool:
    """Return whether another process gets the same function by its name."""
    try:
        data = pickle.dumps(function)
    except Exception:  # noqa: BLE001 - objects of users may raise anything
        return False
    return b"__main__" not in data


# The lanes of a suite that only one worker may use.


def lane_uses(prepared: PreparedSuite) -> Sequence[LaneUse]:
    """Return the lanes that the rows of a suite may use; all rows of a dataset are of one kind."""
    return [use for part in prepared.parts for use in _task_lane_uses(part)]


def _task_lane_uses(part: PreparedTask) -> Iterator[LaneUse]:
    prepared = part.prepared
    if is_columns(settings := prepared.suite.settings):
        called = frozenset(prepared.lane_names[place] for place in settings.called())
        yield LaneUse((part.id, None), called)
        return
    lanes = [*dict.fromkeys(prepared.lane_names[place] for place in prepared.steps.used_providers)]
    users = {
        prepared.lane_names[stretch.shape.user.place]
        for stretch in prepared.steps.stretches
        if stretch.shape.user is not None
    }
    is_single = is_agent(settings) or is_question_eval(settings)
    chains = None if is_single else Chains.of(prepared)
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


def shares_lanes(prepared: PreparedSuite, *, lane_owner: bool) -> bool:
    """Return whether the limits of the lanes are kept in Redis, instead of by one owner of each lane."""
    limits = prepared.suite.limits
    return limits is not None and limits.backend == "redis" and not lane_owner


def owned_lanes(prepared: PreparedSuite, *, lane_owner: bool = False) -> frozenset[str]:
    """Return the lanes whose limits hold only if one worker makes all of their calls.

    A lane may be used by all workers if its calls are free and have no rate, if its limits are in Redis, or
    if a server keeps its limits and it has no rate of its own. So may that of programs that are agents,
    unless the suite limits their concurrent attempts.

    Args:
        prepared: The suite.
        lane_owner: Whether each lane has one owner, although the suite has Redis.
    """
    if shares_lanes(prepared, lane_owner=lane_owner):
        return frozenset()
    called = called_lanes(prepared)
    limits = prepared.suite.limits
    is_local = limits is None or limits.backend == "memory" or lane_owner
    shared = set() if is_local else {*prepared.lane_limits}
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
