"""Checks everything about a suite that can be known before anything is asked of a provider."""

import functools
import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.agents.dependencies import FailedDependency
from trioeval.errors import Problem, SuiteError, UsageError
from trioeval.grading import KINDS, Kinds
from trioeval.kernel import LaneSpec, Readiness
from trioeval.providers import Provider, ProviderSpec
from trioeval.providers.wire import TlsSettings
from trioeval.suite import (
    Around,
    Expansion,
    Suite,
    Templates,
    expand,
    load_suite,
    place_problems,
    told_together,
)
from trioeval.suite.agent_filters import with_dependencies
from trioeval.suite.column_models import ColumnsSettings, PythonColumn
from trioeval.suite.extensions import Extension
from trioeval.suite.quota_models import QuotaKey
from trioeval.suite.sizes import Counted, TooManyRowsError, check_rows, count_columns, count_rows
from trioeval.tasks.access import FindAccess, Sharing
from trioeval.tasks.agent_words import wrong_words
from trioeval.tasks.checks import missing_extras, unbounded, wrong_transforms
from trioeval.tasks.cluster_checks import idle_cluster
from trioeval.tasks.columns.making import CODE, LOCAL_WIDTH, OWN_LANES
from trioeval.tasks.columns.model_checks import wrong_models
from trioeval.tasks.columns.seeds import Source
from trioeval.tasks.command_checks import missing_commands
from trioeval.tasks.comparison_checks import wrong_comparisons
from trioeval.tasks.grader_entries import wanted
from trioeval.tasks.graders import Graders, find_graders
from trioeval.tasks.hooks import may_store
from trioeval.tasks.lanes import (
    lane_names,
    lane_quotas,
    lane_rooms,
    lane_specs,
    merge_lane_quotas,
    merge_task_lanes,
)
from trioeval.tasks.oddities import oddities
from trioeval.tasks.order import ByCells, OneByOne
from trioeval.tasks.question_checks import idle_prompts, missing_queries
from trioeval.tasks.reach import SentKey, hosts_of, sent_keys, strange_graders, strange_key
from trioeval.tasks.reservations import impossible_calls
from trioeval.tasks.resolved import (
    Resolver,
    moved,
    provider_paths,
    recorded_names,
    replayed,
    without_secrets,
)
from trioeval.tasks.rows_of import with_one_test, with_rows
from trioeval.tasks.rubric_checks import missing_rubrics
from trioeval.tasks.surroundings import around_of, begun, templates_of
from trioeval.tasks.task_problems import in_the_file
from trioeval.tasks.trust import read_trust
from trioeval.tasks.untrusted_checks import code_of_calls, strange_webhooks


