"""From plain data to a `Suite`, strictly, with everything that is wrong said at once.

Nothing is converted and nothing is ignored: `"5"` is not a number, `true` is not 1, a key that is not
known is a mistake. Each model has a hook made by cattrs; what is written in several ways (a provider as
text or object, `targets` for `providers`) is brought into one form before it, and what is written in
another file is read.
"""

from collections.abc import Mapping
from typing import Any

import attrs
import cattrs

from trioeval.grading import Assertion
from trioeval.suite.agent_entries import agent_suite
from trioeval.suite.agent_models import RunLimits
from trioeval.suite.agent_tests import case_hook, with_case
from trioeval.suite.agent_workspaces import WorkspaceTemplates, workspace_hook
from trioeval.suite.column_entries import Reading, columns_suite
from trioeval.suite.forms import (
    one_or_more,
    prompts_hook,
    provider_hook,
    providers_hook,
    scalar_texts,
    templates_of,
    text_or_number,
)
from trioeval.suite.keys import (
    DEFINITIONS,
    NOT_YET_IN_LANES,
    UNTOLD,
    WITHOUT_MEANING,
    WITHOUT_MEANING_IN_OPTIONS,
)
from trioeval.suite.mistakes import Mistake, MistakenError, PartlyRightError, kind
from trioeval.suite.models import (
    BudgetSettings,
    CommandLineOptions,
    DerivedMetric,
    EvaluateOptions,
    LaneSettings,
    Prompt,
    ProviderEntry,
    Suite,
    Task,
    Test,
    TestOptions,
)
from trioeval.suite.partly import right_part
from trioeval.suite.path_forms import place_hook, places_hook, variables_hook
from trioeval.suite.question_entries import question_suite
from trioeval.suite.question_tests import QUESTION_PROMPT
from trioeval.suite.quota_forms import limits_in_memory, quota_hook, quota_keys_hook
from trioeval.suite.quota_models import QuotaSettings
from trioeval.suite.references import check_references, unknown_limits
from trioeval.suite.row_sources import suite_of_rows
from trioeval.suite.scoring_forms import derived_hook, own_types_hook
from trioeval.suite.sources.around import Around
from trioeval.suite.strict import Hook, camel, object_hook, strict_converter
from trioeval.suite.task_documents import AGENT, COLUMNS, QUESTION_EVAL, TaskDocument
from trioeval.suite.task_entries import read_tasks
from trioeval.suite.templates import Templates
from trioeval.suite.tests_forms import (
    assertion_hook,
    default_test_hook,
    no_tests,
    options_hook,
    scenarios_hook,
    test_hook,
    tests_hook,
)
from trioeval.suite.trust_forms import code_texts, env_files_hook, filters_hook, run_options_hook

_EVERYTHING = "{{prompt}}"
"""The prompt of a suite that names none."""
NOT_IN_FILES = (
    "agents",
    "allow_outside",
    "columns",
    "directory",
    "file",
    "files",
    "kinds",
    "place",
    "questions",
    "roots",
    "rows_of",
    "trust",
    "unknown",
    "warnings",
)
"""Fields of a suite that are found, not written."""
RENAMED = {**dict.fromkeys(NOT_IN_FILES), "run_limits": "agents"}
"""Keys of a suite that are called otherwise than its fields; None of what is not in files."""
_EARLIER_RESULTS = ("filter_errors_only", "filter_failing", "filter_failing_only")
"""Options that name a result file."""
_HOW_IT_RUNS = ("serialize", "registerScope")
"""Options that may stand at the top of a file as well."""


def structure_suite(
    document: Any,
    around: Around,
    *,
    whole: bool = True,
    prompts: tuple[Prompt, ...] | None = None,
    may_be_alone: bool = False,
    of_agents: bool = False,
) -> Suite:
    """The suite that plain data of the shape of a suite file stands for.

    Args:
        document: JSON data.
        around: What the files that it names are read against.
        whole: Whether that is all; otherwise nothing is said of what may stand in the rest.
        prompts: Those that it has, whoever gets which, in place of its own.
        may_be_alone: Whether it needs no providers.
        of_agents: Whether it is a task of type `agent`.

    Raises:
        PartlyRightError: Everything that is wrong with it, with the suite that the rest of it is.
        MistakenError: It is no object.
    """
    if not isinstance(document, dict):
        raise MistakenError(Mistake(f"a suite must be an object, got {kind(document)}"))
    known, mistakes = _top(document, around, needs_providers=whole and not may_be_alone)
    mistakes += _missing_tests(known, around, elsewhere=of_agents or may_be_alone)
    has_tasks = "tasks" in known
    if has_tasks:
        mistakes += _take_tasks(known, around)
    filters = known.get("nunjucksFilters")
    filters = filters if isinstance(filters, dict) else {}
    read_prompts = prompts_hook(around, filters)
    own_prompts: tuple[Prompt, ...] | None = None
    try:
        if prompts is None:
            own_prompts = read_prompts(known["prompts"], None)
        known["prompts"] = own_prompts if prompts is None else prompts
    except MistakenError as error:
        mistakes += [mistake.below("prompts") for mistake in error.parts]
        known["prompts"] = ()
    if whole and not has_tasks:  # what tasks have from the top is looked at in them
        mistakes += check_references(known, own_prompts)
    suite: Suite | None = None
    of_agents = of_agents or has_tasks  # what tasks cannot have from the top, they tell
    try:
        converter = make_converter(around, templates_of(around, filters), of_agents=of_agents)
        suite = converter.structure(known, Suite)
    except MistakenError as error:
        mistakes += error.parts
    if suite is not None and not mistakes:
        if not has_tasks:
            _warn_of_limits(known, suite, around)
        return _completed(suite, around)
    if known["providers"] is document.get("targets") or "providers" not in document:
        mistakes = [respelled(mistake) for mistake in mistakes]
    mistakes = [_moved_back(mistake, document) for mistake in mistakes]
    silent = attrs.evolve(around, warn=lambda _: None)
    right = suite or right_part(known, make_converter(silent, of_agents=of_agents))
    # A task tells what is wrong at the top as well.
    raise PartlyRightError(*dict.fromkeys(mistakes), right=_completed(right, around))


