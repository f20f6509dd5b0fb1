"""Checks everything about a suite that can be known before the first call."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from trioeval.agent import is_agent
from trioeval.columns import is_columns
from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import MistakenError
from trioeval.documents.paths import show_path
from trioeval.errors import Problem, SuiteError, UsageError
from trioeval.evaluation.graders import Graders, find_graders, required_judges
from trioeval.evaluation.lanes import (
    lane_limits,
    lane_names,
    lane_rooms,
    lane_specs,
    merge_lane_limits,
    merge_task_lanes,
)
from trioeval.evaluation.metering import impossible_calls, unbounded_providers
from trioeval.evaluation.prepared import PreparedSuite, PreparedTask
from trioeval.evaluation.providers import (
    Resolver,
    at_provider_path,
    config_warnings,
    provider_paths,
    recorded_names,
    replayed,
    without_secrets,
)
from trioeval.evaluation.registers import Sharing
from trioeval.grading import KINDS, Kinds
from trioeval.kernel import LaneSpec
from trioeval.loading.load import load_suite, place_problems
from trioeval.loading.structure import converter_of
from trioeval.providers import Provider, ProviderSpec
from trioeval.providers.http.wire import TlsSettings
from trioeval.run.checks import (
    in_the_file,
    missing_commands,
    missing_extras,
    missing_queries,
    missing_rubrics,
    rubric_prompt_warnings,
    suite_warnings,
    unknown_cluster_warnings,
    wrong_comparisons,
    wrong_transforms,
    wrong_users,
)
from trioeval.suite.expand import Expansion, expand
from trioeval.suite.model import Suite
from trioeval.suite.sizes import RowCount, TooManyRowsError, check_rows, count_columns, count_rows
from trioeval.templates import Templates

if TYPE_CHECKING:
    from trioeval.columns.model import ColumnsSettings
    from trioeval.evaluation.reach import SentKey
    from trioeval.limits.model import LimitKey
    from trioeval.suite.extensions import Extension
    from trioeval.templates.nunjucks import Filter

# The context of a suite: folders, environment, templates, and changes by its extensions.


def apply_extensions(suite: Suite, context: FileContext) -> tuple[Suite, tuple[Extension, ...]]:
    """Return a suite as changed by its extensions, and the extensions.

    Raises:
        SuiteError: They are not valid, or fail.
    """
    from trioeval.suite.extensions import read_extensions, with_before_all

    if not suite.extensions:
        return suite, ()
    from trioeval.agent.cases import with_cases

    try:
        extensions = read_extensions(suite.extensions, context)
        suite = with_before_all(suite, extensions, context, converter_of, with_cases)
    except MistakenError as error:
        raise SuiteError(
            Problem(show_path(part.at), part.message, part.hint) for part in error.parts
        ) from None
    return suite, extensions


def file_context(
    suite: Suite, environ: Mapping[str, str], unknown: Callable[[str], None]
) -> FileContext:
    """Return the file context of a loaded suite for a run.

    Args:
        suite: The suite.
        environ: The environment of the user.
        unknown: Called with a text for each thing that only a run can check.
    """
    return FileContext(
        directory=suite.directory,
        environ={**environ, **suite.env} if suite.env else environ,
        roots=suite.roots or (suite.directory,),
        allow_outside=suite.allow_outside,
        kinds=suite.kinds,
        trust=suite.trust,
        own_env=frozenset(suite.env),
        on_unknown=unknown,
    )


def templates_of(suite: Suite, context: FileContext) -> tuple[Templates, list[Problem]]:
    """Return the templates of a run, and the problems of the suite's own filters."""
    problems: list[Problem] = []
    filters: dict[str, Filter] = {}
    if suite.nunjucks_filters:
        from trioeval.suite.sources.code import load_filters

        try:
            filters = load_filters(suite.nunjucks_filters, context)
        except MistakenError as error:
            problems += [
                Problem(show_path(("nunjucksFilters", *part.at)), part.message, part.hint)
                for part in error.parts
            ]
    templates = Templates(
        # The suite's own variables are not secrets of the machine.
        env=suite.env if context.switch("DISABLE_TEMPLATE_ENV_VARS") else context.visible_env,
        filters=filters,
        strict=suite.evaluate_options.strict_variables,
        enabled=not context.switch("DISABLE_TEMPLATING"),
        json_aware=not context.switch("DISABLE_JSON_AUTOESCAPE"),
    )
    return templates, problems


