"""Tests, assertions and scenarios in a suite: written in place, or in files."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import attrs
import cattrs

from trioeval.documents.files import FileContext, names_file
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, below, kind, read_each
from trioeval.documents.paths import DocumentPath, read_path
from trioeval.documents.placing import read_placed, structured
from trioeval.documents.structure import Hook, object_hook
from trioeval.grading import Assertion, AsWritten, Computed, Kind, Kinds, check_assertion, quote
from trioeval.grading.algebra import SET
from trioeval.grading.expressions import ExpressionError, parse
from trioeval.grading.grade import is_code
from trioeval.grading.registry import split_type
from trioeval.suite.form import many
from trioeval.suite.grader_entries import factuality_hook, grader_hook, rubric_prompt_hook
from trioeval.suite.model import DerivedMetric, Scenario, Test, TestOptions
from trioeval.suite.schema_types import schema_type_mistakes
from trioeval.suite.sources.output_paths import code_mistakes, javascript_mistakes
from trioeval.suite.sources.prompts import read_text
from trioeval.suite.sources.tests import (
    NONE_HINT,
    check_ruby,
    names_program,
    read_computed,
    read_tests,
)
from trioeval.suite.sources.values import config_values, read_vars, resolve_file_vars
from trioeval.suite.tests import Joined
from trioeval.templates import Templates, unclosed_tag


@attrs.frozen(kw_only=True)
class ExtraForm:
    """The keys that tests of one type of task have besides those of every test, and how they are read."""

    keys: frozenset[str]
    """The keys in both spellings."""
    structure: Hook
    """Reads an object of some of `keys` as the `extra` of a test; refuses them in tasks of other types."""
    allowed: Collection[str]
    """The keys in camelCase that are suggested for a misspelt key of a test."""
    refuse: Callable[[Mapping[str, Any]], None]
    """Raises MistakenError for a default test with any of `keys`."""
    misplaced: Callable[[str], Iterable[Mistake]]
    """Returns mistakes for an assertion type that needs features tests of this type of task lack."""

    def added_to(self, plain: Hook) -> Hook:
        """Return the hook for tests with these keys."""

        def hook(value: Any, target: Any) -> Test:
            if not isinstance(value, dict) or self.keys.isdisjoint(value):
                test: Test = plain(value, target)
                return test
            mistakes = Mistakes()
            with mistakes.below():
                rest = {key: part for key, part in value.items() if key not in self.keys}
                found: Test = plain(rest, target)
            with mistakes.below():
                own = {key: part for key, part in value.items() if key in self.keys}
                extra = self.structure(own, target)
            mistakes.raise_any()
            whole: Test = attrs.evolve(found, extra=extra)
            return whole

        return hook


# The parts of a suite for scoring: its own assertion types, derived metrics, scoring functions.


COUNT = "__count"
"""The number of rows of the column in expressions."""
SCORING_FUNCTION = "func"
"""The function of a scoring file for which the suite names no function."""
SCORING_NAMES = ("namedScores", "context")
"""The names of the arguments of a scoring function."""
_TYPE_NAME = re.compile(r"(?!not-)[a-z][a-z0-9]*(?:[-_:][a-z0-9]+)*")


def with_own_types(document: Any, context: FileContext) -> FileContext:
    """Return a context with the suite's own assertion types; mistakes in them are reported elsewhere.

    If `DISABLE_AJV_STRICT_MODE` is set, JSON schemas may have unknown keywords.
    """
    lenient: Kinds = {}
    if context.switch("DISABLE_AJV_STRICT_MODE"):
        from trioeval.grading.kinds.json import LENIENT_KINDS as lenient  # noqa: N811
    written = (
        document.get("assertionTypes", document.get("assertion_types")) if _is(document) else {}
    )
    found: dict[str, Kind] = {}
    for name, text in written.items() if _is(written) else ():
        try:
            found[name] = _own_type(name, text, context)
        except MistakenError:
            continue
    if not found and not lenient:
        return context
    return attrs.evolve(context, kinds={**context.kinds, **lenient, **found})


def own_types_hook(context: FileContext) -> Hook:
    """Return the hook for the suite's own assertion types."""

    def hook(value: Any, _wanted: Any) -> Mapping[str, str]:
        if not _is(value):
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}"))
        read_each(value.items(), partial(_own_type, context=context))
        return value  # type: ignore[no-any-return] # checked above

    return hook


