"""Types that check whether an output is JSON, or contains an object, with an optional schema."""

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import attrs

from trioeval.errors import GradingError, Problem
from trioeval.grading.flow_yaml import DEEPEST, ParseAllowance, read_yaml
from trioeval.grading.kind import SLOW_AT_ONCE, Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.schemas import CompiledSchema, rules_of, schema_of, schema_problems
from trioeval.grading.subject import Subject
from trioeval.text import is_template, parse_json, quote

# Objects in a text that is mostly something else, written as JSON or nearly so.
#
# The text is searched for `{`. Each opens a region: up to the brace that balances it, whatever is between,
# quotes too; or, without such a brace, up to the end, with the missing braces added, because replies may be
# truncated. A region that can be read is an object, and the search continues after it; otherwise it continues
# after its first brace. A region is read as JSON, or as a YAML mapping in braces, which allows bare keys,
# single quotes, trailing commas and comments.
#
# Adversarial texts are bounded: pairs of braces are found in one pass, regions that are nested too deeply are
# skipped, and the total cost of all regions is limited.


LONGEST = 100_000
"""Most characters of one region."""
_READ = 40 * LONGEST
"""Most characters of all regions that are not JSON, beyond four times those of the text."""
_MOST_BRACES = 1_000_000
_MOST_EVENTS = 300_000
"""Most parser events for regions that are not JSON; about a second."""
_REGION = 10
"""The cost of starting to read a region, in events."""

_TOO_MANY = "the output has too many braces to search it for objects"

_BRACE = re.compile(r"[{}]")
_COMMENT = re.compile(
    r""""(?:\\.?|[^"\\\n])*+"?"""
    r"""|(?<![A-Za-z])'(?:\\.?|[^'\\\n]|'(?=[A-Za-z]))*+'?"""
    r"""|://[^\s"']*"""
    r"""|(?P<slashes>//+)(?P<rest>.*)"""
)