# The certificates that a run trusts according to the environment.


def read_trust(context: FileContext) -> tuple[TlsSettings, list[Problem]]:
    """Return the TLS settings for providers without their own, and their problems.

    `CA_CERT_PATH` names certificates of authorities, relative to the suite's folder, and `INSECURE_SSL`
    turns the verification of certificates off.
    """
    named = context.variable("CA_CERT_PATH")
    tls = TlsSettings(
        ca=context.directory / named if named else None, verify=not context.switch("INSECURE_SSL")
    )
    if tls.ca is None:
        return tls, []
    from trioeval.providers.http.tls import check_tls

    problems = [
        Problem("$", f"the file {named} of CA_CERT_PATH {fault}")
        for fault in check_tls(tls).values()
    ]
    return tls, problems


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
    strict: bool = False,
) -> PreparedSuite:
    """Load a suite if it is a path, and check all of its providers and transforms.

    Its extensions are called at this point, and may change its tests and prompts.

    Args:
        suite: A suite, or the path of a suite file.
        providers: Async callables by their provider ids in the suite.
        environ: The environment for keys and base URLs; None is the process environment.
        max_concurrency: The maximum concurrency of every lane, ≥ 1.
        replay: A recording whose replies are used for every provider.
        select: Returns the indices of the tests to run, among `all_tests` of a suite, or None for all of
        them;
            called once for each task. Agent cases that a selected case depends on are run as well.
        first_n: The maximum number of tests of each task, counting each set of variables of a test as one;
            None is all of them.
        max_rows: The maximum number of rows of all tasks; 0 means no limit, and None takes that of
            `evaluateOptions`.
        tasks: Ids of the tasks to run, including their dependencies; empty runs all.
        one_by_one: Run the steps of a task one after another, in order.
        kinds: The assertion types of a suite that is loaded here.
        trusted: True if a suite that is loaded here may run code, see the environment and use keys without
            restrictions; a suite that is already loaded has its own setting.
        allow_env: Variables of the environment that templates of an untrusted suite may see.
        strict: Refuse every unknown key of a suite that is loaded here, see `load_suite`.

    Raises:
        SuiteError: Everything that is wrong with its files; if nothing is, everything that is wrong with its
            providers and code; `TooManyRowsError` if only its size is wrong.
        UsageError: The suite has no task with one of these ids; a provider is not a function; or `trusted` or
            `allow_env` is given for a loaded suite.
    """
    check_providers(providers)
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
            raise UsageError(
                "trust is set when a suite is loaded: pass trusted or allow_env to `load_suite`"
            )
        return prepared(suite)
    return prepared(
        load_suite(
            suite, environ=own, kinds=kinds, trusted=trusted, allow_env=allow_env, strict=strict
        )
    )


def check_providers(providers: object) -> None:
    """Raise unless something is a mapping of provider ids to functions, or None.

    Raises:
        UsageError: It is not.
    """
    if providers is None:
        return
    if not isinstance(providers, Mapping):
        raise UsageError(
            f'providers must map ids to async functions, such as {{"model": ask}}, got {providers!r}'
        )
    for name, function in providers.items():
        if not callable(function):
            raise UsageError(f"provider {name!r} must be an async function, got {function!r}")


def _check_all(prepared: PreparedSuite, most: int) -> None:
    """Raise if the tasks of a suite have too many rows together.

    Raises:
        TooManyRowsError: They have.
    """
    if len(prepared.tasks) < 2:  # noqa: PLR2004 - a single task was already checked
        return
    rows = {part.id: len(part.prepared.steps) for part in prepared.tasks}
    for part in prepared.tasks:
        if is_columns(settings := part.prepared.suite.settings):
            rows[part.id] = settings.rows or 0
    by_task = " + ".join(f"{count:,} of task {task}" for task, count in rows.items() if count)
    check_rows(RowCount(sum(rows.values()), by_task, "$.tasks"), most, numbered=False)