def _warn_of_limits(known: dict[str, Any], suite: Suite, around: Around) -> None:
    """Tell of limits that lanes name and nobody keeps."""
    limits = None if suite.quota is None else limits_in_memory(suite.quota)
    if limits is None:
        return
    for warning in unknown_limits(known, suite, limits):
        around.warn(warning)


def make_converter(
    around: Around, templates: Templates | None = None, *, of_agents: bool = False
) -> cattrs.Converter:
    """The converter whose `structure(document, Suite)` is the meaning of a suite file.

    Args:
        around: What files are read against.
        templates: Tell what is wrong with the templates in tests; None to find that out as rows run.
        of_agents: Whether tests may be cases, and agents may be judged.
    """
    converter = strict_converter()
    workspace: Hook | None = None
    if of_agents:
        workspace = workspace_hook(WorkspaceTemplates.of(around, templates or Templates()))

    def lane_or_name(value: Any, _wanted: Any) -> LaneSettings | str | None:
        if value is None or isinstance(value, str):
            return value
        return converter.structure(value, LaneSettings)

    # A hook looks up those of its fields when it is made: what is inside comes first.
    register = converter.register_structure_hook
    lane = {"quota": quota_keys_hook(converter)}
    register(
        LaneSettings,
        object_hook(converter, LaneSettings, not_yet=NOT_YET_IN_LANES, hooks=lane),
    )
    register(QuotaSettings, quota_hook(converter, around))
    register(LaneSettings | str | None, lane_or_name)
    register(BudgetSettings, object_hook(converter, BudgetSettings))
    register(EvaluateOptions, run_options_hook(converter, around))
    register(CommandLineOptions, _flags_hook(converter, around))
    register(Assertion, assertion_hook(converter, around, templates, of_agents=of_agents))
    register(ProviderEntry, provider_hook(converter, around))
    register(TestOptions, options_hook(converter, around, templates))
    one = test_hook(converter, around, of_agents=of_agents)
    register(Test, with_case(one, case_hook(converter, workspace)))
    register(RunLimits, object_hook(converter, RunLimits))
    register(DerivedMetric, derived_hook(converter, around))
    register(
        Suite,
        object_hook(
            converter,
            Suite,
            renamed=RENAMED,
            hooks={
                "prompts": prompts_hook(around),
                "providers": providers_hook(converter, around),
                "tests": tests_hook(converter, around),
                "default_test": default_test_hook(converter, around),
                "scenarios": scenarios_hook(converter, around),
                "description": text_or_number,
                "env": variables_hook(around),
                "tags": scalar_texts,
                "output_path": places_hook(around),
                "extensions": code_texts(around),
                "nunjucks_filters": filters_hook(converter, around),
                "assertion_types": own_types_hook(around),
                "tasks": lambda tasks, _wanted: tasks,  # read already
            },
        ),
    )
    return converter


def _flags_hook(converter: cattrs.Converter, around: Around) -> Hook:
    hooks = {
        "extension": code_texts(around),
        "env_file": env_files_hook(around),
        "env_path": env_files_hook(around),
        "filter_metadata": one_or_more,
        "output": places_hook(around),
        "tags": scalar_texts,
        "var": scalar_texts,
        **dict.fromkeys(_EARLIER_RESULTS, place_hook(around)),
    }
    return object_hook(converter, CommandLineOptions, hooks=hooks)


