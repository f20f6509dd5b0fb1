"""From plain data to a `Suite`, strictly, with all mistakes of the data reported at once.

Nothing is converted and nothing is ignored: `"5"` is not a number, `true` is not 1, an unknown key is a
mistake. Each model has a hook made by cattrs; a part with several notations (a provider as text or object,
`targets` for `providers`) is converted to one form first, and parts that are in other files are read.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import cattrs

from trioeval.agent import is_agent
from trioeval.documents.files import FILE, FileContext
from trioeval.documents.mistakes import (
    SUITE_HINT,
    Mistake,
    MistakenError,
    Mistakes,
    kind,
    moved_unknown_keys,
    nearest,
)
from trioeval.documents.paths import DocumentPath
from trioeval.documents.structure import Hook, camel, object_hook, strict_converter
from trioeval.grading import Assertion, quote
from trioeval.loading.trust import (
    code_texts,
    env_files_hook,
    filters_hook,
    place_hook,
    places_hook,
    run_options_hook,
    variables_hook,
)
from trioeval.suite.expand import means_prompt, refers_to
from trioeval.suite.form import (
    DEFINITIONS,
    IGNORED_KEYS,
    IGNORED_OPTIONS,
    IGNORED_SILENTLY,
    NOT_YET_IN_LANES,
    lane_mistakes,
    prompts_hook,
    provider_hook,
    provider_settings,
    providers_hook,
    templates_of,
)
from trioeval.suite.limit_form import known_limits, limit_keys_hook, limits_hook
from trioeval.suite.model import (
    UNREADABLE,
    BudgetSettings,
    CommandLineOptions,
    DerivedMetric,
    EvaluateOptions,
    LaneSettings,
    LimitsSettings,
    Prompt,
    ProviderEntry,
    RunLimits,
    Suite,
    Task,
    Test,
    TestOptions,
)
from trioeval.suite.rows_of_task import suite_of_rows
from trioeval.suite.sizes import is_number_list
from trioeval.suite.sources.tests import remote_reader
from trioeval.suite.test_form import (
    assertion_hook,
    default_test_hook,
    derived_hook,
    no_tests,
    options_hook,
    own_types_hook,
    scenarios_hook,
    test_hook,
    tests_hook,
)
from trioeval.suite.tests import checked_places
from trioeval.templates import Templates
from trioeval.templates.values import text_of

if TYPE_CHECKING:
    from trioeval.loading.tasks import TaskDocument

# References between parts of a suite: to lanes, prompts and providers.


def check_references(
    document: Mapping[str, Any], prompts: Sequence[Prompt] | None
) -> Iterator[Mistake]:
    """Yield mistakes for providers and tests that name an unknown lane, prompt or provider.

    Works on plain data, so that mistakes elsewhere in the file do not hide others. Parts with the wrong
    structure are skipped: their mistakes are reported elsewhere.
    """
    providers = tuple(_providers(document.get("providers")))
    for at, entry in providers:
        yield from (
            mistake.below(*at) for mistake in _lane_mistakes(entry, document.get("lanes", {}))
        )
    if document.get("limits") is None:
        yield from _limits_mistakes(providers, document.get("lanes"))
    if prompts is not None:
        for at, entry in (*providers, *_tests(document)):
            yield from (mistake.below(*at) for mistake in _prompt_mistakes(entry, prompts))
    if _all_known(providers, document.get("providers")):
        names = {
            str(entry[key]) for _, entry in providers for key in ("id", "label") if entry.get(key)
        }
        for at, entry in _tests(document):
            yield from (mistake.below(*at) for mistake in _provider_mistakes(entry, names))


def unknown_limits(
    document: Mapping[str, Any], suite: Suite, limits: Collection[str]
) -> Iterator[Mistake]:
    """Yield warnings about lanes that count against unknown limits: all of their calls will fail."""
    reported: set[str] = set()
    for at, lane in _lanes(tuple(_providers(document.get("providers"))), document.get("lanes")):
        for position, one in enumerate(lane["limits"]):
            key = one if isinstance(one, str) else one["key"]
            if key not in limits:
                reported.add(key)
                below = () if isinstance(one, str) else ("key",)
                yield _unknown_limit(key, limits, (*at, "limits", position, *below))
    # Providers may be in separate files.
    own = [entry.lane for entry in suite.providers]
    for settings in (*own, *suite.lanes.values()):
        for used in settings.limits if isinstance(settings, LaneSettings) else ():
            if used.key not in limits and used.key not in reported:
                yield _unknown_limit(used.key, limits, ("providers",))


def _unknown_limit(key: str, limits: Collection[str], at: DocumentPath) -> Mistake:
    message = f"unknown limit {quote(key)}: all calls of the lane will fail"
    return Mistake(message, nearest(key, limits), at=at)


def _all_known(found: Sequence[tuple[DocumentPath, Mapping[str, Any]]], providers: Any) -> bool:
    """Return whether these are all providers of a document: a file may contain more."""
    in_files = any(str(entry.get("id")).startswith(FILE) for _, entry in found)
    return isinstance(providers, list) and len(found) == len(providers) and not in_files


def _tests(document: Mapping[str, Any]) -> Iterator[tuple[DocumentPath, dict[str, Any]]]:
    """Yield the tests that are written in the document itself, with their paths."""
    tests = document.get("tests")
    places: list[tuple[DocumentPath, Any]] = [(("defaultTest",), document.get("defaultTest"))]
    places += [
        (("tests", position), test)
        for position, test in enumerate(tests if isinstance(tests, list) else ())
    ]
    for at, test in places:
        if isinstance(test, dict):
            yield at, test


def _providers(providers: Any) -> Iterator[tuple[DocumentPath, dict[str, Any]]]:
    for position, provider in enumerate(providers if isinstance(providers, list) else ()):
        try:
            below, settings = provider_settings(provider)
        except MistakenError:
            continue
        if isinstance(settings, dict):
            yield ("providers", position, *below), settings


def _lane_mistakes(entry: Mapping[str, Any], lanes: Any) -> Iterator[Mistake]:
    match entry:
        case {"lane": str(name)} if isinstance(lanes, dict) and name not in lanes:
            message = f"unknown lane {quote(name)}: it is not in $.lanes"
            yield Mistake(message, nearest(name, lanes), at=("lane",))
        case {"lane": str(), "delay": _}:
            message = "the delay of a named lane belongs in $.lanes"
            yield Mistake(message, "move it there", at=("delay",), key=True)
        case {"lane": {"delay": _}, "delay": _}:
            message = "the delay is given twice, here and in the lane"
            yield Mistake(message, "write one of them", at=("delay",), key=True)
        case _:
            pass


def _limits_mistakes(
    providers: Iterable[tuple[DocumentPath, Mapping[str, Any]]], lanes: Any
) -> Iterator[Mistake]:
    """Yield mistakes for lanes that count against limits in a suite without `limits`."""
    for at, _ in _lanes(providers, lanes):
        hint = 'write "limits" at the top of the file: it defines the limits'
        yield Mistake("$.limits is missing", hint, at=(*at, "limits"), key=True)


def _lanes(
    providers: Iterable[tuple[DocumentPath, Mapping[str, Any]]], lanes: Any
) -> Iterator[tuple[DocumentPath, Mapping[str, Any]]]:
    """Yield the lanes that count against limits, with their paths."""
    entries = [((*at, "lane"), entry.get("lane")) for at, entry in providers]
    if isinstance(lanes, dict):
        entries += [(("lanes", name), lane) for name, lane in lanes.items()]
    for at, lane in entries:
        if isinstance(lane, dict) and lane.get("limits"):
            yield at, lane


def _prompt_mistakes(entry: Mapping[str, Any], prompts: Sequence[Prompt]) -> Iterator[Mistake]:
    references = entry.get("prompts")
    for position, reference in enumerate(references if isinstance(references, list) else ()):
        if isinstance(reference, str) and not any(
            means_prompt([reference], prompt) for prompt in prompts
        ):
            raw = {prompt.raw for prompt in prompts}
            given = {name for prompt in prompts for name in (prompt.label, prompt.given_id) if name}
            named = given - raw
            message = f"unknown prompt {quote(reference)}"
            hint = nearest(reference, named) if named else "no prompt has a label or an id"
            yield Mistake(message, hint, at=("prompts", position))


def _provider_mistakes(entry: Mapping[str, Any], names: Collection[str]) -> Iterator[Mistake]:
    references = entry.get("providers")
    for position, reference in enumerate(references if isinstance(references, list) else ()):
        if isinstance(reference, str) and not any(refers_to(reference, name) for name in names):
            message = f"unknown provider {quote(reference)}"
            yield Mistake(message, nearest(reference, names), at=("providers", position))


_EVERYTHING = "{{prompt}}"
"""The prompt of a suite that has none."""
_EARLIER_RESULTS = ("filter_errors_only", "filter_failing", "filter_failing_only")
"""Options that name a result file."""
_PRINTED = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)\s*-?\}\}")
_EXAMINED = 1000  # tests that are examined for lists of numbers
_SHOWN = 20  # characters of a list in a message
_HOW_IT_RUNS = ("serialize", "registerScope")
"""Options that may also be at the top of a file."""


def structure_suite(
    document: Any,
    context: FileContext,
    *,
    whole: bool = True,
    prompts: tuple[Prompt, ...] | None = None,
    may_be_alone: bool = False,
    of_agents: bool = False,
) -> Suite:
    """Return the suite that plain data with the structure of a suite file defines.

    Args:
        document: JSON data.
        context: The context of the files that it names.
        whole: The data is complete; otherwise names may be defined in the rest.
        prompts: Prompts in place of its own, for all providers.
        may_be_alone: It needs no providers.
        of_agents: It is a task of type `agent`.

    Raises:
        MistakenError: All of its mistakes.
    """
    if not isinstance(document, dict):
        raise MistakenError(Mistake(f"a suite must be an object, got {kind(document)}", SUITE_HINT))
    known, mistakes = _top(document, context, needs_providers=whole and not may_be_alone)
    mistakes += _missing_tests(known, context, elsewhere=of_agents or may_be_alone)
    has_targets = known.get("providers") is document.get("targets") or "providers" not in document

    def as_written(mistake: Mistake) -> Mistake:
        return _moved_back(respelled(mistake) if has_targets else mistake, document)

    has_tasks = "tasks" in known
    if has_tasks:
        with moved_unknown_keys(as_written):
            mistakes += _take_tasks(known, context)
    filters = known.get("nunjucksFilters")
    filters = filters if isinstance(filters, dict) else {}
    read_prompts = prompts_hook(context, filters)
    own_prompts: tuple[Prompt, ...] | None = None
    with mistakes.below("prompts"):
        if prompts is None:
            own_prompts = read_prompts(known["prompts"], None)
    known["prompts"] = (own_prompts or ()) if prompts is None else prompts
    if whole and not has_tasks:  # parts that tasks inherit from the top are checked in them
        mistakes += check_references(known, own_prompts)
    suite = UNREADABLE
    of_agents = (
        of_agents or has_tasks
    )  # parts at the top that a task cannot have are reported by the task
    with mistakes.below(), moved_unknown_keys(as_written):
        converter = make_converter(context, templates_of(context, filters), of_agents=of_agents)
        suite = converter.structure(known, Suite)
    if mistakes:
        # Mistakes at the top are reported by each task as well.
        raise MistakenError(*dict.fromkeys(map(as_written, mistakes)))
    if not has_tasks:
        _warn_of_limits(known, suite, context)
        _warn_of_number_lists(suite, context)
    return _completed(suite, context)


def _warn_of_limits(known: dict[str, Any], suite: Suite, context: FileContext) -> None:
    """Warn of unknown limits that lanes name."""
    if suite.limits is None or suite.limits.backend != "memory":
        return
    if (limits := known_limits(suite.limits)) is not None:
        for warning in unknown_limits(known, suite, limits):
            context.warn(warning)


def _warn_of_number_lists(suite: Suite, context: FileContext) -> None:
    """Warn of lists of numbers that a prompt prints whole: unlike lists of texts they do not expand."""
    printed = {name for prompt in suite.prompts for name in _PRINTED.findall(prompt.raw)}
    default = suite.default_test or Test()
    if not printed or default.options.disable_var_expansion:
        return
    tests: list[tuple[DocumentPath, Test]] = [(("defaultTest",), default)]
    places = itertools.islice(checked_places(suite.tests), _EXAMINED)
    tests += ((("tests", place), suite.tests[place]) for place in places)
    for at, test in tests:
        if test.options.disable_var_expansion or test.is_data:
            continue
        for name in sorted(name for name in printed if is_number_list(test.vars.get(name))):
            printed.remove(name)
            shown = text_of(test.vars[name])
            shown = shown if len(shown) <= _SHOWN else f"{shown[: _SHOWN - 1]}…"
            message = (
                f"the list of numbers {quote(name)} stays one value, and is printed as {shown}"
            )
            hint = (
                'quote its members for one test each: ["1", "2", "3"]; '
                "with options.disableVarExpansion this is not reported"
            )
            context.warn(Mistake(message, hint, at=(*at, "vars", name)))


def make_converter(
    context: FileContext, templates: Templates | None = None, *, of_agents: bool = False
) -> cattrs.Converter:
    """Return the converter whose `structure(document, Suite)` defines the meaning of a suite file.

    Args:
        context: The context of files.
        templates: Checks the syntax of templates in tests; None leaves that to the run.
        of_agents: Tests may be cases, and agents may be judged.
    """
    converter = strict_converter()

    def lane_or_name(value: Any, _wanted: Any) -> LaneSettings | str | None:
        if value is None or isinstance(value, str):
            return value
        return converter.structure(value, LaneSettings)

    # A hook looks up those of its fields when it is created: inner types come first.
    register = converter.register_structure_hook
    lane = {"limits": limit_keys_hook(converter)}
    register(
        LaneSettings,
        object_hook(
            converter, LaneSettings, not_yet=NOT_YET_IN_LANES, hooks=lane, check=lane_mistakes
        ),
    )
    register(LimitsSettings, limits_hook(converter, context))
    register(LaneSettings | str | None, lane_or_name)
    register(BudgetSettings, object_hook(converter, BudgetSettings))
    register(EvaluateOptions, run_options_hook(converter, context))
    register(CommandLineOptions, _flags_hook(converter, context))
    if of_agents:
        from trioeval.agent.cases import WorkspaceTemplates, case_form, workspace_hook

        workspaces = WorkspaceTemplates.of(context, templates or Templates())
        extra = case_form(converter, workspace_hook(workspaces))
    else:
        from trioeval.agent.case_keys import form_without_cases

        extra = form_without_cases()
    register(Assertion, assertion_hook(converter, context, templates, extra))
    register(ProviderEntry, provider_hook(converter, context, templates))
    register(TestOptions, options_hook(converter, context, templates))
    register(Test, test_hook(converter, context, extra))
    register(RunLimits, object_hook(converter, RunLimits))
    register(DerivedMetric, derived_hook(converter, context))

    def of_remote() -> cattrs.Converter:
        from trioeval.suite.sources.remote_tests import guarded

        return make_converter(guarded(context), templates, of_agents=of_agents)

    remote = remote_reader(of_remote)
    register(
        Suite,
        object_hook(
            converter,
            Suite,
            hooks={
                "prompts": prompts_hook(context),
                "providers": providers_hook(converter, context),
                "tests": tests_hook(converter, context, remote),
                "default_test": default_test_hook(converter, context, extra),
                "scenarios": scenarios_hook(converter, context, remote),
                "env": variables_hook(context),
                "output_path": places_hook(context),
                "extensions": code_texts(context),
                "nunjucks_filters": filters_hook(converter, context),
                "assertion_types": own_types_hook(context),
                "tasks": lambda tasks, _wanted: tasks,  # already read
            },
        ),
    )
    return converter


def converter_of(suite: Suite, context: FileContext) -> cattrs.Converter:
    """Return the converter for parts that code adds to a suite, or changes, after it was loaded."""
    return make_converter(context, of_agents=is_agent(suite.settings))


def _flags_hook(converter: cattrs.Converter, context: FileContext) -> Hook:
    hooks = {
        "extension": code_texts(context),
        "env_file": env_files_hook(context),
        "env_path": env_files_hook(context),
        "output": places_hook(context),
        **dict.fromkeys(_EARLIER_RESULTS, place_hook(context)),
    }
    return object_hook(converter, CommandLineOptions, hooks=hooks)


def _top(
    document: dict[str, Any], context: FileContext, *, needs_providers: bool
) -> tuple[dict[str, Any], Mistakes]:
    """Return the top level of a file in its plain form, and its mistakes."""
    mistakes = Mistakes()
    known = {
        key: part
        for key, part in document.items()
        if not (part is None or key in (*IGNORED_KEYS, *DEFINITIONS) or key.startswith("x-"))
    }
    for key in document:
        if key in IGNORED_KEYS and key not in IGNORED_SILENTLY:
            context.warn(Mistake(f"{key} has no effect here", at=(key,), key=True))
    if "targets" in known:
        if "providers" in known:
            message = "providers and targets are the same key: write one of them"
            mistakes.append(Mistake(message, at=("targets",), key=True))
        known["providers"] = known.pop("targets")
    _leave_out_options(known, context)
    if "tasks" in known:
        mistakes += _move_options(known)
        return known, mistakes
    if not known.get("providers"):
        at = ("providers",) if {"providers", "targets"} & document.keys() else ()
        missing = Mistake("the suite has no providers", 'for example "providers": ["echo"]', at=at)
        mistakes += [missing] if needs_providers else []
        known["providers"] = []
    if known.setdefault("prompts", [_EVERYTHING]) == []:
        hint = f"leave the key out for the one prompt {_EVERYTHING}"
        mistakes.append(Mistake("the suite has no prompts", hint, at=("prompts",)))
    if known.get("scenarios") is not None:
        known.setdefault("tests", [])
    mistakes += _move_options(known)
    return known, mistakes


def _missing_tests(
    known: Mapping[str, Any], context: FileContext, *, elsewhere: bool
) -> list[Mistake]:
    """Return the mistake of an empty list of tests, unless it is checked elsewhere.

    With scenarios it is valid: only they run then.
    """
    is_allowed = elsewhere or context.allow_empty or "scenarios" in known
    return [no_tests().below("tests")] if known.get("tests") == [] and not is_allowed else []


def _take_tasks(known: dict[str, Any], context: FileContext) -> list[Mistake]:
    """Read the tasks of a file; the remaining keys are those of a suite without rows."""
    from trioeval.loading.tasks import read_tasks

    tasks: tuple[Task, ...] = ()
    mistakes = Mistakes()
    with mistakes.below():
        tasks = read_tasks(known, lambda document: _structured_task(document, context))
    known.pop("scenarios", None)
    known.setdefault("providers", [])
    known.update(tasks=tasks, prompts=(), tests=[])
    return mistakes


def _structured_task(
    document: TaskDocument, context: FileContext
) -> tuple[Suite, Sequence[Mistake]]:
    """Return the suite of a task, and its mistakes."""
    from trioeval.agent.form import agent_suite
    from trioeval.columns.form import ColumnsContext, columns_suite
    from trioeval.loading.tasks import AGENT, COLUMNS, QUESTION_EVAL
    from trioeval.question_eval.form import QUESTION_PROMPT, question_suite

    warn = context.warn
    context = attrs.evolve(context, warn=lambda warning: warn(document.placed(warning)))
    data = document.data
    filters = data.get("nunjucksFilters")
    templates = templates_of(context, filters if isinstance(filters, dict) else {})
    if document.type == QUESTION_EVAL:
        return question_suite(
            document.settings,
            context,
            lambda: structure_suite(data, context, prompts=(QUESTION_PROMPT,)),
        )
    if document.type == COLUMNS:
        reading = ColumnsContext(
            context,
            templates,
            make_converter(attrs.evolve(context, warn=lambda _: None), templates),
            lambda data, context: structure_suite(data, context, prompts=(), may_be_alone=True),
        )
        return columns_suite(document.settings, data, reading)
    of_agents = document.type == AGENT

    def structured() -> tuple[Suite, list[Mistake]]:
        return suite_of_rows(
            data,
            make_converter(context, templates, of_agents=of_agents),
            templates,
            lambda data: structure_suite(data, context, of_agents=of_agents),
        )

    if of_agents:
        return agent_suite(document.settings, data, context, templates, structured)
    return structured()


def _leave_out_options(known: dict[str, Any], context: FileContext) -> None:
    """Remove options without effect, with a warning."""
    options = known.get("evaluateOptions")
    if not isinstance(options, dict):
        return
    ignored = [key for key in options if camel(key) in IGNORED_OPTIONS]
    for key in ignored:
        at = ("evaluateOptions", key)
        context.warn(Mistake(f"{key} has no effect here", at=at, key=True))
    known["evaluateOptions"] = {key: part for key, part in options.items() if key not in ignored}


def _move_options(known: dict[str, Any]) -> list[Mistake]:
    """Move options at the top of the file to `evaluateOptions`."""
    mistakes = Mistakes()
    for name in _HOW_IT_RUNS:
        if name not in known:
            continue
        value = known.pop(name)
        options = known.get("evaluateOptions", {})
        if isinstance(options, dict) and name in options:
            message = f"{name} is given twice, here and in evaluateOptions"
            mistakes.append(Mistake(message, "write one of them", at=(name,), key=True))
        elif isinstance(options, dict):
            known["evaluateOptions"] = {**options, name: value}
    return mistakes


def _moved_back(mistake: Mistake, document: dict[str, Any]) -> Mistake:
    """Return a mistake in such an option with its path at the top of the file."""
    match mistake.at:
        case ("evaluateOptions", str(name), *rest) if (
            name in _HOW_IT_RUNS and name in document and mistake.file is None
        ):
            return attrs.evolve(mistake, at=(name, *rest))
        case _:
            return mistake


def _completed(suite: Suite, context: FileContext) -> Suite:
    """Return the suite with a default test that contains suite-wide values, which a test overrides."""
    default = suite.default_test or Test()
    found = attrs.evolve(default, metadata={**suite.metadata, **default.metadata})
    if context.switch("DISABLE_VAR_EXPANSION"):
        options = attrs.evolve(default.options, disable_var_expansion=True)
        found = attrs.evolve(found, options=options)
    return suite if found == default else attrs.evolve(suite, default_test=found)


def respelled(mistake: Mistake) -> Mistake:
    """Return a mistake with its path in a file that uses `targets` for `providers`."""
    match mistake.at:
        case ("providers", *rest) if mistake.file is None:
            return attrs.evolve(mistake, at=("targets", *rest))
        case _:
            return mistake