@attrs.frozen(kw_only=True)
class PreparedSuite:
    """A suite whose providers are known to be right; nothing is open yet."""

    suite: Suite
    steps: Expansion = attrs.field(repr=False)
    """What it expands to."""
    specs: tuple[ProviderSpec, ...]
    """In the order of `steps.providers`, and behind them those of `graders.entries`."""
    lane_names: tuple[str, ...]
    """The lane of each, in the same order."""
    graders: Graders = attrs.field(factory=Graders)
    """Who judges."""
    lane_specs: tuple[LaneSpec, ...]
    """The lanes that it uses, with the limits that it gives them."""
    lane_rooms: Mapping[str, int] = attrs.field(factory=dict)
    """Of those whose width it does not say, the questions that are to be under way there at once."""
    lane_quotas: Mapping[str, tuple[QuotaKey, ...]] = attrs.field(factory=dict)
    """The limits shared with others that calls count against, by lane."""
    templates: Templates = attrs.field(repr=False)
    around: Around = attrs.field(repr=False)
    sharing: Sharing
    """What its steps leave for each other."""
    trust: TlsSettings = attrs.field(factory=TlsSettings)
    """How servers are trusted of which no config says anything."""
    hosts: frozenset[str] | None = None
    """The only hosts that it asks, if it is not trusted."""
    unknown: tuple[str, ...] = ()
    """What only a run will show, where no code was to run when it was prepared."""
    one_by_one: bool = False
    """Whether its steps run one after another, whatever they share."""
    has_own_providers: bool = False
    """Whether callables of the program stand for providers, which no file can name."""
    extensions: tuple[Extension, ...] = ()
    """What is told of its rows, and of its end."""
    warnings: tuple[Problem, ...] = ()
    """What is odd about it but no mistake."""
    tasks: tuple["PreparedTask", ...] = ()
    """What it consists of, if that is several things; all steps are theirs then."""
    seeds: Mapping[str | None, Mapping[str, Source]] | None = attrs.field(default=None, repr=False)
    """What `trioeval.tasks.columns.opening.read_seeds` has read, if it was asked before the run."""

    @property
    def parts(self) -> tuple["PreparedTask", ...]:
        """Its tasks; a suite without them is one task without a name."""
        return self.tasks or (PreparedTask(prepared=self),)

    @property
    def size(self) -> int:
        """Rows of all of its tasks, as far as they are known."""
        return sum(part.rows or 0 for part in self.parts)

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The label, or else the id, of each provider of the suite."""
        return tuple(entry.label or entry.id for entry in self.suite.providers)

    @property
    def judge_lanes(self) -> tuple[str, ...]:
        """The lanes of its judges."""
        return self.lane_names[len(self.steps.providers) :]

    @property
    def access(self) -> FindAccess:
        """What its steps may read of what others leave, and what they leave themselves."""
        opaque = (place for place, spec in enumerate(self.specs) if not spec.ignores_variables)
        return FindAccess(
            self.steps, self.sharing, self.templates, self.provider_names, frozenset(opaque)
        )

    @property
    def in_order(self) -> bool:
        """Whether its steps run one after another."""
        return self.why_in_order is not None

    @property
    def why_in_order(self) -> str | None:
        """Why its steps run one after another, in words; None if they do not."""
        sharing, mode = self.sharing, self.suite.evaluate_options.serialize
        if self.one_by_one:
            return "a delay is set"
        # A hook may change what a test reads, which is not known before.
        is_hooked = bool(self.extensions)
        if sharing.conversations and (is_hooked or mode not in {"conversation", "auto"}):
            speaking = [
                str(number)
                for number, prompt in enumerate(self.steps.suite.prompts, 1)
                if any(
                    column.prompt == prompt and column.prompt_idx in sharing.conversations
                    for column in self.steps.columns
                )
            ]
            several = "prompts {} use" if len(speaking) > 1 else "prompt {} uses"
            return f"{several.format(', '.join(speaking))} _conversation"
        if sharing.registers and (is_hooked or mode not in {"register", "auto"}):
            return f"tests use storeOutputAs ({', '.join(sorted(sharing.registers))})"
        if any(map(may_store, self.extensions)):
            return "an extension may change what rows leave for each other"
        return None

    @property
    def order(self) -> Callable[[], Readiness] | None:
        """What decides which steps may start; None if all of them may at once."""
        steps = self.steps
        serial = steps.serial_indices
        if self.in_order:
            return lambda: OneByOne.of(len(steps), serial)
        if not self.sharing.any:
            return None
        access = self.access
        return lambda: ByCells.of(len(steps), serial, access)


@attrs.frozen(kw_only=True)
class PreparedTask:
    """One of the tasks of a prepared suite."""

    id: str | None = None
    """None for a suite that has no tasks but is one."""
    place: int | None = None
    """Its place among the tasks of the file."""
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks that come first."""
    when_failed: FailedDependency = "skip"
    """What becomes of it when one of those is not complete."""
    prepared: PreparedSuite
    settle: Callable[[Sequence[Mapping[str, Any]]], PreparedSuite] | None = attrs.field(
        default=None, eq=False, repr=False
    )
    """Prepares it with the rows that its tests are, which another task leaves; `prepared` has one test in
    place of them. Raises what `prepare` raises, and `InputError`. None where its tests are known."""

    @property
    def rows(self) -> int | None:
        """How many rows it has; None where that is not known yet, and of a dataset."""
        is_known = self.settle is None and self.prepared.suite.columns is None
        return len(self.prepared.steps) if is_known else None


