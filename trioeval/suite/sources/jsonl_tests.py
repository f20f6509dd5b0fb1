r"""Tests from JSONL: one on each line, read on access if there are very many.

A file of a million lines must not have to be in memory, nor be parsed before the first call is made. One
pass over its bytes finds the start of each line, also of blank ones so that line numbers are known: eight
bytes of memory per line. The same pass looks for lines that are not objects, and for words without which an
object makes exactly one row that depends on no other. Lines with either are parsed; those that do change
the number of rows, or their order, are `irregular` and checked at once. All others are parsed and checked on
access, and a mistake in one becomes its `fault`.

The words are searched in bytes, so every way to write them must match: a key can hide behind an escape such
as `\u0072`, and a slash behind `\/`. A test over lines of every structure proves that a line without such a
word is regular.
"""

import bisect
import itertools
import json
import operator
import os
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents import check_plain
from trioeval.documents.files import FileContext, names_file
from trioeval.documents.mistakes import Mistake, MistakenError, Mistakes, moved_unknown_keys
from trioeval.documents.paths import show_path
from trioeval.documents.placing import first_mistakes
from trioeval.documents.read import json_fault
from trioeval.errors import Problem
from trioeval.grading import COMPARISONS
from trioeval.sequences import LazySequence
from trioeval.suite.model import Test
from trioeval.suite.sources.values import complete
from trioeval.text import read_integer

CHECKED_AT_ONCE = 20_000
"""The maximum number of lines of a file that is parsed when it is loaded, with all mistakes at once."""

_CHUNK = 1 << 18  # bytes; more is not faster
_AHEAD = 1 << 16  # bytes that are read at once when tests are accessed
_KEPT = 8  # the last tests accessed: the columns of one test are accessed one after another
_BOM = b"\xef\xbb\xbf"

_SIGNS = (b'"options"', b'"pro', b"onversation", b"file:", b"select-best", b"max-score")
"""Cheap to find. Every irregular line contains one of them, `\\u00`, or a match of `_SHAPES`."""
_SHAPES = (re.compile(rb'\[\s*"'), re.compile(rb'"vars"\s*:\s*[^\s{]'))
_CANDIDATE = re.compile(
    rb'"options"|"prov|"promp|onversation|file:|select-best|max-score|\\u00|\[\s*"|"vars"\s*:\s*[^\s{]'
)
_IN_TESTS = frozenset({"provider", "providers", "prompts"})
_IN_OPTIONS = frozenset(
    {
        "disableConversationVar",
        "disableVarExpansion",
        "disable_conversation_var",
        "disable_var_expansion",
        "provider",
        "repeat",
        "runSerially",
        "run_serially",
        "storeOutputAs",
        "store_output_as",
        "transformVars",
        "transform_vars",
    }
)


def read_jsonl_tests(
    file: Path, context: FileContext, structure: Callable[[Any], Test], *, alone: bool = False
) -> Sequence[Test]:
    """Return the tests of a JSONL file: a tuple, or `JsonlTests` if more than `CHECKED_AT_ONCE`.

    Raises:
        MistakenError: All mistakes of the lines that are checked, each with its line.
    """
    lines = JsonlFile(file)
    starts, candidates = lines.scan()
    reader = _JsonlReader(
        lines, starts, context, context if alone else context.below(file), structure, alone
    )
    if len(starts) <= CHECKED_AT_ONCE:
        content = lines.read(0, None)
        at_once = attrs.evolve(reader, read=lambda start, stop: content[start:stop])
        return at_once.all_of(range(len(starts)))
    irregular = array("Q", (place for place in candidates if reader.is_irregular(place)))
    reader.all_of(irregular)
    return JsonlTests(reader, irregular)


