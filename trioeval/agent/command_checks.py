"""Checks of the words of agent commands, before the first attempt."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.agent.cases import OWN_NAMES
from trioeval.errors import Problem, TemplateError
from trioeval.evaluation.registers import Sharing
from trioeval.providers import ProviderSpec
from trioeval.providers.programs.entries import CommandAgentSettings
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.sizes import stretch_sizes
from trioeval.templates import Templates

_PLACES: Mapping[str, Any] = {
    name: 0 if name == "attempt" else name for name in OWN_NAMES - {"done"}
}
"""Example values of the variables that a command has besides those of its test."""


def undefined_command_variables(
    steps: Expansion, specs: Sequence[ProviderSpec], sharing: Sharing, templates: Templates
) -> Iterator[Problem]:
    """Yield problems of words with undefined variables, which would be empty.

    Variables that hooks, other rows or code create are unknown here, so words with them are not checked.
    """
    if steps.suite.extensions:
        return
    strict = attrs.evolve(templates, strict=True)
    given = {**dict.fromkeys(sharing.registers, ""), **_PLACES}
    unsure = {
        place: [word for word in spec.settings.words if strict.references(word) - given.keys()]
        for place, spec in enumerate(specs)
        if isinstance(spec.settings, CommandAgentSettings)
    }
    if not any(unsure.values()):
        return
    reported: set[Problem] = set()
    seen: set[tuple[int, frozenset[str]]] = set()
    for step in _of_each_test(steps):
        place, names = step.provider_index, frozenset(step.vars)
        if (place, names) in seen or not _is_known(steps, step):
            continue
        seen.add((place, names))
        for word in unsure.get(place, ()):
            if strict.references(word) <= names | given.keys():
                continue
            fault = _fault(strict, word, {**given, **step.vars})
            problem = Problem(f"$.providers[{place}].id", f'the word "{word}": {fault}')
            if fault is not None and problem not in reported:
                reported.add(problem)
                yield problem


def _of_each_test(steps: Expansion) -> Iterator[Step]:
    """Yield one step of each test and column: repeats and alternatives have the same variable names."""
    for stretch, several in stretch_sizes(steps):
        shape = stretch.shape
        for test in range(several):
            for column in range(len(shape.columns)):
                yield steps[stretch.first_index + test * shape.steps + column]


def _is_known(steps: Expansion, step: Step) -> bool:
    """Return whether the variables of a step are those of its test."""
    if step.test.options.transform_vars or step.test.fault is not None:
        return False
    rows_of = steps.suite.rows_of
    return not step.test.is_data or (rows_of is not None and rows_of.vars is not None)


def _fault(templates: Templates, word: str, variables: Mapping[str, Any]) -> str | None:
    try:
        templates.fill(word, variables)
    except TemplateError as error:
        return str(error)
    return None
