"""Which questions of judges lack what they are about, found before anything is paid for.

Only what the suite says can be known: variables that code makes, or that other rows leave, may be anything.
"""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from trioeval.errors import Problem
from trioeval.grading import Assertion
from trioeval.grading.algebra import leaves
from trioeval.grading.kinds import split_type
from trioeval.grading.text import json_text, parse_json
from trioeval.suite import Expansion, Templates, Test
from trioeval.suite.merge import merged
from trioeval.tasks.access import Sharing, texts_in

QUERY = "query"
"""The variable that is the question."""

QUERIED = frozenset({"context-faithfulness", "context-relevance"})
"""Types that judge by it."""

NAMES = frozenset(
    {
        *("answer", "completion", "context", "criteria", "goal", "groundTruth", "ideal", "input"),
        *("maxScore", "messages", "output", "outputs", "query", "question", "rubric"),
        *("statements", "steps", "trajectory"),
    }
)
"""What types add to the variables that a `rubricPrompt` may name, all types together."""

_ALIKE = 0.75  # of difflib's ratio, from which two names are taken for one


def missing_queries(steps: Expansion, sharing: Sharing) -> Iterator[Problem]:
    """Assertions that judge by a question which their test does not have.

    Example:
        >>> from trioeval.suite import expand, parse_suite
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
    for place in steps.looked_at:
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
    message = f"{assertion.type} judges by the variable {QUERY}, and {where} has none"
    return Problem(path, message, f'write the question as "{QUERY}" among the "vars"')


def idle_prompts(steps: Expansion, sharing: Sharing, templates: Templates) -> Iterator[Problem]:
    """Warnings about prompts for judges that name nothing of a row, or misspell it, each told once."""
    suite = steps.suite
    known: set[str] = {*NAMES, *sharing.registers}
    places = list(steps.looked_at)
    computed = bool(suite.extensions) or len(places) < len(steps.tests)
    prompts: dict[str, str] = {}
    for at, test in _tests(steps, places):
        known.update(test.vars)
        for below, said in _prompts(test):
            prompts.setdefault(json_text(said), at if at == "$.scenarios" else f"{at}{below}")
    for said, path in prompts.items():
        named = {name for text in _texts(said) for name in templates.references(text)}
        if not named or (named.isdisjoint(known) and not computed):
            message = "it names nothing of what is judged"
            if named:
                message += f", and there is no {' and no '.join(sorted(named))}"
            yield Problem(path, message, 'write what its type has, such as "{{ output }}"')
            continue
        for name in sorted(named - known if not computed else ()):
            if close := difflib.get_close_matches(name, sorted(NAMES), n=1, cutoff=_ALIKE):
                yield Problem(path, f"there is no {name}", f'did you mean "{close[0]}"?')


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


def _texts(said: str) -> Iterator[str]:
    """The templates in a prompt; one that was read from a file may be JSON inside of a text."""
    for text in texts_in(parse_json(said)):
        try:
            inside = parse_json(text)
        except ValueError:
            inside = text
        yield from texts_in(inside if isinstance(inside, list | dict) else text)
