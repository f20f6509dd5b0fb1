"""Identities of rows, for a suite that has changed between two executions of a run.

A row is identified by the properties that people would name: the provider, the prompt, the variables, the
description. That is its *id*, and it can be computed from a stored record as well as from a suite. Rows with
equal ids, such as repeats, are distinguished by their order.

Its *content* is everything else that decides its result: the prompt's text, the provider's config, the
assertions. A row with changed content must run again; one that has merely moved need not.

Both are hexadecimal texts that are the same in every process, version and order of keys. They contain no
credentials, neither openly nor as digests: changing a key changes no row.

Positions are not part of either, nor are concurrency, delays, repeats and other settings of how a suite runs.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs
import orjson

from trioeval.grading import Assertion
from trioeval.providers.secrets import is_secret_name
from trioeval.suite.expand import Column, Step
from trioeval.suite.model import Prompt, ProviderEntry, Suite, Test, TestOptions
from trioeval.suite.plain import members, plain_data
from trioeval.text import own_description

# JSON texts that are the same for the same data, in every process and version.


_SIMPLE = frozenset({str, bool, int, type(None)})
"""Types with exactly one JSON text."""
_NAMES = frozenset({str})
_DELETE = b"\x7f"
"""The only ASCII character that not all encoders write alike."""
_NO_JSON = '"no JSON"'
"""Replaces what cannot be encoded; only a suite made in Python has it."""
_EXACT = 2**53


def canonical(value: Any) -> str:
    """Return JSON text that is equal for values that are equal after a JSON round trip.

    Example:
        >>> canonical({10: (1.0, float("nan")), 2: "e"})
        '{"10":[1,null],"2":"e"}'
    """
    try:
        if (
            type(value) is dict
            and _SIMPLE.issuperset(map(type, value.values()))
            and _NAMES.issuperset(map(type, value))
        ):  # it survives a JSON round trip unchanged
            return _quick_text(value) or encode(value)
        return encode(_as_read(value))
    except (ValueError, RecursionError):
        return _NO_JSON


def _quick_text(value: dict[str, Any]) -> str | None:
    """Return the same text as `_encode` for simple data, faster; None where orjson differs."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # large numbers and lone surrogates
        return None
    return text.decode() if text.isascii() and _DELETE not in text else None


def _as_read(value: Any) -> Any:
    try:
        return _decode(_write(value))
    except TypeError:  # a key of another type
        return _decode(_write(plain_data(value)))


def _number(text: str) -> float | int:
    """Return a number as JavaScript writes it."""
    number = float(text)
    return int(number) if abs(number) <= _EXACT and number.is_integer() else number


def _nothing(_name: str) -> None:
    return None


_write = json.JSONEncoder(default=str).encode
encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode
"""Encodes JSON with its keys in order; other values as their text."""
_decode = json.JSONDecoder(parse_float=_number, parse_constant=_nothing).decode


_ELSEWHERE: Mapping[str, Any] = dict.fromkeys(
    ("run_serially", "repeat", "disable_var_expansion", "disable_default_asserts")
)
"""Options for when, how often and with which variables a test is run, which do not affect its result."""

_ASKING = frozenset({"config", "provider"})
"""Keys of an assertion that may hold credentials."""

_MANY = 4096  # cached assertions
_LONG = 60  # characters of a name


@attrs.frozen(eq=False)
class _KnownColumn:
    """The cached texts of a column, with the objects that identify it."""

    column: Column
    entry: ProviderEntry
    names: str
    content: str
    """The prompt and the provider."""
    transformed: str
    """The prompt and the transform of the output, for tests with their own provider."""


@attrs.define  # not frozen: every row has one
class Identity:
    """The id and the content digest of one row."""

    id: str
    """See `row_id`."""
    content: str
    """See `content_digest`."""