def prepare(
    suite: Suite | str | os.PathLike[str],
    *,
    providers: Mapping[str, Provider] | None = None,
    environ: Mapping[str, str] | None = None,
    max_concurrency: int | None = None,
    replay: Path | None = None,
    select: Callable[[Suite], Container[int] | None] | None = None,
    first_n: int | None = None,
    max_rows: int | None = None,
    tasks: Collection[str] = (),
    one_by_one: bool = False,
    kinds: Kinds = KINDS,
    trusted: bool = True,
    allow_env: Collection[str] = (),
) -> PreparedSuite:
    """Load a suite if it is a path, and check all of its providers and transforms.

    What it has as extensions is told that a run begins, and may change its tests and prompts.

    Args:
        suite: A suite, or the path of a suite file.
        providers: Async callables by the id that stands for them in the suite.
        environ: Where keys and base URLs are looked for; the process environment if None.
        max_concurrency: Calls in flight that no lane may exceed, ≥ 1.
        replay: A file of recordings that answers in place of every provider, each with its own.
        select: Gives the places of the tests that are run, among `all_tests` of a suite, or None for all
            of them; asked once for each task. With a case of agents, those that it depends on are run.
        first_n: How many tests of each task are run of those, the first ones, where each set of variables
            that a test stands for counts as one; None is all of them.
        max_rows: The most rows that all tasks may have together; 0 does not bound them, and None is as
            `evaluateOptions` says it.
        tasks: Ids of the tasks that are run, and with them all that they depend on; empty runs all.
        one_by_one: Run one step of a task after another, in order.
        kinds: The assertion types that a suite may use that is loaded here.
        trusted: Whether a suite that is loaded here may run code, see the environment and use keys as it
            likes; a suite that is loaded has its trust.
        allow_env: Variables of the environment that templates of an untrusted suite may see.

    Raises:
        SuiteError: Everything that is wrong with it; `TooManyRowsError` if that is its size alone.
        UsageError: The suite has no task of one of these ids; or `trusted` or `allow_env` is for a suite that
            is loaded.
    """
    own = os.environ if environ is None else environ
    make = functools.partial(
        _prepare,
        providers=providers,
        own=own,
        max_concurrency=max_concurrency,
        replay=replay,
        select=select,
        first_n=first_n,
        one_by_one=one_by_one,
    )

    def prepared(loaded: Suite) -> PreparedSuite:
        places = _places(loaded, tasks)
        most = loaded.evaluate_options.max_rows if max_rows is None else max_rows
        bounded = functools.partial(make, max_rows=most)
        try:
            found = _with_tasks(loaded, places, bounded) if loaded.tasks else bounded(loaded)
            _check_all(found, most)
        except TooManyRowsError as error:
            (problem,) = place_problems(error.problems, loaded)
            raise TooManyRowsError(problem, error.rows) from None
        except SuiteError as error:
            raise SuiteError(place_problems(error.problems, loaded), files=error.files) from None
        warnings = place_problems((*found.warnings, *_key_warnings(found, loaded)), loaded)
        return attrs.evolve(found, warnings=tuple(warnings))

    if isinstance(suite, Suite):
        if not trusted or allow_env:
            raise UsageError("a suite that is loaded has its trust: give it to `load_suite`")
        return prepared(suite)
    try:
        loaded = load_suite(suite, environ=own, kinds=kinds, trusted=trusted, allow_env=allow_env)
    except SuiteError as error:
        raise told_together(error, prepared) from None
    return prepared(loaded)


def _check_all(prepared: PreparedSuite, most: int) -> None:
    """Refuse a suite whose tasks have too many rows together.

    Raises:
        TooManyRowsError: They have.
    """
    if len(prepared.tasks) < 2:  # noqa: PLR2004 - one was counted by itself
        return
    rows = {part.id: len(part.prepared.steps) for part in prepared.tasks}
    for part in prepared.tasks:
        if (columns := part.prepared.suite.columns) is not None:
            rows[part.id] = columns.rows or 0
    told = " + ".join(f"{count:,} of task {task}" for task, count in rows.items() if count)
    check_rows(Counted(sum(rows.values()), told, "$.tasks"), most, numbered=False)


def _places(suite: Suite, ids: Collection[str]) -> Collection[int]:
    """The places of the tasks that are run."""
    places = {task.id: place for place, task in enumerate(suite.tasks)}
    if unknown := [name for name in ids if name not in places]:
        known = f"its tasks are {', '.join(places)}" if places else "it has no tasks"
        raise UsageError(f"the suite has no task {', '.join(unknown)}: {known}")
    if not ids:
        return places.values()
    found: set[int] = set()
    waiting = [*ids]
    while waiting:
        place = places[waiting.pop()]
        if place not in found:
            found.add(place)
            waiting += suite.tasks[place].depends_on
    return found