def derived_hook(converter: cattrs.Converter, context: FileContext) -> Hook:
    """Return the hook for one derived metric: a valid expression, or an existing function."""
    structure = object_hook(converter, DerivedMetric)

    def hook(value: Any, target: Any) -> DerivedMetric:
        metric: DerivedMetric = structure(value, target)
        if not metric.name or metric.name == COUNT:
            message = f"must be a name, and not {COUNT}, got {quote(metric.name)}"
            raise MistakenError(Mistake(message, at=("name",)))
        try:
            with below("value"):
                if names_file(metric.value):
                    _python_function(metric.value, context)
                else:
                    parse(metric.value)
        except ExpressionError as error:
            message = f"{quote(metric.value)} is not a valid expression: {error}"
            raise MistakenError(Mistake(message, at=("value",))) from None
        return metric

    return hook


def scoring_hook(context: FileContext) -> Hook:
    """Return the hook for the function that makes one verdict of those of the assertions."""

    def hook(value: Any, _wanted: Any) -> str | None:
        if value is None or value == "":
            return None
        read_scoring(value, context)
        return str(value)

    return hook


def read_scoring(text: Any, context: FileContext) -> Any:
    """Return the scoring function: the file and the name of a Python function, or a script.

    Raises:
        MistakenError: It does not exist, or is not valid.
    """
    from trioeval.scripting.javascript import Script
    from trioeval.suite.sources.code import checked_script, code_file

    if not names_file(text):
        message = f"must name a function in a file, got {quote(text)}"
        raise MistakenError(Mistake(message, 'for example "file://score.py:func"'))
    file, function = code_file(text, context)
    if file.suffix == ".py":
        return file, function or SCORING_FUNCTION
    name = function or SCORING_FUNCTION
    script = Script(read_text(file), SCORING_NAMES, "module", name, file=file)
    return checked_script(script, context)


def _own_type(name: str, text: Any, context: FileContext) -> Kind:
    from trioeval.grading.kinds.commands import own_kind
    from trioeval.suite.sources.code import code_file

    if not _TYPE_NAME.fullmatch(name):
        message = f"{quote(name)} is not a valid name of an assertion type"
        hint = 'use lower-case letters, digits and "-", without "not-" in front'
        raise MistakenError(Mistake(message, hint, key=True))
    if not names_file(text):
        message = f"must name a function in a file, got {quote(text)}"
        raise MistakenError(Mistake(message, 'for example "file://checks.py:is_polite"'))
    file, function = code_file(text, context)
    if function is None:
        message = f"{quote(text)} names no function"
        raise MistakenError(Mistake(message, f'for example "{text}:is_polite"'))
    found = own_kind(file, function)
    if name == SET or context.kinds.get(name, found) != found:
        message = f"the assertion type {quote(name)} already exists"
        raise MistakenError(Mistake(message, "give it another name", key=True))
    return found


def _python_function(text: str, context: FileContext) -> None:
    from trioeval.suite.sources.code import code_file

    file, function = code_file(text, context)
    if file.suffix != ".py" or function is None:
        message = f"{quote(text)} names no function of a Python file"
        raise MistakenError(Mistake(message, 'for example "file://metrics.py:f1"'))


def _is(value: Any) -> bool:
    return isinstance(value, dict)


MOST_ASSERTIONS = 10_000
"""The maximum number of assertions of one test, those in sets included."""

ASSERTION_TRANSFORMS = ("transform", "contextTransform", "context_transform")
TEST_TRANSFORMS = ("transform", "postprocess", "transformVars", "transform_vars")
"""Keys that contain code, or paths of the output."""

_BY_SCHEMA = frozenset({"contains-json", "is-json"})
"""Assertion types whose value is a JSON Schema."""
_MARKED = re.compile(r"(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}")
_OPEN_TAG = re.compile(r"\{\{-?[ \t]*\w|\{%-?[ \t]*\w")
"""A tag with a name; an opening mark alone is literal text, as in `not-contains: "{{"`."""
_NO_SETTINGS = "add a setting, or pass --allow-empty"
_NEEDS_ONE = {
    "assert",
    "metadata",
    "options",
    "provider",
    "providerOutput",
    "provider_output",
    "threshold",
    "vars",
}