def _places(suite: Suite, ids: Collection[str]) -> Collection[int]:
    """Return the indices of the tasks to run."""
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
    """Return a suite with its tasks at these indices, all of them checked."""
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
                    prepare_with_rows=settle,
                )
            )
    if problems:
        raise SuiteError(dict.fromkeys(problems))
    # The top has no rows: its remaining parts cannot have problems.
    top = make(attrs.evolve(suite, providers=(), default_test=None, extensions=(), tasks=()))
    return attrs.evolve(
        top,
        lane_specs=merge_task_lanes(
            [(task.prepared.lane_specs, task.prepared.lane_rooms) for task in tasks]
        ),
        lane_limits=merge_lane_limits(task.prepared.lane_limits for task in tasks),
        warnings=tuple(dict.fromkeys(warnings)),
        unknown=tuple(dict.fromkeys((*top.unknown, *_unknown(tasks)))),
        tasks=tuple(tasks),
    )


def _with_dependencies(
    suite: Suite, places: Container[int] | None
) -> tuple[Container[int] | None, Sequence[Problem]]:
    """Return the selected cases with those that they depend on, and a warning about these."""
    if places is None:
        return None, ()
    from trioeval.agent.form import with_dependencies

    return with_dependencies(suite, places)


def _command_problems(
    steps: Expansion, specs: Sequence[ProviderSpec], sharing: Sharing, templates: Templates
) -> Iterator[Problem]:
    from trioeval.agent.command_checks import undefined_command_variables

    return undefined_command_variables(steps, specs, sharing, templates)


def _key_warnings(found: PreparedSuite, loaded: Suite) -> Iterator[Problem]:
    """Yield keys of the environment that are sent to a host of another vendor, once for each host."""
    if not any(
        spec.settings.endpoint or spec.settings.urls
        for part in found.parts
        for spec in part.prepared.specs
    ):
        return
    from trioeval.evaluation.reach import foreign_key_warning, sent_keys

    seen: set[SentKey] = set()
    for part in found.parts:
        prepared = part.prepared
        entries = (*prepared.steps.providers, *prepared.graders.entries)
        paths = (*provider_paths(prepared.steps), *prepared.graders.paths)
        for spec, entry, path in zip(prepared.specs, entries, paths, strict=True):
            for sent in sent_keys(spec, prepared.context.own_env.union(entry.env)):
                if sent.is_strange and sent not in seen:
                    seen.add(sent)
                    warnings = [foreign_key_warning(sent, path)]
                    yield from (
                        warnings
                        if part.place is None
                        else in_the_file(warnings, loaded, part.place)
                    )


def _unknown(tasks: Sequence[PreparedTask]) -> Iterator[str]:
    """Yield what only a run can check, for each task."""
    for task in tasks:
        yield from task.prepared.unknown


def _lanes(
    suite: Suite, specs: Sequence[ProviderSpec], cap: int | None
) -> tuple[tuple[LaneSpec, ...], Sequence[Problem]]:
    """Return the lanes of a suite, and the problems of its providers."""
    names, limits = lane_names(suite, specs), lane_limits(suite, specs)
    faults = [*unbounded_providers(suite, specs, names, limits)]
    lanes: tuple[LaneSpec, ...] = ()
    try:
        lanes = lane_specs(suite, specs, cap=cap)
    except SuiteError as error:
        faults += error.problems
    if is_columns(suite.settings):
        from trioeval.columns.lanes import CODE, LOCAL_WIDTH, OWN_LANES
        from trioeval.columns.model_checks import wrong_models

        faults += wrong_models(suite.settings, specs)
        widths = dict.fromkeys(OWN_LANES, LOCAL_WIDTH)
        widths[CODE] = max(LOCAL_WIDTH, *_processes(suite.settings))
        lanes += tuple(LaneSpec(name, width) for name, width in sorted(widths.items()))
    return lanes, faults


def _processes(settings: ColumnsSettings) -> Iterator[int]:
    """Yield the number of processes of each function of a dataset."""
    from trioeval.columns.model import PythonColumn

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
    """Return a task with tests from rows that are known now. Its suite still contains its secrets."""
    from trioeval.run.rows_of_task import with_rows

    return make(with_rows(suite, rows, templates))


def _counted(suite: Suite, steps: Expansion) -> RowCount:
    """Return the number of rows of one task; for a dataset the requested number."""
    if is_columns(suite.settings):
        return RowCount(suite.settings.rows or 0, "those of a dataset")
    return count_rows(steps)


