# Separate from `run.prepare`: together they exceed 600 lines.
"""Problems and warnings of a suite beyond its providers, found before the first call."""

import difflib
import itertools
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import MistakenError, nearest
from trioeval.documents.paths import DocumentPath, read_path, show_path
from trioeval.documents.structure import snake
from trioeval.errors import Problem
from trioeval.evaluation.graders import is_partly_read
from trioeval.evaluation.registers import CONVERSATION_VARIABLE, Sharing, texts_in
from trioeval.executables import find_program, install_hint, missing_program
from trioeval.grading import COMPARISONS, Assertion
from trioeval.grading.algebra import leaves
from trioeval.grading.grade import assertion_warnings
from trioeval.grading.registry import split_type
from trioeval.suite.expand import Expansion
from trioeval.suite.merge import merged
from trioeval.suite.model import Suite, Test
from trioeval.templates import Templates
from trioeval.text import is_template, json_text, parse_json, quote

# The key for clusters must exist in tests.


_MOST = 20  # names in a message


def unknown_cluster_warnings(steps: Expansion, sharing: Sharing) -> Iterator[Problem]:
    """Yield a warning if no test has the key of `evaluateOptions.cluster`.

    Nothing is reported if hooks, transforms or rows may add names while tests run.

    Args:
        steps: The steps of a suite.
        sharing: The values that rows share.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> data = {"providers": ["echo"], "prompts": ["x"], "tests": [{"vars": {"book": "a"}}]}
        >>> suite = parse_suite(data | {"evaluateOptions": {"cluster": "bok"}})
        >>> nothing = Sharing(frozenset(), frozenset())
        >>> [problem.hint for problem in unknown_cluster_warnings(expand(suite), nothing)]
        ['the tests have: book']
    """
    suite = steps.suite
    name = suite.evaluate_options.cluster
    if name is None or suite.extensions or suite.rows_of is not None or name in sharing.registers:
        return
    known: dict[str, None] = {}
    if suite.default_test is not None:
        if suite.default_test.options.transform_vars is not None:
            return
        known |= dict.fromkeys((*suite.default_test.metadata, *suite.default_test.vars))
    for test in steps.tests if name not in known else ():
        if test.options.transform_vars is not None or name in test.metadata or name in test.vars:
            return
        known |= dict.fromkeys((*test.metadata, *test.vars))
    if name not in known and len(steps):
        names = ", ".join(sorted(known)[:_MOST])
        yield Problem(
            "$.evaluateOptions.cluster",
            f"no test has the metadata or variable {quote(name)}",
            f"the tests have: {names}" if names else "add it to the metadata of the tests",
        )


# Commands of assertions that cannot be started, found before an agent has worked.


