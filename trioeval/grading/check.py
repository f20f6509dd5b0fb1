"""What is wrong with an assertion, found before anything is asked of a provider."""

import difflib
import math
from collections.abc import Iterator, Mapping
from importlib.util import find_spec

from trioeval.errors import Problem
from trioeval.grading.algebra import SET
from trioeval.grading.kind import Comparing, Kinds
from trioeval.grading.kinds import COMPARISONS, KINDS, split_type
from trioeval.grading.model import HEAVIEST, Assertion
from trioeval.grading.text import is_template, number_text, quote

INSTEAD: Mapping[str, str] = {
    "not-empty": r'write {"type": "regex", "value": "\\S"}',
    "min-length": 'write {"type": "regex", "value": "^[^]{10,}$"} for at least 10 characters',
    "max-length": 'write {"type": "regex", "value": "^[^]{0,10}$"} for at most 10 characters',
    "json-schema-valid": 'use "is-json"',
    "contains-json-property": 'use "is-json" and a "regex" for the property',
    "human": "what people say is kept with the results; it is nothing that can be evaluated",
    "pi": 'its service is not asked; use "llm-rubric" with a threshold, or "g-eval"',
}
"""What to write in place of types that are often guessed."""


TYPES_ARE_LISTED = "all types are listed in docs/reference/assertions.md"
"""What is said to somebody who wrote something else altogether."""

_LENGTHS = ("min-length", "max-length")
_EXAMPLE = "10"
"""The length in the hints of those."""


def check_assertion(
    assertion: Assertion, *, value_given: bool = True, kinds: Kinds = KINDS
) -> Iterator[Problem]:
    """Everything that is wrong with an assertion, as far as it can be known before a run.

    Args:
        assertion: What to check. A value that is a template is checked again when it is rendered.
        value_given: False where the file has no key `value`; a value of null is given.
        kinds: The assertion types that there are.

    Yields:
        Problems without a file. Their paths are one key of the assertion (`.type`, `.value`, `.weight`,
        `.threshold`), or empty where a key is missing.

    Example:
        >>> for problem in check_assertion(Assertion(type="contians", value="x")):
        ...     print(problem)
        .type: "contians" is not an assertion type
          did you mean "contains"?
    """
    if assertion.type == SET:
        yield from _set_problems(assertion, kinds)
    else:
        yield from _kind_problems(assertion, kinds, value_given=value_given)
    if not 0 <= assertion.weight <= HEAVIEST:
        most = number_text(HEAVIEST)
        yield Problem(".weight", f"must be from 0 to {most}, got {quote(assertion.weight)}")
    if assertion.threshold is not None and not math.isfinite(assertion.threshold):
        yield Problem(".threshold", f"must be a finite number, got {quote(assertion.threshold)}")


def _set_problems(assertion: Assertion, kinds: Kinds) -> Iterator[Problem]:
    if not assertion.assertions:
        yield Problem("", "a set has no assertions", 'write them as a list under "assert"')
    for place, member in enumerate(assertion.assertions):
        if member.type == SET:
            hint = "write its assertions here"
            yield Problem(f".assert[{place}].type", "a set cannot stand in a set", hint)
        kind = kinds.get(split_type(member.type)[0])
        if kind is not None and isinstance(kind.judge, Comparing):
            message = f"{member.type} compares rows and cannot stand in a set"
            yield Problem(f".assert[{place}].type", message, "write it beside the set")


def _kind_problems(assertion: Assertion, kinds: Kinds, *, value_given: bool) -> Iterator[Problem]:
    base, inverted = split_type(assertion.type)
    if assertion.assertions:
        hint = f'only a set has members: write "type": "{SET}"'
        yield Problem(".assert", f"{quote(assertion.type)} has no assertions of its own", hint)
    kind = kinds.get(base)
    if kind is None:
        yield _unknown(assertion, base, kinds)
    elif isinstance(kind.judge, Comparing) and base not in COMPARISONS:
        known = " and ".join(sorted(COMPARISONS))
        message = f"{quote(assertion.type)} compares rows, which {known} alone can"
        yield Problem(".type", message, "let its judge look at one output")
    else:
        if inverted and not kind.invertible:
            message = f"{quote(assertion.type)} is not an assertion type: {base} has no opposite"
            yield Problem(".type", message, f'write "{base}"')
        if kind.requires is not None and find_spec(kind.requires.module) is None:
            hint = f"pip install 'trioeval[{kind.requires.name}]'"
            yield Problem(".type", f"{base} needs a package that is not installed", hint)
        elif not value_given and not kind.bare:
            yield Problem("", '"value" is missing', f"it must be {kind.right}")
        elif value_given and not is_template(assertion.value) and not kind.accepts(assertion.value):
            yield Problem(".value", f"must be {kind.right}, got {quote(assertion.value)}")
        else:
            yield from kind.check(assertion)


def _unknown(assertion: Assertion, base: str, kinds: Kinds) -> Problem:
    name = assertion.type
    if (instead := INSTEAD.get(name) or INSTEAD.get(base)) is not None:
        length = quote(assertion.value).strip('"')
        if base in _LENGTHS and length.isdecimal():
            instead = instead.replace(_EXAMPLE, length)
        return Problem(".type", f"{quote(name)} is not an assertion type", instead)
    if base == SET:
        message = f"{quote(name)} is not an assertion type: a set has no opposite"
        return Problem(".type", message, f'write "{SET}"')
    both = [SET, *kinds, *(f"not-{known}" for known, kind in kinds.items() if kind.invertible)]
    close = difflib.get_close_matches(name.lower(), sorted(both), n=1)
    hint = f'did you mean "{close[0]}"?' if close else TYPES_ARE_LISTED
    return Problem(".type", f"{quote(name)} is not an assertion type", hint)