def objects_in(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects in a text, outermost ones only, in order.

    Raises:
        GradingError: Finding them would take too long.

    Example:
        >>> list(objects_in("so {a: 1, 'b': [2,],} and {not this"))
        [{'a': 1, 'b': [2]}, {'not this': None}]
        >>> list(objects_in("[1, 2]"))
        []
    """
    braces = _Braces.of(text)
    left = _READ + 4 * len(text)
    allowance = ParseAllowance(_MOST_EVENTS)
    behind = 0
    for number, start in enumerate(braces.places):
        if start < behind or text[start] != "{":
            continue
        region = braces.region(number, len(text))
        if region is None:
            continue
        written = text[start : region.end] + "}" * region.missing
        found = _read(parse_json, written)
        if found is None:
            left -= len(written)
            allowance.events -= _REGION
            if left < 0 or allowance.events < 0:
                raise GradingError(_TOO_MANY)
            found = _read(partial(_read_loosely, allowance=allowance), written)
        if found is not None:
            behind = region.end
            yield found


@attrs.frozen
class _Region:
    end: int
    missing: int
    """The number of braces that would close it."""


@attrs.frozen
class _Braces:
    places: "array[int]"
    pairs: "array[int]"
    """The number of the brace that closes each opening one; 0 for none."""
    heights: "array[int]"
    """The depth of nesting from each opening brace on, if it is closed."""
    depths: "array[int]"
    """Opening minus closing braces before each brace, and before the end."""

    @classmethod
    def of(cls, text: str) -> "_Braces":
        if text.count("{") + text.count("}") > _MOST_BRACES:
            raise GradingError(_TOO_MANY)
        places = array("q", (match.start() for match in _BRACE.finditer(text)))
        count = len(places)
        pairs, heights, depths = (array("q", bytes(8 * size)) for size in (count, count, count + 1))
        waiting: list[int] = []
        for number, place in enumerate(places):
            if text[place] == "{":
                waiting.append(number)
                depths[number + 1] = depths[number] + 1
                heights[number] = 1
            else:
                depths[number + 1] = depths[number] - 1
                if waiting:
                    opening = waiting.pop()
                    pairs[opening] = number
                    if waiting:
                        outer = waiting[-1]
                        heights[outer] = max(heights[outer], heights[opening] + 1)
        return cls(places, pairs, heights, depths)

    def region(self, number: int, length: int) -> _Region | None:
        """Return the region of an opening brace; None if it cannot be an object."""
        start = self.places[number]
        if start + 1 == length:
            return None
        last = min(start + LONGEST, length)
        pair = self.pairs[number]
        if pair and self.places[pair] < last:
            return _Region(self.places[pair] + 1, 0) if self.heights[number] <= DEEPEST else None
        missing = self.depths[bisect_left(self.places, last)] - self.depths[number]
        return _Region(last, missing) if missing <= DEEPEST else None


def _read(read: Callable[[str], Any], region: str) -> dict[str, Any] | None:
    try:
        found = read(region)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _read_loosely(region: str, allowance: ParseAllowance) -> Any:
    text = _COMMENT.sub(_as_yaml, region) if "//" in region else region
    return read_yaml(text, allowance)


def _as_yaml(piece: re.Match[str]) -> str:
    slashes = piece["slashes"]
    return piece[0] if slashes is None else f"{'#' * (len(slashes) // 2)}{piece['rest']}"


_RIGHT = "a JSON schema: an object, or its JSON or YAML text"


def _is_json(subject: Subject, value: Any, _assertion: Assertion, *, strict: bool) -> Finding:
    schema = _schema(value)
    try:
        document = parse_json(subject.text)
    except ValueError as error:
        return Finding(holds=False, reason=f"the output is not JSON: {error}")
    if schema is None:
        return Finding(holds=True, reason="the output is JSON")
    rules = _rules(schema, strict=strict)
    if rules.hold(document):
        return Finding(holds=True, reason="the output matches the schema")
    faults = "; ".join(rules.faults(document))
    return Finding(holds=False, reason=f"the output does not match the schema: {faults}")


def _contains_json(subject: Subject, value: Any, _assertion: Assertion, *, strict: bool) -> Finding:
    schema = _schema(value)
    reason = "the output does not contain a JSON object"
    rules, found = None if schema is None else _rules(schema, strict=strict), None
    for found in objects_in(subject.text):
        if rules is None:
            return Finding(holds=True, reason=f"the output contains {quote(found)}")
        if rules.hold(found):
            return Finding(holds=True, reason=f"{quote(found)} in the output matches the schema")
    if rules is not None and found is not None:
        reason = f"no object in the output matches the schema: {'; '.join(rules.faults(found))}"
    return Finding(holds=False, reason=reason)


def _schema(value: Any) -> Any:
    try:
        return schema_of(value)
    except ValueError as error:
        msg = f"the schema is not YAML: {error}"
        raise GradingError(msg) from None


def _rules(schema: Any, *, strict: bool) -> CompiledSchema:
    try:
        return rules_of(schema, strict=strict)
    except ValueError as error:
        msg = f"the schema is not usable: {error}"
        raise GradingError(msg) from None


def _accepts(value: Any) -> bool:
    return value is None or isinstance(value, str | Mapping)


def _check(assertion: Assertion, *, strict: bool) -> Iterator[Problem]:
    if not is_template(assertion.value):
        yield from schema_problems(
            ".value", assertion.value, right=_RIGHT, strict=strict, optional=True
        )


def json_kinds(*, strict: bool = True) -> Kinds:
    """Return the types that use JSON schemas.

    Args:
        strict: True if unknown keywords and formats are faults of a schema.
    """
    check = partial(_check, strict=strict)
    return {
        "contains-json": Kind(
            _RIGHT,
            _accepts,
            partial(_contains_json, strict=strict),
            bare=True,
            check=check,
            at_once=SLOW_AT_ONCE,
        ),
        "is-json": Kind(_RIGHT, _accepts, partial(_is_json, strict=strict), bare=True, check=check),
    }


KINDS: Kinds = json_kinds()

LENIENT_KINDS: Kinds = json_kinds(strict=False)
"""The same for `PROMPTFOO_DISABLE_AJV_STRICT_MODE`: unknown keywords are ignored."""