def missing_commands(steps: Expansion, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Yield assertions whose command names a program that is not in PATH.

    A path with a slash may be created by an agent, and a template is only known when it runs.

    Args:
        steps: The steps to run.
        environ: The environment of the suite's code.
    """
    default = steps.suite.default_test
    if default is not None:
        yield from _missing("$.defaultTest", default.assertions, environ)
    for place, test in enumerate(steps.suite.tests):
        yield from _missing(steps.path_of(place), test.assertions, environ)


def _missing(
    path: str, assertions: Sequence[Assertion], environ: Mapping[str, str]
) -> Iterator[Problem]:
    for place, assertion in leaves(assertions):
        if split_type(assertion.type)[0] != "command":
            continue
        own = assertion.value.get("env", {}) if isinstance(assertion.value, Mapping) else {}
        program = _program(assertion.value)
        if program is None or "PATH" in own or is_template(program) or os.sep in program:
            continue
        if find_program(program, environ) is None:
            below = "".join(f".assert[{number}]" for number in place)
            yield Problem(f"{path}{below}.value", missing_program(program), install_hint())


def _program(value: Any) -> str | None:
    """Return the first word of a command; None if it is only known later."""
    command = value.get("command") if isinstance(value, Mapping) else value
    if isinstance(command, str):
        # The words of a template are only known after rendering.
        words = command.split(maxsplit=1)[:1] if is_template(command) else shlex.split(command)
    else:
        words = list(command) if isinstance(command, list | tuple) else []
    return words[0] if words and not set(words[0]) & set("{}'\"") else None


# Comparisons of outputs that cannot work, found before the first paid call.


_TOLD = 100  # a million lines may have the same mistake


def wrong_comparisons(steps: Expansion) -> Iterator[Problem]:
    """Yield tests with comparisons that have a single output, or nothing to compare it by.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> test = {"assert": [{"type": "max-score"}]}
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["a"], "tests": [test]})
        >>> [problem.path for problem in wrong_comparisons(expand(suite))]
        ['$.tests[0].assert[0]', '$.tests[0].assert[0]']
    """
    seen: set[str] = set()
    compared = [span for span in steps.spans if span.compared]
    if not compared:
        return
    for span in compared:
        if span.width != 1:  # a test without columns has no rows
            continue
        for place in span.places[:_TOLD]:
            path, assertion = _first(steps, place)
            if path not in seen:
                seen.add(path)
                message = (
                    f"{assertion.type} compares the outputs of a test, but this test has only one"
                )
                yield Problem(path, message, "give it several prompts or providers")
    for place in steps.checked_tests:
        test = steps.tests[place]
        whole = merged(steps.suite.default_test, test)
        types = {assertion.type for assertion in whole.assertions}
        if "max-score" in types and types <= COMPARISONS:
            path, _ = _first(steps, place, {"max-score"})
            message = "max-score compares the scores of other assertions, but the test has none"
            yield Problem(path, message, 'add assertions with scores, or use "select-best"')


def _first(
    steps: Expansion, place: int, types: Collection[str] = COMPARISONS
) -> tuple[str, Assertion]:
    """Return the path of the first comparison of a test, and the assertion."""
    for number, assertion in enumerate(steps.tests[place].assertions):
        if assertion.type in types:
            return steps.path_of(place, f".assert[{number}]"), assertion
    suite = steps.suite
    default = () if suite.default_test is None else suite.default_test.assertions
    number = next(n for n, assertion in enumerate(default) if assertion.type in types)
    return f"$.defaultTest.assert[{number}]", default[number]


# Warnings about a valid suite.


_ALIKE = 0.75  # of difflib's ratio, from which two names count as a misspelling
_LOOKED_AT = 10_000  # tests


def suite_warnings(steps: Expansion, sharing: Sharing, templates: Templates) -> Iterator[Problem]:
    """Yield the warnings about a suite."""
    yield from _odd_assertions(steps)
    yield from _shared_by_columns(steps, sharing)
    yield from _misspelt(steps, sharing, templates)
    yield from _not_in_rows(steps, sharing, templates)


def _odd_assertions(steps: Expansion) -> Iterator[Problem]:
    """Yield what is probably not intended in assertions; for a default test once, not for each test."""
    default, kinds = steps.suite.default_test, steps.suite.kinds
    parts = [("$.defaultTest", default)] if default is not None else []
    places = itertools.islice(steps.checked_tests, _LOOKED_AT)
    found = (
        attrs.evolve(problem, path=f"{path}.assert[{at}]{problem.path}")
        for path, test in itertools.chain(
            parts, ((steps.path_of(place), steps.tests[place]) for place in places)
        )
        for at, assertion in enumerate(test.assertions)
        for problem in assertion_warnings(assertion, kinds)
    )
    yield from dict.fromkeys(itertools.islice(found, _TOLD))  # tests of scenarios share a path


def _shared_by_columns(steps: Expansion, sharing: Sharing) -> Iterator[Problem]:
    scope = steps.suite.evaluate_options.register_scope
    if sharing.registers and len(steps.columns) > 1 and scope == "suite":
        names = ", ".join(sorted(sharing.registers))
        yield Problem(
            "$.evaluateOptions",
            f"all columns share the values of storeOutputAs: {names}",
            'set "registerScope": "column" to give each column its own values',
        )


def _misspelt(steps: Expansion, sharing: Sharing, templates: Templates) -> Iterator[Problem]:
    """Yield prompt variables that a test lacks if the test has an unused variable with a similar name.

    Undefined variables render as nothing, which may be intended; a similar name is probably a misspelling.
    Each name is reported once.
    """
    if steps.suite.evaluate_options.strict_variables:
        return  # the rows report it
    used, common = _used_names(steps, sharing, templates), _common(steps)
    places = [*itertools.islice(steps.checked_tests, _LOOKED_AT)]
    known = common.union(*(steps.tests[place].vars for place in places))
    reported: set[str] = set()
    for name in sorted(used - known if places else ()):
        if close := _alike(name, known - used):
            reported.add(name)
            message = f'the prompt uses {name}, which no test has; did you mean "{close}"?'
            yield Problem(_path_of_prompt(steps, name, templates), message, _RENDERS_AS_NOTHING)
    for place in places:
        given = common.union(steps.tests[place].vars)
        for name in sorted(used - given - reported):
            if close := _alike(name, given - used):
                reported.add(name)
                message = f"the prompt uses {name}, but the test has {quote(close)}"
                hint = f'did you mean "{name}"? {_RENDERS_AS_NOTHING}'
                yield Problem(f"$.tests[{place}].vars", message, hint)


_RENDERS_AS_NOTHING = "An undefined variable renders as nothing"


def _alike(name: str, others: Collection[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, sorted(others), n=1, cutoff=_ALIKE)), None)


def _path_of_prompt(steps: Expansion, name: str, templates: Templates) -> str:
    """Return the path of the first prompt that uses a variable."""
    prompts = (one for one in steps.suite.prompts if one.function is None)
    entry = next((one.entry for one in prompts if name in templates.references(one.raw)), None)
    return "$.prompts" if entry is None else f"$.prompts[{entry}]"


def _not_in_rows(steps: Expansion, sharing: Sharing, templates: Templates) -> Iterator[Problem]:
    """Yield prompt variables that the listed variables of the rows of an earlier task do not contain."""
    rows_of = steps.suite.rows_of
    if rows_of is None or rows_of.vars is None:
        return
    given = _common(steps).union(rows_of.vars)
    for name in sorted(_used_names(steps, sharing, templates) - given):
        hint = f"{nearest(name, given)}; an undefined variable renders as nothing"
        message = f"the prompt uses {name}, but the rows of {rows_of.task} do not provide it"
        yield Problem("$.tests.vars", message, hint)


def _used_names(steps: Expansion, sharing: Sharing, templates: Templates) -> frozenset[str]:
    """Return the variables that prompts use, without those that always exist."""
    prompts = [prompt for prompt in steps.suite.prompts if prompt.function is None]
    used = [templates.references(prompt.raw) for prompt in prompts]
    return frozenset().union(*used) - sharing.registers - {CONVERSATION_VARIABLE, "env"}


def _common(steps: Expansion) -> frozenset[str]:
    """Return the variables that all tests have."""
    default = steps.suite.default_test
    return frozenset() if default is None else frozenset(default.vars)


# Judges' questions that are missing, found before the first paid call.
#
# Only the suite is checked: variables from code or from other rows may have any name.


QUERY = "query"
"""The variable that contains the question."""

QUERIED = frozenset({"context-faithfulness", "context-relevance"})
"""Types that judge by the question."""

NAMES = frozenset(
    {
        *("answer", "completion", "context", "criteria", "goal", "groundTruth", "ideal", "input"),
        *("maxScore", "messages", "output", "outputs", "query", "question", "rubric"),
        *("statements", "steps", "trajectory"),
    }
)
"""The variables that assertion types add for a `rubricPrompt`, of all types together."""

_QUESTION_CHECKS_ALIKE = 0.75  # of difflib's ratio, from which two names count as a misspelling


def missing_queries(steps: Expansion, sharing: Sharing) -> Iterator[Problem]:
    """Yield assertions that need a question which their test does not have.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> test = {"assert": [{"type": "context-relevance"}]}
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["a"], "tests": [test]})
        >>> steps = expand(suite)
        >>> [problem.path for problem in missing_queries(steps, Sharing.of(steps, Templates()))]
        ['$.tests[0].assert[0]']
    """
    suite, default = steps.suite, steps.suite.default_test or Test()
    if suite.extensions or QUERY in sharing.registers or QUERY in default.vars:
        return
    shared = list(_queried(default.assertions))
    for place in steps.checked_tests:
        test = steps.tests[place]
        own = list(_queried(test.assertions))
        if QUERY in test.vars or test.fault is not None or not (own or shared):
            continue
        if merged(suite.default_test, test).options.transform_vars:
            continue
        for below, assertion in own:
            yield _unasked(steps.path_of(place, below), assertion, "the test")
        if shared and not test.options.disable_default_asserts:
            for below, assertion in shared:
                test_at = steps.path_of(place).removeprefix("$.")
                yield _unasked(f"$.defaultTest{below}", assertion, test_at)
            shared = []


def _queried(assertions: Sequence[Assertion]) -> Iterator[tuple[str, Assertion]]:
    for place, assertion in leaves(assertions):
        if split_type(assertion.type)[0] in QUERIED:
            yield _path(place), assertion


def _path(place: Sequence[int]) -> str:
    return "".join(f".assert[{number}]" for number in place)


def _unasked(path: str, assertion: Assertion, where: str) -> Problem:
    message = f"{assertion.type} judges by the variable {QUERY}, but {where} does not have it"
    return Problem(path, message, f'add the question as "{QUERY}" to "vars"')


def rubric_prompt_warnings(
    steps: Expansion, sharing: Sharing, templates: Templates
) -> Iterator[Problem]:
    """Yield warnings about judges' prompts that use no known variable or misspell one, each reported once."""
    suite = steps.suite
    known: set[str] = {*NAMES, *sharing.registers}
    places = list(steps.checked_tests)
    computed = bool(suite.extensions) or len(places) < len(steps.tests)
    prompts: dict[str, str] = {}
    for at, test in _tests(steps, places):
        known.update(test.vars)
        for below, prompt in _prompts(test):
            prompts.setdefault(json_text(prompt), at if at == "$.scenarios" else f"{at}{below}")
    for prompt, path in prompts.items():
        named = {name for text in _texts(prompt) for name in templates.references(text)}
        if not named or (named.isdisjoint(known) and not computed):
            message = "the judge's prompt does not contain what is judged"
            if named:
                message += f"; it only uses unknown variables: {', '.join(sorted(named))}"
            yield Problem(
                path, message, 'add a variable of the assertion type, such as "{{ output }}"'
            )
            continue
        for name in sorted(named - known if not computed else ()):
            if close := difflib.get_close_matches(
                name, sorted(NAMES), n=1, cutoff=_QUESTION_CHECKS_ALIKE
            ):
                yield Problem(path, f"unknown variable {name}", f'did you mean "{close[0]}"?')


