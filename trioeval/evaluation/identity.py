"""Which row is which, when a suite has changed between two executions of a run.

A row is known by what a person would call it by: who is asked, with which prompt, about which variables,
under which description. That is its *id*, and it can be told from a stored record as well as from a suite.
Rows with equal ids, such as repeats, are told apart by their order.

Its *content* is everything else that decides how it ends: the prompt's text, the provider's config, what is
asserted. A row whose content is another one has to be run again; one that merely stands elsewhere has not.

Both are texts in hexadecimal that are the same in every process, version and order of keys. Credentials are
no part of them, neither openly nor as digests: a key that was changed changes no row.

Places are no part of either, nor are widths, delays, repeats and other settings of how a suite is run.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.grading import Assertion
from trioeval.providers.secrets import is_secret_name
from trioeval.suite.expand import Column, Step
from trioeval.suite.model import Prompt, ProviderEntry, Suite, Test, TestOptions
from trioeval.suite.plain import plain_data

# JSON texts that are the same for the same data, in every process and version.


_SIMPLE = frozenset({str, bool, int, type(None)})
"""What has one text in JSON."""
_NAMES = frozenset({str})
_DELETE = b"\x7f"
"""The only character of ASCII that not all write alike."""
_NO_JSON = '"no JSON"'
"""In place of what cannot be written; only a suite made in Python has it."""
_EXACT = 2**53


def canonical(value: Any) -> str:
    """JSON text that is the same for what is the same when it is written as JSON and read again.

    Example:
        >>> canonical({10: (1.0, float("nan")), 2: "e"})
        '{"10":[1,null],"2":"e"}'
    """
    try:
        if _is_simple(value):
            return _quick_text(value) or encode(value)
        return encode(_as_read(value))
    except (ValueError, RecursionError):
        return _NO_JSON


def _is_simple(value: Any) -> bool:
    """Whether it is known to be what is read when it was written."""
    return (
        type(value) is dict
        and _SIMPLE.issuperset(map(type, value.values()))
        and _NAMES.issuperset(map(type, value))
    )


def _quick_text(value: dict[str, Any]) -> str | None:
    """The text that `_encode` makes of simple data, quicker; None where orjson writes another one."""
    import orjson  # noqa: PLC0415 - 20 ms that most commands do not need

    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # of large numbers, and halves of surrogate pairs
        return None
    return text.decode() if text.isascii() and _DELETE not in text else None


def _as_read(value: Any) -> Any:
    try:
        return _decode(_write(value))
    except TypeError:  # of a key
        return _decode(_write(plain_data(value)))


def _number(text: str) -> float | int:
    """A number as JavaScript writes it."""
    number = float(text)
    return int(number) if abs(number) <= _EXACT and number.is_integer() else number


def _nothing(_name: str) -> None:
    return None


_write = json.JSONEncoder(default=str).encode
encode = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode
"""JSON text with its keys in order; what is no JSON as its text."""
_decode = json.JSONDecoder(parse_float=_number, parse_constant=_nothing).decode


_ELSEWHERE: Mapping[str, Any] = dict.fromkeys(
    ("run_serially", "repeat", "disable_var_expansion", "disable_default_asserts")
)
"""Options that say when, how often and with which variables a test is run, not how it ends."""

_NUMBERED = re.compile(r"Row #\d+")
"""What tests of files are called by their place, which is no part of an identity."""

_ASKING = frozenset({"config", "provider"})
"""Keys of an assertion that may hold credentials."""

_MANY = 4096  # assertions that are remembered
_LONG = 60  # characters of a name


@attrs.frozen(eq=False)
class _KnownColumn:
    """What is known of a column, and with it the objects that it is known by."""

    column: Column
    entry: ProviderEntry
    names: str
    content: str
    """What is asked and whom."""
    transformed: str
    """What is asked, and what becomes of the output, where a test has a provider of its own."""


@attrs.frozen
class Identity:
    """What one row is, and what it is made of."""

    id: str
    """See `row_id`."""
    content: str
    """See `content_digest`."""


def row_id(
    provider: str, prompt_label: str, variables: Mapping[str, Any], description: str | None
) -> str:
    """What one row is known by: 32 digits.

    Args:
        provider: The label of its column's provider, or else its id.
        prompt_label: The label of its prompt.
        variables: Those of its test, with one of each list chosen.
        description: That of its test, or its name; one made of its place, such as "Row #3", does not count.

    Example:
        >>> row_id("echo", "p", {"a": 1, "b": 2}, None) == row_id(
        ...     "echo", "p", {"b": 2, "a": 1.0}, ""
        ... )
        True
    """
    return _hashed(f"{_names(provider, prompt_label)}{_of_test(description, variables)}")


def number_of_test(variables: Mapping[str, Any], description: str | None) -> int:
    """What a test is known by, whoever is asked about it: 64 bits; arguments are those of `row_id`.

    Example:
        >>> number_of_test({"a": 1}, None) == number_of_test({"a": 1.0}, "Row #3")
        True
    """
    text = _of_test(description, variables)
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def row_id_of(record: Mapping[str, Any]) -> str:
    """The same of a row that was recorded, as `trioeval.report.row_json` makes it, or promptfoo."""
    provider = _object(record.get("provider"))
    prompt, test = _object(record.get("prompt")), _object(record.get("testCase"))
    return row_id(
        str(provider.get("label") or provider.get("id") or ""),
        str(prompt.get("label") or ""),
        _object(record.get("vars")),
        _known_as(test),
    )


def name_of(step: Step) -> str:
    """What people are told of the test of a row: its description, or else the beginning of its variables."""
    return _shown(step.test.known_as, step.vars)


def name_of_record(record: Mapping[str, Any]) -> str:
    """The same of the test of a row that was recorded."""
    test = _object(record.get("testCase"))
    return _shown(_known_as(test), _object(record.get("vars")))


def content_digest(
    step: Step, entry: ProviderEntry, sources: Callable[[str], str | None] | None = None
) -> str:
    """Everything that decides how a row ends, but what it is known by: 32 digits.

    Args:
        step: The row.
        entry: The provider of its column.
        sources: As for `Identities`, which is quicker for many rows.
    """
    return Identities(sources).of(step, entry).content


def settings_digest(suite: Suite, sources: Callable[[str], str | None] | None = None) -> str:
    """What of a suite decides how its rows end, whatever they are: 32 digits.

    Where it is another one, every row is, of which no content digest knows.

    Args:
        suite: As it was loaded.
        sources: As for `Identities`.
    """
    options, default = suite.evaluate_options, suite.default_test
    judge = None if default is None else default.judge
    said: list[Any] = [
        dict(suite.nunjucks_filters),
        dict(suite.assertion_types),
        suite.extensions,
        options.register_scope,
        options.strict_variables,
        options.grading,
        None if judge is None else _entry(judge),
    ]
    said += suite.settings.identity(sources)
    return _hashed(canonical(said if sources is None else _with_sources(said, sources)))


@attrs.define(eq=False)
class Identities:
    """Tells the identities of many rows quickly: what they have in common is looked at once.

    Not for several threads at once.

    Args:
        sources: Gives the digest of the file of code that a text of the suite names, such as
            `file://check.py:judge`, or None; see `CodeFiles`. Where the code is another one, so is the
            content.
    """

    sources: Callable[[str], str | None] | None = None
    _columns: dict[tuple[int, int], _KnownColumn] = attrs.field(init=False, factory=dict)
    _assertions: dict[int, tuple[Assertion, str]] = attrs.field(init=False, factory=dict)
    """By the identities of objects, which are kept so that no other ones get them."""
    _options: tuple[TestOptions, str] = attrs.field(init=False, default=(TestOptions(), "{}"))
    """Those of the test before, which mostly are those of the next one."""

    def of(self, step: Step, entry: ProviderEntry) -> Identity:
        """The identity of a row.

        Args:
            step: The row, as the suite has it.
            entry: The provider of its column.
        """
        column = self._column(step.column, entry)
        test = step.test
        known_by = f"{column.names}{_of_test(test.known_as, step.vars)}"
        asked = column.content if test.provider is None else column.transformed
        return Identity(_hashed(known_by), _hashed(f"{asked}{self._judged(test)}"))

    def _column(self, column: Column, entry: ProviderEntry) -> "_KnownColumn":
        place = (id(column), id(entry))
        known = self._columns.get(place)
        if known is None:
            prompt, label = column.prompt, entry.label or entry.id
            made = self._text(_prompt(prompt))
            known = self._columns[place] = _KnownColumn(
                column,
                entry,
                _names(label, prompt.label),
                f"{made}{self._text(_entry(entry))}",
                f"{made}{self._text(entry.transform)}",
            )
        return known

    def _judged(self, test: Test) -> str:
        """What a test says of how it is judged, and of who answers in place of its column's provider."""
        asserted = [self._asserted(assertion) for assertion in test.assertions]
        options = self._said(test.options)
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

    def _asserted(self, assertion: Assertion) -> str:
        known = self._assertions.get(id(assertion))
        if known is None:
            if len(self._assertions) >= _MANY:
                self._assertions.clear()
            text = _hashed(self._text(_assertion(assertion)))
            known = self._assertions[id(assertion)] = assertion, text
        return known[1]

    def _said(self, options: TestOptions) -> str:
        last, text = self._options
        if options is not last and options != last:
            found = plain_data(attrs.evolve(options, **_ELSEWHERE))
            text = self._text(_public(found))
            self._options = options, text
        return text

    def _text(self, value: Any) -> str:
        return canonical(value if self.sources is None else _with_sources(value, self.sources))


