"""Tests, assertions and scenarios as a suite writes them: in place, or in files."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
import cattrs

from trioeval.grading import Assertion, AsWritten, Computed, check_assertion, quote
from trioeval.grading.algebra import SET
from trioeval.grading.grade import is_code
from trioeval.grading.kinds import split_type
from trioeval.suite.agent_tests import (
    CASE_KEYS,
    SPELLED_CASE_KEYS,
    misplaced_type,
    refuse_case_keys,
)
from trioeval.suite.documents import read_document
from trioeval.suite.forms import many, text_or_number
from trioeval.suite.graders import factuality_hook, grader_hook, rubric_prompt_hook
from trioeval.suite.joined import Joined
from trioeval.suite.mistakes import Mistake, MistakenError, kind
from trioeval.suite.models import Scenario, Test, TestOptions
from trioeval.suite.paths import DocumentPath, read_path
from trioeval.suite.placing import read_placed, structured
from trioeval.suite.scoring_forms import scoring_hook
from trioeval.suite.sources.around import Around, names_file
from trioeval.suite.sources.computed import check_ruby, names_program, read_computed
from trioeval.suite.sources.nested_files import config_values
from trioeval.suite.sources.output_paths import code_mistakes
from trioeval.suite.sources.tests import NONE_HINT, read_tests
from trioeval.suite.sources.variables import read_vars, resolve_file_vars
from trioeval.suite.strict import Hook, object_hook
from trioeval.suite.templates import Templates, unclosed_tag

MOST_ASSERTIONS = 10_000
"""Of one test, those in sets among them."""

ASSERTION_TRANSFORMS = ("transform", "contextTransform", "context_transform")
TEST_TRANSFORMS = ("transform", "transformVars", "transform_vars")
"""Keys that hold code, or paths of the output."""

NOT_IN_TESTS = dict.fromkeys(("case", "fault", "is_data", "judge"))
"""Fields of a test that are found, or written as several keys."""

_MARKED = re.compile(r"(?s)\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}")
_OPEN_TAG = re.compile(r"\{\{-?[ \t]*\w|\{%-?[ \t]*\w")
"""A tag with a name; a mark alone is literal text, as in `not-contains: "{{"`."""
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
    around: Around,
    templates: Templates | None,
    *,
    of_agents: bool,
) -> Hook:
    """For assertions and sets of them: checked by the rules of their types, with values from files.

    Args:
        converter: Of suites.
        around: What files are read against.
        templates: Tell what is wrong with templates; None for nobody.
        of_agents: Whether they judge what agents have done.
    """
    structure = object_hook(
        converter,
        Assertion,
        renamed={"assertions": "assert"},
        hooks={
            "assertions": lambda value, _: _members(value, hook),
            "provider": grader_hook(converter, around),
            "rubric_prompt": rubric_prompt_hook(around, templates),
        },
    )

    def hook(value: Any, wanted: Any) -> Assertion:
        if isinstance(value, str):
            hint = f'write {{"type": "contains", "value": {quote(value)}}}'
            raise MistakenError(Mistake(f"must be an object, got {kind(value)}", hint))
        mistakes: list[Mistake] = []
        if isinstance(value, dict) and _has_files(value.get("value")):
            try:
                value = {**value, "value": _file_value(value["value"], around)}
            except MistakenError as error:
                parts = (part.below("value") for part in error.parts)
                raise MistakenError(
                    *parts, *code_mistakes(value, ASSERTION_TRANSFORMS, around)
                ) from None
        try:
            assertion: Assertion = structure(value, wanted)
        except MistakenError as error:
            mistakes += error.parts
            named = isinstance(value, dict) and isinstance(value.get("type"), str)
            if not named or value["type"] == SET:  # the members of a set say what is wrong
                raise
            # Type and value can be judged although something else is wrong.
            assertion = Assertion(type=value["type"], value=value.get("value"))
        mistakes += (
            Mistake(problem.message, problem.hint, at=read_path(f"${problem.path}"))
            for problem in check_assertion(
                assertion, value_given="value" in value, kinds=around.kinds
            )
        )
        if not of_agents:
            mistakes += misplaced_type(assertion.type)
        if templates is not None:
            runs_code = is_code(assertion, around.kinds)
            mistakes += _template_mistakes(templates, _texts_of(value), runs_code=runs_code)
        mistakes += _ruby_mistakes(assertion, around)
        mistakes += _code_mistakes(assertion, value, around)
        if mistakes:
            raise MistakenError(*mistakes)
        return assertion

    return hook


def _code_mistakes(assertion: Assertion, said: Any, around: Around) -> Iterator[Mistake]:
    """Problems of an assertion that is code of an untrusted suite; a value from a file is reported there."""
    if is_code(assertion, around.kinds):
        try:
            around.check_code(f"an assertion of type {quote(assertion.type)}")
        except MistakenError as error:
            yield from (part.below("type") for part in error.parts)
    yield from code_mistakes(said, ASSERTION_TRANSFORMS, around)


def _ruby_mistakes(assertion: Assertion, around: Around) -> Iterator[Mistake]:
    """That there is no interpreter; of a file with code that is told with the file."""
    if split_type(assertion.type)[0] == "ruby" and not isinstance(assertion.value, Computed):
        try:
            check_ruby(around)
        except MistakenError as error:
            yield from (part.below("type") for part in error.parts)


def _members(value: Any, hook: Hook) -> tuple[Assertion, ...]:
    """The members of a set."""
    if not isinstance(value, list):
        raise MistakenError(Mistake(f"must be a list of assertions, got {kind(value)}"))
    found: list[Assertion] = []
    mistakes: list[Mistake] = []
    for place, member in enumerate(value):
        try:
            found.append(hook(member, Assertion))
        except MistakenError as error:
            mistakes += [part.below(place) for part in error.parts]
    if mistakes:
        raise MistakenError(*mistakes)
    return tuple(found)


def _texts_of(assertion: dict[str, Any]) -> Iterator[tuple[DocumentPath, str]]:
    """The texts of an assertion that are rendered when it is judged, and where they stand."""
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
    """The mistakes of templates, which would otherwise be found when the row has been paid for.

    Args:
        templates: Read them.
        texts: Each with its place.
        runs_code: Whether they are code, in which a tag that is not closed is literal text.
    """
    for at, text in texts:
        if unclosed_tag(text):
            # Most texts differ only outside of their marks, and what is inside is read once.
            is_wrong = not runs_code and _OPEN_TAG.search(text) is not None
        else:
            is_wrong = templates.syntax_error("".join(_MARKED.findall(text))) is not None
        if is_wrong and (error := templates.syntax_error(text)):
            yield Mistake(error, at=at)


def _has_files(value: Any) -> bool:
    return any(map(names_file, value if isinstance(value, list) else (value,)))


def _file_value(value: Any, around: Around, *, alone: bool = True) -> Any:
    """A value with its files read: a document, a program that computes it, or the text of any other file.

    Their texts are never rendered: marks in a file of right answers are part of the answers.
    """
    if isinstance(value, list):
        return [_file_value(member, around, alone=False) for member in value]
    if not names_file(value):
        return value
    if not alone and names_program(value):
        message = f"a member of a list cannot be computed by a program: {quote(value)}"
        raise MistakenError(Mistake(message, "let the program give the whole list"))
    if (program := read_computed(value, around)) is not None:
        return program
    file = around.file(value)
    if file.suffix.lower() in {".json", ".yaml", ".yml"}:
        return _as_written(read_placed(file, read_document).data)
    try:
        return AsWritten(file.read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError) as error:
        raise MistakenError(Mistake(f"{quote(value)} cannot be read: {error}")) from None


def _as_written(data: Any) -> Any:
    """A document whose texts, or those of its list, stay as they are; deeper ones are never rendered."""
    match data:
        case str():
            return AsWritten(data)
        case list():
            return [AsWritten(part) if isinstance(part, str) else part for part in data]
        case _:
            return data


def options_hook(converter: cattrs.Converter, around: Around, templates: Templates | None) -> Hook:
    """For the options of a test; keys that are none are those of a provider's config."""
    structure = object_hook(
        converter,
        TestOptions,
        rest="overrides",
        hooks={
            "factuality": factuality_hook(converter),
            "provider": grader_hook(converter, around),
            "rubric_prompt": rubric_prompt_hook(around, templates),
        },
    )

    def hook(value: Any, wanted: Any) -> TestOptions:
        if isinstance(value, dict) and "postprocess" in value:
            if "transform" in value:
                message = "transform and postprocess are the same key: write one of them"
                raise MistakenError(Mistake(message, at=("postprocess",), key=True))
            value = {
                "transform" if key == "postprocess" else key: part for key, part in value.items()
            }
        if mistakes := [*code_mistakes(value, TEST_TRANSFORMS, around)]:
            raise MistakenError(*mistakes)
        options: TestOptions = structure(value, wanted)
        if templates is not None:
            parts = (("prefix", options.prefix), ("suffix", options.suffix))
            texts = (((key,), text) for key, text in parts if text is not None)
            if mistakes := [*_template_mistakes(templates, texts)]:
                raise MistakenError(*mistakes)
        if not options.overrides:
            return options
        return attrs.evolve(options, overrides=config_values(options.overrides, around))

    return hook