def _top(
    document: dict[str, Any], around: Around, *, needs_providers: bool
) -> tuple[dict[str, Any], list[Mistake]]:
    """The top of a file in its plain form, and what is wrong with it as a whole."""
    mistakes: list[Mistake] = []
    known = {
        key: part
        for key, part in document.items()
        if not (part is None or key in (*WITHOUT_MEANING, *DEFINITIONS) or key.startswith("x-"))
    }
    for key in document:
        if key in WITHOUT_MEANING and key not in UNTOLD:
            around.warn(Mistake(f"{key} has no meaning here", at=(key,), key=True))
    if "targets" in known:
        if "providers" in known:
            message = "providers and targets are the same key: write one of them"
            mistakes.append(Mistake(message, at=("targets",), key=True))
        known["providers"] = known.pop("targets")
    _leave_out_options(known, around)
    if "tasks" in known:
        return known, mistakes + _move_options(known)
    if not known.get("providers"):
        at = ("providers",) if {"providers", "targets"} & document.keys() else ()
        missing = Mistake("there are no providers", 'for example "providers": ["echo"]', at=at)
        mistakes += [missing] if needs_providers else []
        known["providers"] = []
    if known.setdefault("prompts", [_EVERYTHING]) == []:
        hint = f"leave the key out for the one prompt {_EVERYTHING}"
        mistakes.append(Mistake("there are no prompts", hint, at=("prompts",)))
    if known.get("scenarios") is not None:
        known.setdefault("tests", [])
    mistakes += _move_options(known)
    return known, mistakes


def _missing_tests(known: Mapping[str, Any], around: Around, *, elsewhere: bool) -> list[Mistake]:
    """The mistake of an empty list of tests, unless it is checked elsewhere.

    With scenarios it is no mistake: they are all that runs then.
    """
    is_allowed = elsewhere or around.allow_empty or "scenarios" in known
    return [no_tests().below("tests")] if known.get("tests") == [] and not is_allowed else []


def _take_tasks(known: dict[str, Any], around: Around) -> list[Mistake]:
    """Read the tasks of a file; what is left is a suite without rows of its own."""
    tasks: tuple[Task, ...] = ()
    mistakes: list[Mistake] = []
    try:
        tasks = read_tasks(known, lambda document: _structured_task(document, around))
    except PartlyRightError as error:
        mistakes += error.parts
        tasks = error.right
    except MistakenError as error:
        mistakes += error.parts
    known.pop("scenarios", None)
    known.setdefault("providers", [])
    known.update(tasks=tasks, prompts=(), tests=[])
    return mistakes


def _structured_task(document: TaskDocument, around: Around) -> Suite:
    warn = around.warn
    around = attrs.evolve(around, warn=lambda warning: warn(document.placed(warning)))
    data = document.data
    filters = data.get("nunjucksFilters")
    templates = templates_of(around, filters if isinstance(filters, dict) else {})
    if document.type == QUESTION_EVAL:
        return question_suite(
            document.settings,
            around,
            lambda: structure_suite(data, around, prompts=(QUESTION_PROMPT,)),
        )
    if document.type == COLUMNS:
        reading = Reading(
            around,
            templates,
            make_converter(attrs.evolve(around, warn=lambda _: None), templates),
            lambda data, around: structure_suite(data, around, prompts=(), may_be_alone=True),
        )
        return columns_suite(document.settings, data, reading)
    of_agents = document.type == AGENT

    def structured() -> Suite:
        return suite_of_rows(
            data,
            make_converter(around, templates, of_agents=of_agents),
            templates,
            lambda data: structure_suite(data, around, of_agents=of_agents),
        )

    if of_agents:
        return agent_suite(document.settings, data, around, templates, structured)
    return structured()


def _leave_out_options(known: dict[str, Any], around: Around) -> None:
    """Leave out options without meaning, and tell of them."""
    options = known.get("evaluateOptions")
    if not isinstance(options, dict):
        return
    ignored = [key for key in options if camel(key) in WITHOUT_MEANING_IN_OPTIONS]
    for key in ignored:
        at = ("evaluateOptions", key)
        around.warn(Mistake(f"{key} has no meaning here", at=at, key=True))
    known["evaluateOptions"] = {key: part for key, part in options.items() if key not in ignored}


def _move_options(known: dict[str, Any]) -> list[Mistake]:
    """Bring options that stand at the top to where the others are."""
    mistakes: list[Mistake] = []
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
    """The same mistake where the option stands, if that is the top."""
    match mistake.at:
        case ("evaluateOptions", str(name), *rest) if (
            name in _HOW_IT_RUNS and name in document and mistake.file is None
        ):
            return attrs.evolve(mistake, at=(name, *rest))
        case _:
            return mistake


def _completed(suite: Suite, around: Around) -> Suite:
    """The suite with a default test that says what holds for all tests, over which a test's own win."""
    default = suite.default_test or Test()
    found = attrs.evolve(default, metadata={**suite.metadata, **default.metadata})
    if around.switch("DISABLE_VAR_EXPANSION"):
        options = attrs.evolve(default.options, disable_var_expansion=True)
        found = attrs.evolve(found, options=options)
    return suite if found == default else attrs.evolve(suite, default_test=found)


def respelled(mistake: Mistake) -> Mistake:
    """The same mistake in a file that says `targets` for `providers`."""
    match mistake.at:
        case ("providers", *rest) if mistake.file is None:
            return attrs.evolve(mistake, at=("targets", *rest))
        case _:
            return mistake