def _prompt(prompt: Prompt) -> Any:
    function = prompt.function
    made = None
    if function is not None:
        # Where a file stands is a matter of the machine.
        target = Path(function.target).name if function.kind == "python" else function.target
        made = (function.kind, target, function.function)
    return (prompt.raw, _public(plain_data(prompt.config)), made)


def _entry(entry: ProviderEntry) -> Any:
    """What of a provider decides what it answers, so not how hard it may be used."""
    return (
        entry.id,
        _public(plain_data(entry.config)),
        entry.transform,
        _public(plain_data(entry.env)),
    )


def _assertion(assertion: Assertion) -> Any:
    said = plain_data(assertion)
    for name in _ASKING & said.keys():
        said[name] = _public(said[name])
    if assertion.assertions:
        said["assert"] = [_assertion(member) for member in assertion.assertions]
    return said


def _public(value: Any) -> Any:
    """Plain data with nothing in place of what is named like a credential."""
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
    """Plain data in which references to code stand beside the digests of that code."""
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


def _names(provider: str, prompt_label: str) -> str:
    return encode((provider, prompt_label))


def _of_test(description: Any, variables: Mapping[str, Any]) -> str:
    found = canonical(variables)
    if not description or _NUMBERED.fullmatch(str(description)):
        return found
    return f"{encode(description)}{found}"


def _known_as(test: Mapping[str, Any]) -> Any:
    return test.get("case") or test.get("description")


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _shown(description: Any, variables: Mapping[str, Any]) -> str:
    found = description or ", ".join(f"{name}={value}" for name, value in variables.items())
    line = " ".join(str(found).split())
    return line if len(line) <= _LONG else f"{line[: _LONG - 1]}…"


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