def _tests(steps: Expansion, places: Sequence[int]) -> Iterator[tuple[str, Test]]:
    suite = steps.suite
    if suite.default_test is not None:
        yield "$.defaultTest", suite.default_test
    for place in places:
        yield (
            steps.path_of(place),
            steps.tests[place],
        )


def _prompts(test: Test) -> Iterator[tuple[str, Any]]:
    if test.options.rubric_prompt:
        yield ".options.rubricPrompt", test.options.rubric_prompt
    for place, assertion in leaves(test.assertions):
        if assertion.rubric_prompt:
            yield f"{_path(place)}.rubricPrompt", assertion.rubric_prompt


def _texts(prompt: str) -> Iterator[str]:
    """Yield the templates in a prompt; one from a file may be JSON within a text."""
    for text in texts_in(parse_json(prompt)):
        try:
            inside = parse_json(text)
        except ValueError:
            inside = text
        yield from texts_in(inside if isinstance(inside, list | dict) else text)


# Missing rubrics, found before the first paid call of a judge.


RUBRICS = frozenset({"agent-rubric", "llm-rubric"})
"""Types whose value may be left out if a `rubricPrompt` contains the rubric."""


def wrong_users(steps: Expansion) -> Iterator[Problem]:
    """Yield the problems of simulated users that cannot take part in a conversation."""
    default = steps.suite.default_test or Test()
    tests: Iterator[tuple[str, Test]] = (
        (steps.path_of(place), steps.tests[place]) for place in steps.checked_tests
    )
    if default.provider is None or default.provider.user is None:
        tests = (one for one in tests if one[1].provider is not None)
    elif is_partly_read(steps.tests):
        tests = itertools.chain(tests, [("$.defaultTest", Test())])
    if (first := next(tests, None)) is not None:
        from trioeval.suite.simulated_user_form import user_problems

        yield from user_problems(
            default, itertools.chain([first], tests), steps.suite.settings.type
        )


