"""Which rubrics say nothing, found before a model is paid to judge by them."""

from collections.abc import Iterator, Sequence

from trioeval.errors import Problem
from trioeval.grading import Assertion
from trioeval.grading.algebra import leaves
from trioeval.grading.kinds import split_type
from trioeval.suite import Expansion, Test
from trioeval.suite.merge import merged

RUBRICS = frozenset({"agent-rubric", "llm-rubric"})
"""Types whose value may be left out because a prompt of the suite's own can say it all."""


def missing_rubrics(steps: Expansion) -> Iterator[Problem]:
    """Assertions that have neither a rubric nor a prompt of the suite's own, each told once.

    Example:
        >>> from trioeval.suite import expand, parse_suite
        >>> test = {"assert": [{"type": "llm-rubric"}]}
        >>> suite = parse_suite({"providers": ["echo"], "prompts": ["a"], "tests": [test]})
        >>> [problem.path for problem in missing_rubrics(expand(suite))]
        ['$.tests[0].assert[0]']
    """
    suite, default = steps.suite, steps.suite.default_test or Test()
    shared = list(_without_rubric(default.assertions))
    remarkable = 0
    for place in steps.looked_at:
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
        said = assertion.rubric_prompt or assertion.value not in (None, "")
        if not said and split_type(assertion.type)[0] in RUBRICS:
            yield "".join(f".assert[{number}]" for number in place), assertion


def _shared_problems(shared: Sequence[tuple[str, Assertion]]) -> Iterator[Problem]:
    return (_problem(f"$.defaultTest{below}", assertion) for below, assertion in shared)


def _problem(path: str, assertion: Assertion) -> Problem:
    message = f"{assertion.type} has neither a value nor a rubricPrompt: nothing to judge by"
    return Problem(path, message, 'write what the output must be like as its "value"')