def _confined(
    steps: Expansion, specs: Sequence[ProviderSpec], graders: Graders
) -> tuple[frozenset[str], Sequence[Problem]]:
    """Return the hosts that an untrusted suite may call, and its violations of that restriction."""
    from trioeval.evaluation.reach import foreign_judges, hosts_of
    from trioeval.run.untrusted_checks import code_of_calls, foreign_webhooks

    hosts = {host for spec in specs for host in hosts_of(spec)}
    refused = (
        *foreign_judges(graders.specs, graders.paths, hosts),
        *foreign_webhooks(steps, hosts),
        *code_of_calls(steps),
    )
    hosts.update(host for spec in graders.specs for host in hosts_of(spec))
    return frozenset(host for host in hosts if host is not None), refused


def _extended(
    loaded: Suite, context: FileContext
) -> tuple[Suite, tuple[Extension, ...], Sequence[Problem]]:
    """Return a suite as changed by its extensions, the extensions, and their problems."""
    if loaded.rows_of is not None:
        from trioeval.run.rows_of_task import with_placeholder_test

        # Extensions are called once per task, when its tests are known.
        return with_placeholder_test(loaded), (), ()
    if not loaded.extensions:
        return loaded, (), ()
    try:
        return *apply_extensions(loaded, context), ()
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
    context = file_context(loaded, own, unknown.append)
    loaded, extensions, early = _extended(loaded, context)
    check_rows(count_columns(loaded), max_rows)
    places = None if select is None else select(loaded)
    inclusions: Sequence[Problem] = ()
    if are_cases := is_agent(loaded.settings):
        # All dependencies of a case are run, regardless of their number.
        first_n = None
        places, inclusions = _with_dependencies(loaded, places)
    steps = expand(loaded, places, first_n=first_n)
    check_rows(_counted(loaded, steps), max_rows)
    templates, problems = templates_of(loaded, context)
    problems += early
    resolver = Resolver(
        suite=loaded,
        context=context,
        templates=templates,
        custom={} if providers is None else providers,
    )
    paths, wishes = provider_paths(steps), required_judges(steps)
    specs: list[ProviderSpec] = []
    hosts: frozenset[str] | None = None if context.trust.trusted else frozenset()
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
        steps, templates, conversation=not context.switch("DISABLE_CONVERSATION_VAR")
    )
    problems += (
        *wrong_transforms(steps, context),
        *wrong_comparisons(steps),
        *wrong_users(steps),
        *missing_rubrics(steps),
        *(missing_commands(steps, context.environ) if are_cases else ()),
        *missing_queries(steps, sharing),
    )
    trust, untrusted = read_trust(context)
    problems += untrusted
    paths += graders.paths
    wide = attrs.evolve(loaded, providers=(*steps.providers, *graders.entries))
    lanes: tuple[LaneSpec, ...] = ()
    limits: Mapping[str, tuple[LimitKey, ...]] = {}
    if len(specs) == len(wide.providers):
        lanes, wrong = _lanes(wide, specs, max_concurrency)
        if are_cases:
            own_specs = specs[: len(steps.providers)]
            wrong = (*wrong, *_command_problems(steps, own_specs, sharing, templates))
        problems += (at_provider_path(problem, paths) for problem in wrong)
        limits = lane_limits(wide, specs)
        problems += missing_extras(loaded, uses_limits=bool(limits))
    if problems:
        raise SuiteError(problems)
    shown = without_secrets(loaded, specs)
    names, limits = lane_names(wide, specs), lane_limits(wide, specs)
    impossible = (
        at_provider_path(one, paths) for one in impossible_calls(shown, specs, names, limits)
    )
    return PreparedSuite(
        suite=shown,
        steps=steps.of_suite(shown),
        specs=tuple(specs),
        lane_names=names,
        graders=graders,
        lane_specs=lanes,
        lane_rooms=lane_rooms(wide, specs, cap=max_concurrency),
        lane_limits=limits,
        templates=templates,
        context=context,
        sharing=sharing,
        trust=trust,
        hosts=hosts,
        unknown=tuple(dict.fromkeys(unknown)),
        one_by_one=one_by_one,
        has_own_providers=bool(providers),
        extensions=extensions,
        warnings=(
            *loaded.warnings,
            *inclusions,
            *suite_warnings(steps, sharing, templates),
            *rubric_prompt_warnings(steps, sharing, templates),
            *unknown_cluster_warnings(steps, sharing),
            *config_warnings(specs, paths),
            *impossible,
        ),
    )