def row_id(
    provider: str, prompt_label: str, variables: Mapping[str, Any], description: str | None
) -> str:
    """Return the id of a row: 32 digits.

    Args:
        provider: The label of its column's provider, or else its id.
        prompt_label: The label of its prompt.
        variables: The variables of its test, with one value of each list.
        description: The description or name of its test; one made of its position, such as "Row #3", is
            ignored.

    Example:
        >>> row_id("echo", "p", {"a": 1, "b": 2}, None) == row_id(
        ...     "echo", "p", {"b": 2, "a": 1.0}, ""
        ... )
        True
    """
    return row_id_in(column_names(provider, prompt_label), variables, description)


def row_id_in(names: str, variables: Mapping[str, Any], description: str | None) -> str:
    """Return the same id from the result of `column_names`, which many rows have in common."""
    return _digest(f"{names}{_of_test(description, variables)}").hex()


def column_names(provider: str, prompt_label: str) -> str:
    """Return the part of a row's id that its column decides; for the arguments see `row_id`."""
    return encode((provider, prompt_label))


def number_of_test(variables: Mapping[str, Any], description: str | None) -> int:
    """Return a 64-bit number for a test, the same for all providers; for the arguments see `row_id`.

    Example:
        >>> number_of_test({"a": 1}, None) == number_of_test({"a": 1.0}, "Row #3")
        True
    """
    text = _of_test(description, variables)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def recorded_row_id(record: Mapping[str, Any]) -> str:
    """Return the id of a recorded row, as written by `trioeval.report.row_json` or promptfoo."""
    return RecordedIdentities().of(record).row.hex()


@attrs.define  # not frozen: every row has one
class RecordedIdentity:
    """The identity of a recorded row, and what it was made from."""

    row: bytes
    """The id of the row, see `recorded_row_id`, as 16 bytes."""
    number: int
    """A 64-bit number, the same for all rows of a column with the same test."""
    column: str
    """The provider and the prompt."""
    variables: Mapping[str, Any]
    test: Mapping[str, Any]
    """The test, as JSON."""


@attrs.define(eq=False, repr=False)
class RecordedIdentities:
    """Computes the identities of many recorded rows quickly: common parts are computed once.

    Example:
        >>> record = {"provider": {"id": "p"}, "prompt": {"label": "q"}, "vars": {"a": 1}}
        >>> found = RecordedIdentities().of(record)
        >>> found.row.hex() == row_id("p", "q", {"a": 1}, None)
        True
        >>> again = RecordedIdentities().of(record | {"vars": {"a": 1.0}})
        >>> again.number == found.number
        True
    """

    _columns: dict[tuple[object, object], tuple[str, str]] = attrs.field(init=False, factory=dict)

    def of(self, record: Mapping[str, Any]) -> RecordedIdentity:
        """Return the identity of a row."""
        get = record.get
        provider, prompt = _object(get("provider")), _object(get("prompt"))
        own, label = provider.get("label") or provider.get("id") or "", prompt.get("label") or ""
        known = self._columns.get((own, label))
        if known is None:
            known = f"{own} | {label}", column_names(str(own), str(label))
            if len(self._columns) < _MANY:
                self._columns[own, label] = known
        variables, test = _object(get("vars")), _object(get("testCase"))
        known_as = _known_as(test)
        digest = _digest(f"{known[1]}{_of_test(known_as, variables)}")
        # The variables of the test are the same in all repeats; those of a row may hold outputs.
        named = test.get("vars") or variables
        by_test = (
            digest if named == variables else _digest(f"{known[1]}{_of_test(known_as, named)}")
        )
        number = int.from_bytes(by_test[:8], "big")
        return RecordedIdentity(digest, number, known[0], variables, test)

    def of_test(self, record: Mapping[str, Any], column: int) -> bytes:
        """Return the same id for all rows with the same test in a column, whatever its provider."""
        test = _object(record.get("testCase"))
        found = row_id("", str(column), _object(record.get("vars")), _known_as(test))
        return bytes.fromhex(found)


