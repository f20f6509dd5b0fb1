"""Extensions of a suite: functions of the user that are called when a run or a row begins and ends.

They are in files of Python, JavaScript or TypeScript.

A function that is named after an event is called for that event only, as
`function(context, {"hookName": event})`; any other function is called for all events, as
`function(event, context)`. Its return value may change the context.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import attrs
import cattrs

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, below, kind, read_list
from trioeval.documents.paths import show_path
from trioeval.documents.structure import snake
from trioeval.grading import quote
from trioeval.scripting import is_script
from trioeval.suite.form import many, prompts_hook
from trioeval.suite.model import Suite, Test
from trioeval.suite.plain import kept_or_read, key_of, plain_prompt, plain_test, suite_for_hooks
from trioeval.suite.sources.tests import refuse_remote
from trioeval.suite.test_form import scenarios_hook
from trioeval.text import verbatim

Event: TypeAlias = Literal["beforeAll", "beforeEach", "afterEach", "afterAll"]
EVENTS: tuple[Event, ...] = get_args(Event)


@attrs.frozen
class Extension:
    """One extension function."""

    file: Path
    function: str
    event: Event | None = None
    """The only event it is called for; None is all events."""

    def handles(self, event: Event) -> bool:
        """Return whether it is called for an event."""
        return self.event in {None, event}

    def arguments(self, event: Event, context: Mapping[str, Any]) -> list[Any]:
        """Return the arguments that it is called with."""
        return [event, context] if self.event is None else [context, {"hookName": event}]

    def __str__(self) -> str:
        return f"{self.file.name}:{self.function}"


def read_extensions(texts: Sequence[str], context: FileContext) -> tuple[Extension, ...]:
    """Return the functions that `file://<file>[:<function>]` name.

    Raises:
        MistakenError: A file does not exist, or is neither Python nor JavaScript, or cannot run.
    """
    with below("extensions"):
        return tuple(read_list(texts, lambda text: _extension(text, context)))


def _extension(text: str, context: FileContext) -> Extension:
    from trioeval.suite.sources.code import FUNCTION, check_node, code_file

    file, function = code_file(text, context)
    if is_script(file):
        check_node(file, "is an extension", context)
    event = next((one for one in EVENTS if one == function), None)
    return Extension(file, function or FUNCTION, event)


def with_before_all(
    suite: Suite,
    extensions: Sequence[Extension],
    context: FileContext,
    converter: Callable[[Suite, FileContext], cattrs.Converter],
    complete: Callable[[Suite, Any], Suite],
) -> Suite:
    """Return a suite as changed by its extensions before a run begins.

    They may change prompts, tests, scenarios and the default test; everything else stays.

    Args:
        suite: The suite, or one of its tasks.
        extensions: Its extensions.
        context: The context of its files.
        converter: Returns the converter of the parts that they return.
        complete: Adds to a changed suite the keys that its tests have by its type, given the suite and the
            tests as they were returned; raises MistakenError if they are not consistent.

    Raises:
        MistakenError: One of them fails, or returns an invalid suite.
    """
    from trioeval.suite.sources.code import call_function

    if suite.before_all is not None:
        return attrs.evolve(suite, **suite.before_all)
    given = suite
    for position, extension in enumerate(extensions):
        if not extension.handles("beforeAll"):
            continue
        makes = f"what beforeAll of {extension} makes of tests and prompts"
        try:
            if not context.may_run(quote(str(extension)), makes):
                continue
            hook_context = {"suite": suite_for_hooks(suite)}
            arguments = extension.arguments("beforeAll", hook_context)
            target = extension.function
            if is_script(extension.file):
                target = f"prefer:{target}"
            returned = call_function(extension.file, target, arguments, context)
            if returned:
                returned_suite = _suite_in(returned)
                suite = _changed(suite, returned_suite, context, converter(suite, context))
                suite = complete(suite, returned_suite.get("tests"))
        except MistakenError as error:
            raise MistakenError(
                *(_in_extension(part, extension, position) for part in error.parts)
            ) from None
    changed = {
        field.name: getattr(suite, field.name)
        for field in attrs.fields(Suite)
        if getattr(suite, field.name) is not getattr(given, field.name)
    }
    return attrs.evolve(suite, before_all=changed)


def read_returned_test(returned: Any, structure: cattrs.Converter, *, is_data: bool) -> Test:
    """Return a test that an extension returned.

    An extension that changes rows of someone else does not make templates or names of files of them.

    Args:
        returned: The test as JSON data.
        structure: The converter of tests.
        is_data: Whether the variables of the test that it got are row data, see `trioeval.text.verbatim`.

    Raises:
        MistakenError: It is not a valid test.
    """
    if is_data and isinstance(returned, dict):
        returned = {**returned, "vars": verbatim(returned.get("vars"))}
    test: Test = structure.structure(returned, Test)
    return attrs.evolve(test, is_data=is_data)


def _suite_in(returned: Any) -> dict[str, Any]:
    match returned:
        case {"suite": dict(suite)}:
            return suite
        case _:
            hint = "return the context, or nothing"
            raise MistakenError(
                Mistake(f"must be an object with a suite, got {kind(returned)}", hint)
            )


def _in_extension(mistake: Mistake, extension: Extension, position: int) -> Mistake:
    """Return a mistake in what an extension returned, which has no position in a file."""
    where = f"{show_path(mistake.at)}: " if mistake.at else ""
    message = f"beforeAll of {extension}: {where}{mistake.message}"
    return Mistake(message, mistake.hint, at=("extensions", position))


def _changed(
    suite: Suite,
    returned_suite: Mapping[str, Any],
    context: FileContext,
    structure: cattrs.Converter,
) -> Suite:
    """Return a suite with parts replaced. A part that is returned unchanged stays the same object."""
    before = suite_for_hooks(suite)
    prompts = {key_of(plain_prompt(one)): one for one in suite.prompts}
    tests = {key_of(plain_test(one)): one for one in suite.tests}
    new_prompts = prompts_hook(context, suite.nunjucks_filters)
    has_data = any(one.is_data for one in tests.values())

    readers: dict[str, Callable[[Any], Any]] = {
        "prompts": lambda value: many(
            value,
            " of prompts",
            lambda entry: kept_or_read(entry, prompts, lambda new: new_prompts([new], None)),
        ),
        "tests": lambda value: many(
            value,
            " of tests",
            lambda entry: kept_or_read(
                entry,
                tests,
                lambda new: (read_returned_test(new, structure, is_data=has_data),),
            ),
            alone=(),
        ),
        "scenarios": lambda value: scenarios_hook(structure, context, refuse_remote)(value, None),
        "defaultTest": lambda value: structure.structure(value, Test),
    }
    changes: dict[str, Any] = {}
    mistakes = Mistakes()
    for key, read in readers.items():
        value = returned_suite.get(key)
        if value is None or value == before.get(key):
            continue
        with mistakes.below("suite", key):
            changes[snake(key)] = read(value)
    mistakes.raise_any()
    return attrs.evolve(suite, **changes)