def _with_tasks(
    suite: Suite, places: Collection[int], make: Callable[[Suite], PreparedSuite]
) -> PreparedSuite:
    """A suite whose tasks at these places are all known to be right; it has no others."""
    problems: list[Problem] = []
    warnings: list[Problem] = [*suite.warnings]
    tasks: list[PreparedTask] = []
    for place, task in enumerate(suite.tasks):
        if place not in places:
            continue
        try:
            prepared = make(task.suite)
        except TooManyRowsError as error:
            (problem,) = in_the_file(error.problems, suite, place)
            raise TooManyRowsError(problem, error.rows) from None
        except SuiteError as error:
            problems += in_the_file(error.problems, suite, place)
        else:
            warnings += in_the_file(prepared.warnings, suite, place)
            settle = None
            if task.suite.rows_of is not None:
                settle = functools.partial(_settle, task.suite, prepared.templates, make)
            tasks.append(
                PreparedTask(
                    id=task.id,
                    place=place,
                    depends_on=task.depends_on,
                    when_failed=task.when_failed,
                    prepared=prepared,
                    settle=settle,
                )
            )
    if problems:
        raise SuiteError(dict.fromkeys(problems))
    # The top has no rows: what is made of it holds nothing that can be wrong.
    top = make(attrs.evolve(suite, providers=(), default_test=None, extensions=(), tasks=()))
    return attrs.evolve(
        top,
        lane_specs=merge_task_lanes(
            [(task.prepared.lane_specs, task.prepared.lane_rooms) for task in tasks]
        ),
        lane_quotas=merge_lane_quotas(task.prepared.lane_quotas for task in tasks),
        warnings=tuple(dict.fromkeys(warnings)),
        unknown=tuple(dict.fromkeys((*top.unknown, *_unknown(tasks)))),
        tasks=tuple(tasks),
    )


def _key_warnings(found: PreparedSuite, loaded: Suite) -> Iterator[Problem]:
    """Keys of the environment that go to a host that is not their vendor's, each told once for each host."""
    seen: set[SentKey] = set()
    for part in found.parts:
        prepared = part.prepared
        entries = (*prepared.steps.providers, *prepared.graders.entries)
        paths = (*provider_paths(prepared.steps), *prepared.graders.paths)
        for spec, entry, path in zip(prepared.specs, entries, paths, strict=True):
            for sent in sent_keys(spec, prepared.around.own_env.union(entry.env)):
                if sent.is_strange and sent not in seen:
                    seen.add(sent)
                    told = [strange_key(sent, path)]
                    yield from (
                        told if part.place is None else in_the_file(told, loaded, part.place)
                    )


def _unknown(tasks: Sequence[PreparedTask]) -> Iterator[str]:
    """What only a run will show of each task."""
    for task in tasks:
        yield from task.prepared.unknown


def _lanes(
    suite: Suite, specs: Sequence[ProviderSpec], cap: int | None
) -> tuple[tuple[LaneSpec, ...], Sequence[Problem]]:
    """The lanes of a suite, and what is wrong with who is asked there."""
    faults = [*unbounded(suite, specs)]
    lanes: tuple[LaneSpec, ...] = ()
    try:
        lanes = lane_specs(suite, specs, cap=cap)
    except SuiteError as error:
        faults += error.problems
    if suite.columns is not None:
        faults += wrong_models(suite.columns, specs)
        widths = dict.fromkeys(OWN_LANES, LOCAL_WIDTH)
        widths[CODE] = max(LOCAL_WIDTH, *_processes(suite.columns))
        lanes += tuple(LaneSpec(name, width) for name, width in sorted(widths.items()))
    return lanes, faults


def _processes(settings: ColumnsSettings) -> Iterator[int]:
    """How many processes each function of a dataset may have."""
    yield os.cpu_count() or 1
    for column in settings.columns:
        if isinstance(column, PythonColumn) and column.workers is not None:
            yield column.workers


def _settle(
    suite: Suite,
    templates: Templates,
    make: Callable[[Suite], PreparedSuite],
    rows: Sequence[Mapping[str, Any]],
) -> PreparedSuite:
    """A task whose tests are rows that are known now. In its suite no secret is hidden yet."""
    return make(with_rows(suite, rows, templates))


def _counted(suite: Suite, steps: Expansion) -> Counted:
    """The rows of one task; those of a dataset are what it says."""
    if suite.columns is not None:
        return Counted(suite.columns.rows or 0, "those of a dataset")
    return count_rows(steps)


def _confined(
    steps: Expansion, specs: Sequence[ProviderSpec], graders: Graders
) -> tuple[frozenset[str], Sequence[Problem]]:
    """The hosts that an untrusted suite may ask, and what it may not have besides them."""
    asked = {host for spec in specs for host in hosts_of(spec)}
    refused = (
        *strange_graders(graders.specs, graders.paths, asked),
        *strange_webhooks(steps, asked),
        *code_of_calls(steps),
    )
    asked.update(host for spec in graders.specs for host in hosts_of(spec))
    return frozenset(host for host in asked if host is not None), refused