def missing_rubrics(steps: Expansion) -> Iterator[Problem]:
    """Yield assertions with neither a rubric nor a `rubricPrompt`, each reported once.

    Example:
        >>> from trioeval.suite.expand import expand
        >>> from trioeval import parse_suite
        >>> test = {"assert": [{"type": "llm-rubric"}]}
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["a"], "tests": [test]})
        >>> [problem.path for problem in missing_rubrics(expand(suite))]
        ['$.tests[0].assert[0]']
    """
    suite, default = steps.suite, steps.suite.default_test or Test()
    shared = list(_without_rubric(default.assertions))
    remarkable = 0
    for place in steps.checked_tests:
        remarkable += 1
        test = steps.tests[place]
        own = list(_without_rubric(test.assertions))
        if not (own or shared):
            continue
        options = merged(suite.default_test, test).options
        if options.rubric_prompt:
            continue
        for below, assertion in own:
            yield _problem(steps.path_of(place, below), assertion)
        if shared and not options.disable_default_asserts:
            yield from _shared_problems(shared)
            shared = []
    if remarkable < len(steps.tests) and not default.options.rubric_prompt:
        yield from _shared_problems(shared)


def _without_rubric(assertions: Sequence[Assertion]) -> Iterator[tuple[str, Assertion]]:
    for place, assertion in leaves(assertions):
        has_rubric = assertion.rubric_prompt or assertion.value not in (None, "")
        if not has_rubric and split_type(assertion.type)[0] in RUBRICS:
            yield "".join(f".assert[{number}]" for number in place), assertion