def assertion_hook(
    converter: cattrs.Converter,
    context: FileContext,
    templates: Templates | None,
    extra: ExtraForm,
) -> Hook:
    """Return the hook for assertions and sets: checked by their types, with values from files."""
    structure = object_hook(
        converter,
        Assertion,
        hooks={
            "assertions": lambda value, _: _members(value, hook),
            "provider": grader_hook(converter, context),
            "rubric_prompt": rubric_prompt_hook(context, templates),
        },
    )

    def hook(value: Any, target: Any) -> Assertion:
        if isinstance(value, str):
            hint = f'write {{"type": "contains", "value": {quote(value)}}}'
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}", hint))
        mistakes = Mistakes()
        if isinstance(value, dict) and _has_files(value.get("value")):
            with mistakes.below("value"):
                value = {**value, "value": _file_value(value["value"], context)}
            if mistakes:
                mistakes += code_mistakes(value, ASSERTION_TRANSFORMS, context)
                mistakes.raise_any()
        assertion: Assertion | None = None
        with mistakes.below():
            assertion = structure(value, target)
        if assertion is None:
            named = isinstance(value, dict) and isinstance(value.get("type"), str)
            if not named or value["type"] == SET:  # the members of a set have their own mistakes
                raise MistakenError(*mistakes)
            # Type and value can be checked although another key has a mistake.
            assertion = Assertion(type=value["type"], value=value.get("value"))
        misspelt = [one.below("value") for one in _misspelt_types(assertion)]
        mistakes += misspelt
        mistakes += (
            Mistake(problem.message, problem.hint, at=read_path(f"${problem.path}"))
            for problem in check_assertion(
                assertion, value_given="value" in value, kinds=context.kinds
            )
            # The validator reports a misspelt type as well, without its name.
            if not (misspelt and problem.path == ".value")
        )
        mistakes += extra.misplaced(assertion.type)
        if templates is not None:
            runs_code = is_code(assertion, context.kinds)
            mistakes += _template_mistakes(templates, _texts_of(value), runs_code=runs_code)
        base, _ = split_type(assertion.type)
        mistakes += javascript_mistakes(assertion, context)
        # For a file with code, the missing interpreter is reported with the file.
        if base == "ruby" and not isinstance(assertion.value, Computed):
            with mistakes.below("type"):
                check_ruby(context)
        if is_code(assertion, context.kinds):
            with mistakes.below("type"):
                context.check_code(f"an assertion of type {quote(assertion.type)}")
        mistakes += code_mistakes(value, ASSERTION_TRANSFORMS, context)
        mistakes.raise_any()
        return assertion

    return hook


def _misspelt_types(assertion: Assertion) -> Iterator[Mistake]:
    """Yield the misspelt types in the JSON Schema of an assertion; those of a schema in text have no path."""
    base, _ = split_type(assertion.type)
    if base not in _BY_SCHEMA or isinstance(assertion.value, Computed):
        return
    from trioeval.grading.schemas import schema_of

    try:
        schema = schema_of(assertion.value)
    except ValueError:  # reported with the other mistakes
        return
    for mistake in schema_type_mistakes(schema):
        yield mistake if isinstance(assertion.value, dict) else attrs.evolve(mistake, at=())


def _members(value: Any, hook: Hook) -> tuple[Assertion, ...]:
    return many(value, " of assertions", lambda member: (hook(member, Assertion),), alone=())


def _texts_of(assertion: dict[str, Any]) -> Iterator[tuple[DocumentPath, str]]:
    """Yield the texts of an assertion that are rendered when it is graded, with their paths."""
    value, metric = assertion.get("value"), assertion.get("metric")
    places: list[tuple[DocumentPath, Any]] = [(("value",), value), (("metric",), metric)]
    if isinstance(value, list):
        places += [(("value", position), member) for position, member in enumerate(value)]
    yield from (
        (at, text)
        for at, text in places
        if isinstance(text, str) and not isinstance(text, AsWritten)
    )