def _assertions_hook(converter: cattrs.Converter) -> Hook:
    """For the list of a test's assertions, which is not endless."""
    listed = converter.get_structure_hook(tuple[Assertion, ...])

    def hook(value: Any, _wanted: Any) -> tuple[Assertion, ...]:
        found: tuple[Assertion, ...] = listed(value, tuple[Assertion, ...])
        many = sum(len(assertion.assertions) or 1 for assertion in found)
        if many > MOST_ASSERTIONS:
            message = f"a test has at most {MOST_ASSERTIONS} assertions, got {many}"
            raise MistakenError(Mistake(message, "split the test"))
        return found

    return hook


def test_hook(converter: cattrs.Converter, around: Around, *, of_agents: bool) -> Hook:
    """For one test: an object, whose variables may come from files; a case is read elsewhere."""
    structure = object_hook(
        converter,
        Test,
        renamed={"assertions": "assert", **NOT_IN_TESTS},
        hooks={
            "assertions": _assertions_hook(converter),
            "assert_scoring_function": scoring_hook(around),
            "description": text_or_number,
        },
        beside=CASE_KEYS if of_agents else (),
    )

    def hook(value: Any, wanted: Any) -> Test:
        if not (isinstance(value, dict) and "vars" in value):
            test: Test = structure(value, wanted)
            return test
        mistakes: list[Mistake] = []
        variables = value["vars"]
        try:
            if isinstance(variables, str | list):
                variables = read_vars(variables, around)
            if isinstance(variables, dict):
                variables = resolve_file_vars(variables, around)
        except MistakenError as error:
            mistakes += [part.below("vars") for part in error.parts]
            variables = {}
        try:
            test = structure({**value, "vars": {} if variables is None else variables}, wanted)
        except MistakenError as error:
            mistakes += error.parts
        if mistakes:
            raise MistakenError(*mistakes)
        return test

    return hook