def row_name(step: Step) -> str:
    """Return the displayed name of a row's test: its description, or else the start of its variables."""
    return _shown(step.test.known_as, step.vars)


def recorded_row_name(record: Mapping[str, Any]) -> str:
    """Return the displayed name of a recorded row's test."""
    test = _object(record.get("testCase"))
    return _shown(_known_as(test), _object(record.get("vars")))


def content_digest(
    step: Step, entry: ProviderEntry, sources: Callable[[str], str | None] | None = None
) -> str:
    """Return the digest of everything that decides a row's result, except its id: 32 digits.

    Args:
        step: The row.
        entry: The provider of its column.
        sources: See `Identities`, which is faster for many rows.
    """
    return Identities(sources).of(step, entry).content


def settings_digest(suite: Suite, sources: Callable[[str], str | None] | None = None) -> str:
    """Return the digest of the suite's settings that decide the results of all rows: 32 digits.

    If it changes, every row has changed, which no content digest shows.

    Args:
        suite: As it was loaded.
        sources: See `Identities`.
    """
    options, default = suite.evaluate_options, suite.default_test
    judge = None if default is None else default.judge
    parts: list[Any] = [
        dict(suite.nunjucks_filters),
        dict(suite.assertion_types),
        suite.extensions,
        options.register_scope,
        options.strict_variables,
        options.grading,
        None if judge is None else _entry(judge),
    ]
    parts += suite.settings.identity(sources)
    text = canonical(parts if sources is None else _with_sources(parts, sources))
    return _digest(text).hex()


@attrs.define(eq=False, repr=False)
class Identities:
    """Computes the identities of many rows quickly: common parts are computed once.

    Not thread-safe.

    Args:
        sources: Returns the digest of the code file that a text of the suite names, such as
            `file://check.py:judge`, or None; see `CodeFiles`. Changed code means changed content.
        original: Returns a text of the suite with the paths of the machine that others are compared with;
            None if that is this machine.
    """

    sources: Callable[[str], str | None] | None = None
    original: Callable[[str], str] | None = None
    _columns: dict[tuple[int, int], _KnownColumn] = attrs.field(init=False, factory=dict)
    _assertions: dict[int, tuple[Assertion, str]] = attrs.field(init=False, factory=dict)
    """By the ids of objects, which are stored so that their ids are not reused."""
    _options: tuple[TestOptions, str] = attrs.field(init=False, default=(TestOptions(), "{}"))
    """The options of the previous test, which mostly equal those of the next one."""

    def of(self, step: Step, entry: ProviderEntry) -> Identity:
        """Return the identity of a row.

        Args:
            step: The row, as written in the suite.
            entry: The provider of its column.
        """
        column = self._column(step.column, entry)
        test = step.test
        known_by = f"{column.names}{_of_test(test.known_as, step.vars)}"
        is_replaced = test.provider is not None and step.user is None
        content = column.transformed if is_replaced else column.content
        if step.user is not None:
            content += self._text(_entry(step.user.entry))
        judged = f"{content}{self._judging_text(test)}"
        return Identity(_digest(known_by).hex(), _digest(judged).hex())

    def _column(self, column: Column, entry: ProviderEntry) -> "_KnownColumn":
        place = (id(column), id(entry))
        known = self._columns.get(place)
        if known is None:
            prompt, label = column.prompt, entry.name
            made = self._text(_prompt(prompt))
            known = self._columns[place] = _KnownColumn(
                column,
                entry,
                column_names(label, prompt.label),
                f"{made}{self._text(_entry(entry))}",
                f"{made}{self._text(entry.transform)}",
            )
        return known

    def _judging_text(self, test: Test) -> str:
        """Return the text of a test's judging, and of the provider that replaces its column's, if any."""
        asserted = [self._assertion_text(assertion) for assertion in test.assertions]
        options = self._options_text(test.options)
        if (
            test.threshold is None
            and test.provider is None
            and test.provider_output is None
            and test.assert_scoring_function is None
            and test.fault is None
            and test.extra is None
            and not test.metadata
        ):
            return f"{asserted}{options}"
        rest = (
            test.threshold,
            None if test.provider is None else _entry(test.provider),
            test.provider_output,
            test.assert_scoring_function,
            test.fault,
            plain_data(test.metadata),
            *(() if test.extra is None else test.extra.identity()),
        )
        return f"{asserted}{options}{self._text(rest)}"

    def _assertion_text(self, assertion: Assertion) -> str:
        known = self._assertions.get(id(assertion))
        if known is None:
            if len(self._assertions) >= _MANY:
                self._assertions.clear()
            text = _digest(self._text(_assertion(assertion))).hex()
            known = self._assertions[id(assertion)] = assertion, text
        return known[1]

    def _options_text(self, options: TestOptions) -> str:
        last, text = self._options
        if options is not last:
            if options != last:
                found = plain_data(attrs.evolve(options, **_ELSEWHERE))
                text = self._text(_public(found))
            self._options = options, text
        return text

    def _text(self, value: Any) -> str:
        if self.original is not None:
            value = _with_originals(value, self.original)
        return canonical(value if self.sources is None else _with_sources(value, self.sources))