def _shared_problems(shared: Sequence[tuple[str, Assertion]]) -> Iterator[Problem]:
    return (_problem(f"$.defaultTest{below}", assertion) for below, assertion in shared)


def _problem(path: str, assertion: Assertion) -> Problem:
    message = f"{assertion.type} has neither a value nor a rubricPrompt"
    return Problem(path, message, 'describe the required output in "value"')


# The paths of a task's problems in the suite file. Pure.
#
# A problem in a key that a task takes from the top of the file is reported there, once for all tasks.


def in_the_file(problems: Iterable[Problem], top: Suite, place: int) -> list[Problem]:
    """Return problems in the suite of a task with their paths in the whole file.

    Args:
        problems: The problems, with paths in the task's own suite.
        top: The whole suite.
        place: The index of the task.

    Example:
        >>> from trioeval import parse_suite
        >>> task = {"type": "prompt_eval", "providers": ["exec:cat", "echo"]}
        >>> suite = parse_suite({"providers": ["echo"], "tasks": [task]})
        >>> found = [Problem("$.providers[0]", "no"), Problem("$.providers[1]", "no")]
        >>> [problem.path for problem in in_the_file(found, suite, 0)]
        ['$.tasks[0].providers[0]', '$.providers[0]']
    """
    return [
        attrs.evolve(problem, path=show_path(_moved(read_path(problem.path), top, place)))
        if problem.file is None
        else problem
        for problem in problems
    ]


def _moved(path: DocumentPath, top: Suite, place: int) -> DocumentPath:
    own = top.tasks[place].suite
    match path:
        case ("providers", int(position), *rest) if position < len(own.providers):
            entry = own.providers[position]
            if entry in top.providers:
                return ("providers", top.providers.index(entry), *rest)
        case (str(key), *_) if _is_from_the_top(key, own, top):
            return path
        case _:
            pass
    return ("tasks", place, *path)


def _is_from_the_top(key: str, own: Suite, top: Suite) -> bool:
    """Return True if a task has no own value for a key of its suite."""
    if key in {"prompts", "providers", "scenarios", "tests"}:
        return False
    field = snake(key)
    return getattr(own, field, None) == getattr(top, field, None)


def wrong_transforms(steps: Expansion, context: FileContext) -> Iterator[Problem]:
    """Yield transforms that are not valid, each reported once."""
    from trioeval.evaluation.transforms import read_output_transform

    seen: set[str] = set()
    for path, text in _transforms(steps):
        if text in seen:
            continue
        seen.add(text)
        try:
            read_output_transform(text, context)
        except MistakenError as error:
            for part in error.parts:
                yield Problem(path, part.message, part.hint)


def _transforms(steps: Expansion) -> Iterator[tuple[str, str]]:
    """Yield the transforms of a suite, with their paths."""
    suite = steps.suite
    for place, entry in enumerate(suite.providers):
        if entry.transform is not None:
            yield f"$.providers[{place}].transform", entry.transform
    if suite.default_test is not None:
        for below, text in _transforms_of(suite.default_test):
            yield f"$.defaultTest{below}", text
    for place in steps.checked_tests:
        for below, text in _transforms_of(steps.tests[place]):
            yield steps.path_of(place, below), text


def _transforms_of(test: Test) -> Iterator[tuple[str, str]]:
    if test.options.transform is not None:
        yield ".options.transform", test.options.transform
    for place, assertion in leaves(test.assertions):
        for key, text in (
            ("transform", assertion.transform),
            ("contextTransform", assertion.context_transform),
        ):
            if text is not None:
                yield "".join(f".assert[{number}]" for number in place) + f".{key}", text


def missing_extras(suite: Suite, *, uses_limits: bool) -> Iterator[Problem]:
    """Yield a problem if the shared limits require an extra that is not installed.

    Args:
        suite: The suite.
        uses_limits: True if a lane uses shared limits; otherwise they are not opened.
    """
    limits = suite.limits
    if limits is None or limits.backend != "redis" or not uses_limits:
        return
    from trioeval.limits.open import install_command, is_installed

    if not is_installed("redis"):
        message = 'limits in Redis need the extra "redis"'
        yield Problem("$.limits.backend", message, install_command("redis"))