@attrs.define(eq=False, repr=False)
class JsonlFile:
    """The lines of a file that must not change."""

    file: Path
    _state: tuple[int, int] | None = attrs.field(default=None, init=False)
    """Its size, and the time of its last change."""
    _blank: "array[int]" = attrs.field(factory=lambda: array("Q"), init=False)
    """The starts of blank lines."""
    _latest: tuple[int, bytes] = attrs.field(default=(0, b""), init=False)
    """The part of the file that was read last, and its offset. Replaced as one: threads share the file."""

    def scan(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the starts of lines that are not blank, and the indices of those that may be irregular.

        Raises:
            MistakenError: The file cannot be read.
        """
        starts, candidates = array("Q"), array("Q")
        self._blank = array("Q")
        at = 0
        try:
            with self.file.open("rb") as file:
                self._state = _state(file.fileno())
                if file.read(len(_BOM)) == _BOM:
                    at = len(_BOM)
                file.seek(at)
                while lines := file.readlines(_CHUNK):
                    chunk = b"".join(lines)
                    every: Iterable[int] = itertools.accumulate(map(len, lines), initial=at)
                    first = len(starts)
                    blank = list(map(bytes.isspace, lines))
                    if any(blank):
                        every = list(every)
                        self._blank.extend(itertools.compress(every, blank))
                    starts.extend(itertools.compress(every, map(operator.not_, blank)))
                    places = (
                        bisect.bisect_right(starts, at + found, lo=first) - 1
                        for found in _signs(chunk, lines)
                    )
                    candidates.extend(place for place, _ in itertools.groupby(places))
                    at += len(chunk)
        except OSError as error:
            message = f"cannot be read: {error.strerror}"
            raise MistakenError(Mistake(message, file=self.file)) from None
        return starts, candidates

    def read(self, start: int, stop: int | None) -> bytes:
        """Return the bytes between two offsets; None is the end.

        Those that were read together with earlier ones are not read again.

        Raises:
            MistakenError: The file can no longer be read, or has changed.
        """
        if stop is not None:
            at, part = self._latest
            if not at <= start <= stop <= at + len(part):
                # Tests are mostly accessed in order, and opening the file costs more than one test.
                at, part = start, self._read(start, max(stop, start + _AHEAD))
                self._latest = at, part
            return part[start - at : stop - at]
        return self._read(start, None)

    def _read(self, start: int, stop: int | None) -> bytes:
        try:
            with self.file.open("rb", buffering=0) as file:
                state = _state(file.fileno())
                if state != self._state:
                    message = "the file has changed since the suite was loaded"
                    raise MistakenError(Mistake(message, "load the suite again", file=self.file))
                file.seek(start)
                return file.read((state[0] if stop is None else stop) - start)
        except OSError as error:
            message = f"cannot be read any more: {error.strerror}"
            raise MistakenError(Mistake(message, file=self.file)) from None

    def number(self, place: int, start: int) -> int:
        """Return the number, from 1, of a line that is not blank, given its index and its start."""
        return place + bisect.bisect_left(self._blank, start) + 1


@attrs.frozen(eq=False, repr=False)
class _JsonlReader:
    """Converts lines to tests."""

    lines: JsonlFile
    starts: Sequence[int]
    context: FileContext
    beside: FileContext
    structure: Callable[[Any], Test]
    numbered: bool
    read: Callable[[int, int | None], bytes] = attrs.field()

    @read.default
    def _lines(self) -> Callable[[int, int | None], bytes]:
        return self.lines.read

    def all_of(self, places: Sequence[int]) -> tuple[Test, ...]:
        """Return several tests.

        Raises:
            MistakenError: All of their mistakes.
        """
        tests: list[Test] = []
        mistakes = Mistakes()
        for place in places:
            with mistakes.below():
                tests.append(self.test(place))
        if mistakes:
            raise MistakenError(*first_mistakes(mistakes, self.lines.file))
        return tuple(tests)

    def test(self, place: int) -> Test:
        """Return one test.

        Raises:
            MistakenError: All of its mistakes, at its line of the file.
        """
        try:
            description = f"Row #{place + 1}" if self.numbered else None
            data = read_line(self._line(place))
            with moved_unknown_keys(lambda part: self._placed(part, place)):
                return self.structure(complete(data, self.context, self.beside, description))
        except MistakenError as error:
            raise MistakenError(*(self._placed(part, place) for part in error.parts)) from None

    def is_irregular(self, place: int) -> bool:
        """Return whether a test may make several rows, none, or rows that depend on others.

        An invalid line may as well: its mistake is reported when it is read as a test.
        """
        try:
            return is_irregular(read_line(self._line(place)))
        except MistakenError:
            return True

    def _line(self, place: int) -> bytes:
        stop = self.starts[place + 1] if place + 1 < len(self.starts) else None
        return self.read(self.starts[place], stop).rstrip()

    def _placed(self, mistake: Mistake, place: int) -> Mistake:
        if mistake.file is not None:
            return mistake
        line = self.lines.number(place, self.starts[place])
        column = mistake.place[1] if mistake.place else 1
        return attrs.evolve(mistake, file=self.lines.file, place=(line, column))


@attrs.define(eq=False, repr=False)
class JsonlTests(LazySequence[Test]):
    """The tests of a JSONL file, created on access.

    An invalid line is a test with a `fault`, and so is every line of a file that has changed since it was
    loaded.
    """

    _reader: _JsonlReader
    irregular: Sequence[int]
    """The indices of the tests, ascending, that may make another number of rows than one, or rows that depend
    on others. Each has been read and is valid."""
    _latest: dict[int, Test] = attrs.field(factory=dict, init=False)

    @property
    def file(self) -> Path:
        """The file that contains them."""
        return self._reader.lines.file

    def __len__(self) -> int:
        return len(self._reader.starts)

    def __repr__(self) -> str:
        return f"<{len(self)} tests in {self._reader.lines.file}>"

    def entry(self, index: int) -> Test:
        """Return one test."""
        if (found := self._latest.get(index)) is not None:
            return found
        try:
            test = self._reader.test(index)
        except MistakenError as error:
            test = Test(fault="\n".join(map(_problem_text, error.parts)))
        if len(self._latest) == _KEPT:
            del self._latest[next(iter(self._latest))]
        self._latest[index] = test
        return test


def is_irregular(test: Any) -> bool:
    """Return whether a test, as plain data, may make another number of rows than one, or dependent rows.

    Example:
        >>> is_irregular({"vars": {"x": ["1", "2"]}}), is_irregular({"vars": {"x": "1"}})
        (True, False)
    """
    if not isinstance(test, dict) or not _IN_TESTS.isdisjoint(test):
        return True
    options, variables, metadata = (test.get(key, {}) for key in ("options", "vars", "metadata"))
    if not (isinstance(options, dict) and isinstance(variables, dict)):
        return True
    return (
        not _IN_OPTIONS.isdisjoint(options)
        or (isinstance(metadata, dict) and "conversationId" in metadata)
        or any(map(_stands_for_several, variables.values()))
        or _is_compared(test.get("assert"))
        or _names_judge(test.get("assert"))
        or any(map(names_file, (metadata, *options.values())))
    )


def read_line(line: bytes) -> Any:
    """Return the value of a line of JSON.

    Raises:
        MistakenError: It is not JSON or not UTF-8, or contains a duplicate key, or a number or a text that
            is not valid.
    """
    mistakes = Mistakes()

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            mistakes.append(Mistake(f"duplicate key {json.dumps(twice)}"))
        return found

    try:
        data = json.loads(line.decode(), object_pairs_hook=members, parse_int=read_integer)
    except UnicodeDecodeError as error:
        message = f"byte {error.start} of the line (0x{line[error.start]:02x}) is not UTF-8"
        raise MistakenError(Mistake(message, "save the file as UTF-8")) from None
    except json.JSONDecodeError as error:
        message, at = json_fault(error)
        hint = "write one object a line" if message.startswith("not JSON") else None
        raise MistakenError(Mistake(message, hint, place=(1, at + 1))) from None
    except RecursionError:
        raise MistakenError(Mistake("nested too deeply")) from None
    mistakes += check_plain(data)
    mistakes.raise_any()
    return data


def _signs(chunk: bytes, lines: Sequence[bytes]) -> Iterator[int]:
    """Yield the offsets in a chunk of signs of lines that may be irregular, ascending."""
    found: list[int] = []
    # Nearly always every line begins with an object; then lines need not be examined one by one.
    if not (chunk.startswith(b"{") and chunk.count(b"\n{") == len(lines) - 1):
        begins = itertools.accumulate(map(len, lines), initial=0)
        found += (
            begin
            for begin, line in zip(begins, lines, strict=False)
            if not line.isspace() and not line.lstrip().startswith(b"{")
        )
    if _has_sign(chunk):
        found += (sign.start() for sign in _CANDIDATE.finditer(chunk))
        found.sort()
    return iter(found)


def _has_sign(chunk: bytes) -> bool:
    return (
        any(sign in chunk for sign in _SIGNS)
        or (b"\\" in chunk and b"\\u00" in chunk)  # a single character is found much faster
        or any(shape.search(chunk) is not None for shape in _SHAPES)
    )


def _is_compared(assertions: Any) -> bool:
    """Return whether one of a test's assertions compares its outputs."""
    return isinstance(assertions, list) and any(
        isinstance(one, dict) and one.get("type") in COMPARISONS for one in assertions
    )


def _names_judge(assertions: Any) -> bool:
    """Return whether one of a test's assertions names its judge, which must be known before a run."""
    return isinstance(assertions, list) and any(
        isinstance(one, dict) and ("provider" in one or _names_judge(one.get("assert")))
        for one in assertions
    )


def _stands_for_several(value: Any) -> bool:
    match value:
        case str():
            return names_file(value)
        case list():
            return bool(value) and isinstance(value[0], str)
        case _:
            return False


def _state(descriptor: int) -> tuple[int, int]:
    found = os.fstat(descriptor)
    return found.st_size, found.st_mtime_ns


def _problem_text(mistake: Mistake) -> str:
    line, column = mistake.place or (None, None)
    file = None if mistake.file is None else str(mistake.file)
    return str(Problem(show_path(mistake.at), mistake.message, mistake.hint, file, line, column))