def _prompt(prompt: Prompt) -> Any:
    function = prompt.function
    made = None
    if function is not None:
        # The folder of a file depends on the machine.
        target = function.target if function.kind == "exec" else Path(function.target).name
        made = (function.kind, target, function.function)
    return (prompt.raw, _public(plain_data(prompt.config)), made)


def _entry(entry: ProviderEntry) -> Any:
    """Return the parts of a provider that decide its replies, so not its rate limits."""
    return (
        entry.id,
        _public(plain_data(entry.config)),
        entry.transform,
        _public(plain_data(entry.env)),
    )


def _assertion(assertion: Assertion) -> Any:
    data = members(assertion)
    for name in _ASKING & data.keys():
        data[name] = _public(data[name])
    if assertion.assertions:
        data["assert"] = [_assertion(member) for member in assertion.assertions]
    return data


def _public(value: Any) -> Any:
    """Return plain data with None for values whose names suggest a credential."""
    match value:
        case dict():
            return {
                name: None if is_secret_name(name) else _public(part)
                for name, part in value.items()
            }
        case list():
            return [_public(part) for part in value]
        case _:
            return value


def _with_sources(value: Any, sources: Callable[[str], str | None]) -> Any:
    """Return plain data with digests of code beside the references to it."""
    match value:
        case str():
            digest = sources(value)
            return value if digest is None else [value, digest]
        case dict():
            return {name: _with_sources(part, sources) for name, part in value.items()}
        case list() | tuple():
            return [_with_sources(part, sources) for part in value]
        case _:
            return value


def _with_originals(value: Any, original: Callable[[str], str]) -> Any:
    """Return plain data with each of its texts as `original` returns it."""
    match value:
        case str():
            return original(value)
        case dict():
            return {name: _with_originals(part, original) for name, part in value.items()}
        case list() | tuple():
            return [_with_originals(part, original) for part in value]
        case _:
            return value


def _of_test(description: Any, variables: Mapping[str, Any]) -> str:
    found = canonical(variables)
    own = own_description(description)
    return found if own is None else f"{encode(own)}{found}"


def _known_as(test: Mapping[str, Any]) -> Any:
    return test.get("case") or test.get("description")


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:16]


def _shown(description: Any, variables: Mapping[str, Any]) -> str:
    found = own_description(description) or ", ".join(
        f"{name}={value}" for name, value in variables.items()
    )
    line = " ".join(str(found).split())
    return line if len(line) <= _LONG else f"{line[: _LONG - 1]}…"


def _object(value: Any) -> Mapping[str, Any]:
    # The exact type first: isinstance with Mapping is slow.
    return value if type(value) is dict or isinstance(value, Mapping) else {}
