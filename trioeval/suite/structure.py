"""From plain data to a `Suite`, strictly, with everything that is wrong said at once.

Nothing is converted and nothing is ignored: `"5"` is not a number, `true` is not 1, a key that is not
known is a mistake. Each model has a hook made by cattrs; what is written in several ways (a provider as
text or object, `targets` for `providers`) is brought into one form before it, and what is written in
another file is read.
"""

from typing import Any

import attrs
import cattrs

from trioeval.grading import Assertion
from trioeval.suite.forms import (
    one_or_more,
    prompts_hook,
    provider_hook,
    providers_hook,
    scalar_texts,
)
from trioeval.suite.keys import (
    NOT_YET_AT_TOP,
    NOT_YET_IN_LANES,
    NOT_YET_IN_OPTIONS,
    UNTOLD,
    WITHOUT_MEANING,
)
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.models import (
    BudgetSettings,
    CommandLineOptions,
    EvaluateOptions,
    LaneSettings,
    Prompt,
    ProviderEntry,
    Suite,
    Task,
    Test,
    TestOptions,
)
from trioeval.suite.references import check_references
from trioeval.suite.sources.around import Around
from trioeval.suite.strict import Hook, object_hook, strict_converter
from trioeval.suite.task_entries import read_tasks
from trioeval.suite.tests_forms import (
    assertion_hook,
    default_test_hook,
    options_hook,
    scenarios_hook,
    test_hook,
    tests_hook,
)

_EVERYTHING = "{{prompt}}"
"""The prompt of a suite that names none."""
NOT_IN_FILES = ("allow_outside", "directory", "file", "files", "roots", "warnings")
"""Fields of a suite that are found, not written."""
_HOW_IT_RUNS = ("serialize", "registerScope")
"""Options that may stand at the top of a file as well."""


def structure_suite(document: Any, around: Around) -> Suite:
    """The suite that plain data of the shape of a suite file stands for.

    Args:
        document: JSON data.
        around: What the files that it names are read against.

    Raises:
        MistakenError: Everything that is wrong with it.
    """
    if not isinstance(document, dict):
        raise MistakenError(Mistake(f"a suite must be an object, got {kind(document)}"))
    known, mistakes = _top(document, around)
    has_tasks = "tasks" in known
    if has_tasks:
        mistakes += _take_tasks(known, around)
    filters = known.get("nunjucksFilters")
    read_prompts = prompts_hook(around, filters if isinstance(filters, dict) else ())
    prompts: tuple[Prompt, ...] | None = None
    try:
        prompts = known["prompts"] = read_prompts(known["prompts"], None)
    except MistakenError as error:
        mistakes += [mistake.below("prompts") for mistake in error.parts]
        known["prompts"] = ()
    if not has_tasks:  # what tasks have from the top is looked at in them
        mistakes += check_references(known, prompts)
    suite: Suite | None = None
    try:
        suite = make_converter(around).structure(known, Suite)
    except MistakenError as error:
        mistakes += error.parts
    if suite is not None and not mistakes:
        return _completed(suite, around)
    if "targets" in document:
        mistakes = [respelled(mistake) for mistake in mistakes]
    # A task tells what is wrong at the top as well.
    raise MistakenError(*dict.fromkeys(mistakes))


def make_converter(around: Around) -> cattrs.Converter:
    """The converter whose `structure(document, Suite)` is the meaning of a suite file."""
    converter = strict_converter()

    def lane_or_name(value: Any, _wanted: Any) -> LaneSettings | str | None:
        if value is None or isinstance(value, str):
            return value
        return converter.structure(value, LaneSettings)

    # A hook looks up those of its fields when it is made: what is inside comes first.
    register = converter.register_structure_hook
    register(LaneSettings, object_hook(converter, LaneSettings, not_yet=NOT_YET_IN_LANES))
    register(LaneSettings | str | None, lane_or_name)
    register(BudgetSettings, object_hook(converter, BudgetSettings))
    register(EvaluateOptions, object_hook(converter, EvaluateOptions, not_yet=NOT_YET_IN_OPTIONS))
    register(CommandLineOptions, _flags_hook(converter))
    register(Assertion, assertion_hook(converter, around))
    register(ProviderEntry, provider_hook(converter))
    register(TestOptions, options_hook(converter))
    register(Test, test_hook(converter, around))
    register(
        Suite,
        object_hook(
            converter,
            Suite,
            renamed=dict.fromkeys(NOT_IN_FILES),
            not_yet=NOT_YET_AT_TOP,
            hooks={
                "prompts": prompts_hook(around),
                "providers": providers_hook(converter, around),
                "tests": tests_hook(converter, around),
                "default_test": default_test_hook(converter, around),
                "scenarios": scenarios_hook(converter, around),
                "env": scalar_texts,
                "tags": scalar_texts,
                "output_path": one_or_more,
                "extensions": one_or_more,
                "tasks": lambda tasks, _wanted: tasks,  # read already
            },
        ),
    )
    return converter


def _flags_hook(converter: cattrs.Converter) -> Hook:
    hooks = {"var": scalar_texts, "output": one_or_more, "filter_metadata": one_or_more}
    return object_hook(converter, CommandLineOptions, hooks=hooks)


def _top(document: dict[str, Any], around: Around) -> tuple[dict[str, Any], list[Mistake]]:
    """The top of a file in its plain form, and what is wrong with it as a whole."""
    mistakes: list[Mistake] = []
    known = {
        key: part
        for key, part in document.items()
        if not (key in WITHOUT_MEANING or key.startswith("x-"))
    }
    for key in document:
        if key in WITHOUT_MEANING and key not in UNTOLD:
            around.warn(Mistake(f"{key} has no meaning here", at=(key,), key=True))
    if "targets" in known:
        if "providers" in known:
            message = "providers and targets are the same key: write one of them"
            mistakes.append(Mistake(message, at=("targets",), key=True))
        known["providers"] = known.pop("targets")
    if "tasks" in known:
        return known, mistakes + _move_options(known)
    if not known.get("providers"):
        at = ("providers",) if "providers" in known else ()
        mistakes.append(
            Mistake("there are no providers", 'for example "providers": ["echo"]', at=at)
        )
        known["providers"] = []
    if known.setdefault("prompts", [_EVERYTHING]) == []:
        hint = f"leave the key out for the one prompt {_EVERYTHING}"
        mistakes.append(Mistake("there are no prompts", hint, at=("prompts",)))
    if known.get("tests") in ([], None):
        # A file without tests has an empty one, but a file with scenarios means what it says.
        known.pop("tests", None)
        if known.get("scenarios") is not None:
            known["tests"] = []
    mistakes += _move_options(known)
    return known, mistakes


def _take_tasks(known: dict[str, Any], around: Around) -> list[Mistake]:
    """Read the tasks of a file; what is left is a suite without rows of its own."""
    tasks: tuple[Task, ...] = ()
    mistakes: list[Mistake] = []
    try:
        tasks = read_tasks(known, lambda document: structure_suite(document, around))
    except MistakenError as error:
        mistakes += error.parts
    known.pop("scenarios", None)
    known.setdefault("providers", [])
    known.update(tasks=tasks, prompts=(), tests=[])
    return mistakes


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