def _extended(
    loaded: Suite, around: Around
) -> tuple[Suite, tuple[Extension, ...], Sequence[Problem]]:
    """A suite as its extensions want it, those, and what is wrong with them."""
    is_early, loaded = loaded.rows_of is not None, with_one_test(loaded)
    # They hear of a task once, when its tests are known.
    if not loaded.extensions or is_early:
        return loaded, (), ()
    try:
        return *begun(loaded, around), ()
    except SuiteError as error:
        return loaded, (), error.problems


def _prepare(
    loaded: Suite,
    *,
    providers: Mapping[str, Provider] | None,
    own: Mapping[str, str],
    max_concurrency: int | None,
    replay: Path | None,
    select: Callable[[Suite], Container[int] | None] | None,
    first_n: int | None,
    max_rows: int,
    one_by_one: bool,
) -> PreparedSuite:
    unknown = [*loaded.unknown]
    around = around_of(loaded, own, unknown.append)
    loaded, extensions, early = _extended(loaded, around)
    check_rows(count_columns(loaded), max_rows)
    selected = with_dependencies(loaded, None if select is None else select(loaded))
    # What a case depends on is run with it, however many that are.
    first_n = None if loaded.agents is not None else first_n
    steps = expand(loaded, selected.places, first_n=first_n)
    check_rows(_counted(loaded, steps), max_rows)
    templates, problems = templates_of(loaded, around)
    problems += early
    resolver = Resolver(
        suite=loaded,
        around=around,
        templates=templates,
        custom={} if providers is None else providers,
    )
    paths, wishes = provider_paths(steps), wanted(steps)
    specs: list[ProviderSpec] = []
    hosts: frozenset[str] | None = None if around.trust.trusted else frozenset()
    if replay is None:
        specs, faults = resolver.all_of(steps.providers, paths)
        graders, others = find_graders(wishes, resolver)
        problems += (*faults, *others)
        if hosts is not None:
            hosts, refused = _confined(steps, specs, graders)
            problems += refused
        specs += graders.specs
    else:
        graders, others = find_graders(wishes, resolver, recorded_names(replay) if wishes else ())
        problems += others
        specs = replayed(loaded, (*steps.providers, *graders.entries), replay)
    sharing = Sharing.of(
        steps, templates, conversation=not around.switch("DISABLE_CONVERSATION_VAR")
    )
    problems += (
        *wrong_transforms(steps, around),
        *wrong_comparisons(steps),
        *missing_rubrics(steps),
        *(missing_commands(steps, around.environ) if loaded.agents is not None else ()),
        *missing_queries(steps, sharing),
    )
    trust, untrusted = read_trust(around)
    problems += untrusted
    paths += graders.paths
    wide = attrs.evolve(loaded, providers=(*steps.providers, *graders.entries))
    lanes: tuple[LaneSpec, ...] = ()
    quotas: Mapping[str, tuple[QuotaKey, ...]] = {}
    if len(specs) == len(wide.providers):
        lanes, wrong = _lanes(wide, specs, max_concurrency)
        wrong = (*wrong, *wrong_words(steps, specs[: len(steps.providers)], sharing, templates))
        problems += (moved(problem, paths) for problem in wrong)
        quotas = lane_quotas(wide, specs)
        problems += missing_extras(loaded, is_asked=bool(quotas))
    if problems:
        raise SuiteError(problems)
    shown = without_secrets(loaded, specs)
    names, quotas = lane_names(wide, specs), lane_quotas(wide, specs)
    impossible = (moved(one, paths) for one in impossible_calls(shown, specs, names, quotas))
    return PreparedSuite(
        suite=shown,
        steps=expand(shown, selected.places, first_n=first_n) if shown is not loaded else steps,
        specs=tuple(specs),
        lane_names=names,
        graders=graders,
        lane_specs=lanes,
        lane_rooms=lane_rooms(wide, specs, cap=max_concurrency),
        lane_quotas=quotas,
        templates=templates,
        around=around,
        sharing=sharing,
        trust=trust,
        hosts=hosts,
        unknown=tuple(dict.fromkeys(unknown)),
        one_by_one=one_by_one,
        has_own_providers=bool(providers),
        extensions=extensions,
        warnings=(
            *loaded.warnings,
            *selected.warnings,
            *oddities(steps, sharing, templates),
            *idle_prompts(steps, sharing, templates),
            *idle_cluster(steps, sharing),
            *impossible,
        ),
    )