def tests_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For the list of tests: in place, and files of them."""
    one = converter.get_structure_hook(Test)

    def structure(value: Any) -> Test:
        test: Test = one(value, Test)
        keys = _NEEDS_ONE | SPELLED_CASE_KEYS
        if isinstance(value, dict) and value.keys().isdisjoint(keys):
            needed = sorted(_NEEDS_ONE - {"provider_output"})
            message = f"a test needs at least one of {', '.join(needed)}"
            raise MistakenError(Mistake(message))
        return test

    return _from_files(structure, around)


def _from_files(structure: Callable[[Any], Test], around: Around) -> Hook:
    def hook(value: Any, _wanted: Any) -> Sequence[Test]:
        entries = [value] if isinstance(value, str | dict) else value
        if not isinstance(entries, list):
            raise MistakenError(Mistake(f"must be a list of tests, got {kind(value)}"))
        parts: list[Sequence[Test]] = []
        here: list[Test] = []
        mistakes: list[Mistake] = []
        for position, entry in enumerate(entries):
            try:
                if isinstance(entry, str) or (isinstance(entry, dict) and "path" in entry):
                    parts += [
                        tuple(here),
                        read_tests(entry, around, structure, alone=entries is not value),
                    ]
                    here = []
                else:
                    here.append(structure(entry))
            except MistakenError as error:
                at = () if entries is not value else (position,)
                mistakes += [mistake.below(*at) for mistake in error.parts]
        if mistakes:
            raise MistakenError(*mistakes)
        parts = [part for part in (*parts, tuple(here)) if len(part)]
        if len(parts) == 1:
            return parts[0]
        return Joined.of(*parts) if parts else ()

    return hook


def no_tests() -> Mistake:
    """The mistake of an empty list of tests."""
    return Mistake("there are no tests", f"leave the key out to send each prompt once, {NONE_HINT}")


def default_test_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For the default test: an object, or a file with one."""

    def hook(value: Any, _wanted: Any) -> Test | None:
        if value is None:
            return None
        if not isinstance(value, str):
            return read(value)
        file = around.file(value)
        return structured(read_placed(file, read_document), file, read)

    def read(data: Any) -> Test:
        if isinstance(data, dict):
            refuse_case_keys(data)
        test: Test = converter.structure(data, Test)
        if isinstance(data, dict) and isinstance(data.get("provider"), str):
            return attrs.evolve(test, provider=None, judge=test.provider)
        return test

    return hook


def scenarios_hook(converter: cattrs.Converter, around: Around) -> Hook:
    """For the list of scenarios: in place, and files of them."""
    listed = tests_hook(converter, around)
    partial = converter.get_structure_hook(Test)

    def settings(value: Any, _wanted: Any) -> tuple[Test, ...]:
        return many(value, " of settings", setting)

    def setting(entry: Any) -> Sequence[Test]:
        if isinstance(entry, str):
            return read_tests(entry, around, lambda value: partial(value, Test))
        return (partial(entry, Test),)

    def tests(value: Any, _wanted: Any) -> tuple[Test, ...]:
        found = tuple(listed(value, None))
        if not (found or around.allow_empty or around.trust.plans):
            raise MistakenError(no_tests())
        return found

    hooks = {"config": settings, "tests": tests, "description": text_or_number}
    structure = object_hook(converter, Scenario, hooks=hooks)

    def read(entry: Any) -> tuple[Scenario, ...]:
        if not isinstance(entry, str):
            return (structure(entry, Scenario),)
        found: list[Scenario] = []
        for file in around.files(entry):
            document = read_placed(file, read_document)
            found += structured(document, file, lambda data: many(data, "", read, alone=dict))
        return tuple(found)

    return lambda value, _wanted: None if value is None else many(value, " of scenarios", read)