def _template_mistakes(
    templates: Templates,
    texts: Iterator[tuple[DocumentPath, str]],
    *,
    runs_code: bool = False,
) -> Iterator[Mistake]:
    """Yield the mistakes of templates, which would otherwise be found after the row has been paid for.

    Args:
        templates: The engine.
        texts: Texts with their paths.
        runs_code: They are code, in which a tag that is not closed is literal text.
    """
    for at, text in texts:
        if unclosed_tag(text):
            # Most texts differ only outside of their marks; equal insides are parsed once.
            is_wrong = not runs_code and _OPEN_TAG.search(text) is not None
        else:
            is_wrong = templates.syntax_error("".join(_MARKED.findall(text))) is not None
        if is_wrong and (error := templates.syntax_error(text)):
            yield Mistake(error, at=at)


def _has_files(value: Any) -> bool:
    return any(map(names_file, value if isinstance(value, list) else (value,)))


def _file_value(value: Any, context: FileContext, *, alone: bool = True) -> Any:
    """Return a value with its files read: a document, a program that computes it, or any other file's text.

    Texts of files are never rendered: marks in a file of correct answers are part of the answers.
    """
    if isinstance(value, list):
        return [_file_value(member, context, alone=False) for member in value]
    if not names_file(value):
        return value
    if not alone and names_program(value):
        message = f"a program cannot compute a member of a list: {quote(value)}"
        raise MistakenError(Mistake(message, "let the program return the whole list"))
    if (program := read_computed(value, context)) is not None:
        return program
    file = context.file(value)
    if file.suffix.lower() in {".json", ".yaml", ".yml"}:
        return _as_written(read_placed(file).data)
    try:
        return AsWritten(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise MistakenError(Mistake(f"{quote(value)} cannot be read: {error}")) from None


def _as_written(data: Any) -> Any:
    """Mark the texts of a document, or of its list, as literal; deeper ones are never rendered."""
    match data:
        case str():
            return AsWritten(data)
        case list():
            return [AsWritten(part) if isinstance(part, str) else part for part in data]
        case _:
            return data


def options_hook(
    converter: cattrs.Converter, context: FileContext, templates: Templates | None
) -> Hook:
    """Return the hook for the options of a test; unknown keys are those of a provider's config."""
    structure = object_hook(
        converter,
        TestOptions,
        hooks={
            "factuality": factuality_hook(converter),
            "provider": grader_hook(converter, context),
            "rubric_prompt": rubric_prompt_hook(context, templates),
        },
    )

    def hook(value: Any, target: Any) -> TestOptions:
        Mistakes(code_mistakes(value, TEST_TRANSFORMS, context)).raise_any()
        options: TestOptions = structure(value, target)
        if templates is not None:
            parts = (("prefix", options.prefix), ("suffix", options.suffix))
            texts = (((key,), text) for key, text in parts if text is not None)
            Mistakes(_template_mistakes(templates, texts)).raise_any()
        if not options.overrides:
            return options
        return attrs.evolve(options, overrides=config_values(options.overrides, context))

    return hook


def _assertions_hook(converter: cattrs.Converter) -> Hook:
    """Return the hook for the list of a test's assertions, which is bounded."""
    listed = converter.get_structure_hook(tuple[Assertion, ...])

    def hook(value: Any, _wanted: Any) -> tuple[Assertion, ...]:
        found: tuple[Assertion, ...] = listed(value, tuple[Assertion, ...])
        many = sum(len(assertion.assertions) or 1 for assertion in found)
        if many > MOST_ASSERTIONS:
            message = f"a test has at most {MOST_ASSERTIONS} assertions, got {many}"
            raise MistakenError(Mistake(message, "split the test"))
        return found

    return hook


def test_hook(converter: cattrs.Converter, context: FileContext, extra: ExtraForm) -> Hook:
    """Return the hook for one test: an object, whose variables may be in files."""
    structure = object_hook(
        converter,
        Test,
        hooks={
            "assertions": _assertions_hook(converter),
            "assert_scoring_function": scoring_hook(context),
        },
        beside=extra.allowed,
    )

    def hook(value: Any, target: Any) -> Test:
        if not (isinstance(value, dict) and "vars" in value):
            test: Test = structure(value, target)
            return test
        mistakes = Mistakes()
        variables: Any = {}
        with mistakes.below("vars"):
            written = value["vars"]
            found = read_vars(written, context) if isinstance(written, str | list) else written
            variables = resolve_file_vars(found, context) if isinstance(found, dict) else found
        with mistakes.below():
            test = structure({**value, "vars": {} if variables is None else variables}, target)
        mistakes.raise_any()
        return test

    return extra.added_to(hook)


def tests_hook(
    converter: cattrs.Converter, context: FileContext, remote: Callable[[Any], Test]
) -> Hook:
    """Return the hook for the list of tests: in place, and files of them; `remote` reads tests of others."""
    one = converter.get_structure_hook(Test)

    def structure(value: Any) -> Test:
        test: Test = one(value, Test)
        if test.extra is None and isinstance(value, dict) and value.keys().isdisjoint(_NEEDS_ONE):
            needed = sorted(_NEEDS_ONE - {"provider_output"})
            message = f"a test needs at least one of {', '.join(needed)}"
            raise MistakenError(Mistake(message))
        return test

    return _from_files(structure, context, remote)


def _from_files(
    structure: Callable[[Any], Test], context: FileContext, remote: Callable[[Any], Test]
) -> Hook:
    def hook(value: Any, _wanted: Any) -> Sequence[Test]:
        entries = [value] if isinstance(value, str | dict) else value
        if not isinstance(entries, list):
            raise MistakenError(Mistake(f"must be a list of tests, got {kind(value)}"))
        parts: list[Sequence[Test]] = []
        here: list[Test] = []
        mistakes = Mistakes()
        for position, entry in enumerate(entries):
            with mistakes.below(*(() if entries is not value else (position,))):
                if isinstance(entry, str) or (isinstance(entry, dict) and "path" in entry):
                    parts += [
                        tuple(here),
                        read_tests(
                            entry, context, structure, remote=remote, alone=entries is not value
                        ),
                    ]
                    here = []
                else:
                    here.append(structure(entry))
        mistakes.raise_any()
        parts = [part for part in (*parts, tuple(here)) if len(part)]
        if len(parts) == 1:
            return parts[0]
        return Joined.of(*parts) if parts else ()

    return hook


def no_tests() -> Mistake:
    """Return the mistake of an empty list of tests."""
    return Mistake(
        "the list of tests is empty", f"leave the key out to send each prompt once, {NONE_HINT}"
    )


def default_test_hook(converter: cattrs.Converter, context: FileContext, extra: ExtraForm) -> Hook:
    """Return the hook for the default test: an object, or a file with one."""

    def hook(value: Any, _wanted: Any) -> Test | None:
        if value is None:
            return None
        if not isinstance(value, str):
            return read(value)
        file = context.file(value)
        return structured(read_placed(file), file, read)

    def read(data: Any) -> Test:
        if isinstance(data, dict):
            extra.refuse(data)
        test: Test = converter.structure(data, Test)
        own = test.provider
        is_text = isinstance(data, dict) and isinstance(data.get("provider"), str)
        if is_text and own is not None and own.user is None:
            return attrs.evolve(test, provider=None, judge=own)
        return test

    return hook


def scenarios_hook(
    converter: cattrs.Converter, context: FileContext, remote: Callable[[Any], Test]
) -> Hook:
    """Return the hook for the list of scenarios: in place, and files of them."""
    listed = tests_hook(converter, context, remote)
    partial = converter.get_structure_hook(Test)

    def settings(value: Any, _wanted: Any) -> tuple[Test, ...]:
        found = many(value, " of settings", setting)
        if not (found or context.allow_empty or context.trust.plans):
            raise MistakenError(Mistake("the list of settings is empty", _NO_SETTINGS))
        return found

    def setting(entry: Any) -> Sequence[Test]:
        if isinstance(entry, str):
            return read_tests(entry, context, lambda value: partial(value, Test), remote=remote)
        return (partial(entry, Test),)

    def tests(value: Any, _wanted: Any) -> tuple[Test, ...]:
        found = tuple(listed(value, None))
        if not (found or context.allow_empty or context.trust.plans):
            raise MistakenError(no_tests())
        return found

    hooks = {"config": settings, "tests": tests}
    structure = object_hook(converter, Scenario, hooks=hooks)

    def read(entry: Any) -> tuple[Scenario, ...]:
        if not isinstance(entry, str):
            return (structure(entry, Scenario),)
        found: list[Scenario] = []
        for file in context.files(entry):
            document = read_placed(file)
            found += structured(document, file, lambda data: many(data, "", read, alone=dict))
        return tuple(found)

    return lambda value, _wanted: None if value is None else many(value, " of scenarios", read)
