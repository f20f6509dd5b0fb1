"""Tests from files: the tests of one entry of `tests`, by the suffix of its file."""

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import cattrs

from trioeval.documents.files import FILE, FileContext
from trioeval.documents.merge import Origin
from trioeval.documents.mistakes import (
    Mistake,
    MistakenError,
    Mistakes,
    below,
    kind,
    moved_unknown_keys,
    read_each,
    unknown_key,
)
from trioeval.documents.placing import first_mistakes, read_placed
from trioeval.documents.references import resolve_references
from trioeval.executables import find_program, install_hint, missing_program
from trioeval.grading import Computed, quote
from trioeval.suite.model import Test
from trioeval.suite.sources.prompts import read_python, read_text
from trioeval.suite.sources.values import complete, with_files

# Values of assertions that a program computes: `file://<file>[:<function>]`.


RUBY = ".rb"

_PROGRAM = re.compile(r"(?i)(.+?\.(?:py|[cm]?[jt]s|rb))(?::([\w.]+[?!]?))?")


def names_program(text: str) -> bool:
    """Return whether a reference names a file of code.

    Example:
        >>> names_program("file://check.py:judge"), names_program("file://check.txt")
        (True, False)
    """
    return _PROGRAM.fullmatch(text.removeprefix(FILE)) is not None


def read_computed(text: str, context: FileContext) -> Computed | None:
    """Return the program that a reference names, after checking that it can run; None if it names none.

    Raises:
        MistakenError: It cannot run: the file does not exist or is invalid, or its interpreter is not
            installed.
    """
    from trioeval.scripting.javascript import Script

    parts = _PROGRAM.fullmatch(text.removeprefix(FILE))
    if parts is None:
        return None
    context.check_code(quote(text))
    file, function = context.file(parts[1]), parts[2]
    match file.suffix.lower():
        case ".py":
            read_python(file, parts[1], function)
        case ".rb":
            check_ruby(context)
            read_text(file)
        case _:
            script = Script(read_text(file), ("output", "context"), "module", function, file=file)
            if fault := script.fault(context.environ):
                raise MistakenError(Mistake(f"{quote(parts[1])} {fault}"))
    return Computed(file, function, text)


def ruby_command(context: FileContext) -> str:
    """Return the command of the Ruby interpreter."""
    return context.variable("RUBY") or "ruby"


def check_ruby(context: FileContext) -> None:
    """Check that Ruby can run.

    Raises:
        MistakenError: The interpreter is not installed.
    """
    command = ruby_command(context)
    if find_program(command, context.environ) is None:
        message = missing_program(command, "Ruby code")
        raise MistakenError(Mistake(message, install_hint("set TRIOEVAL_RUBY to its path")))


SUFFIXES = (".csv", ".js", ".json", ".jsonl", ".py", ".ts", ".xlsx", ".yaml", ".yml")
"""Suffixes of files that contain tests."""
NONE_HINT = "add a test, or pass --allow-empty"

DATASETS = ("huggingface://datasets/", "hf://datasets/")
_REMOTE = ("http://", "https://", *DATASETS)

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_SCRIPT = re.compile(r"(?P<file>.*\.(?P<suffix>py|[cm]?[jt]s))(?::(?P<function>[^:/]+))?")
_SHEET = re.compile(r"(?P<file>.*\.(?P<suffix>xlsx?))(?:#(?P<sheet>.*))?", re.IGNORECASE)


def is_remote(reference: str) -> bool:
    """Return whether a reference to tests names a file on another machine.

    Example:
        >>> is_remote("hf://datasets/a/b"), is_remote("file://a.csv")
        (True, False)
    """
    return reference.startswith(_REMOTE)


def remote_names(document: Any) -> frozenset[str]:
    """Return the URLs that a suite names itself as tests of the suite, its tasks and its scenarios."""
    return frozenset(_remote_names_in(document)) if isinstance(document, dict) else frozenset()


def _remote_names_in(document: Mapping[str, Any]) -> Iterator[str]:
    for key in ("tests", "config"):
        value = document.get(key)
        for entry in value if isinstance(value, list) else [value]:
            named = entry.get("path") if isinstance(entry, dict) else entry
            if isinstance(named, str) and is_remote(named):
                yield named
    for key in ("tasks", "scenarios"):
        parts = document.get(key)
        for part in parts if isinstance(parts, list) else ():
            yield from _remote_names_in(part) if isinstance(part, dict) else ()


def remote_reader(make: Callable[[], cattrs.Converter]) -> Callable[[Any], Test]:
    """Return a reader of tests whose converter is made for the first one: most suites have none."""
    converter = functools.cache(make)

    def read(value: Any) -> Test:
        test: Test = converter().structure(value, Test)
        return test

    return read


def refuse_remote(_value: Any) -> Test:
    """Refuse tests from another machine, where nothing can read them safely."""
    raise MistakenError(Mistake("tests from another machine cannot be read here"))


def read_tests(
    reference: str | Mapping[str, Any],
    context: FileContext,
    structure: Callable[[Any], Test],
    *,
    remote: Callable[[Any], Test] = refuse_remote,
    alone: bool = False,
) -> Sequence[Test]:
    """Return the tests of one entry of `tests`.

    Args:
        reference: A path, a pattern, either of them with `file://`, a URL, or an object of `path` and
            `config`.
        context: The context of the file that contains the entry.
        structure: Converts plain data to a test, or raises MistakenError.
        remote: Does the same for rows from another machine, see `remote_tests.guarded`.
        alone: It is the whole value of `tests`, not an entry of a list.

    Raises:
        MistakenError: All mistakes of the reference and the files, each with its position.
    """
    from trioeval.suite.sources.csv_tests import read_xlsx_tests

    if not isinstance(reference, str):
        return _generated(reference, context, structure, remote)
    if is_remote(reference):
        from trioeval.suite.sources.remote_tests import read_remote_tests

        found, copy = read_remote_tests(reference, context, remote)
        return _checked_some(found, copy, context)
    _check_scheme(reference)
    path = reference.removeprefix(FILE)
    if script := _SCRIPT.fullmatch(path):
        return _from_script(script, (), context, structure)
    if book := _SHEET.fullmatch(path):
        if book["suffix"].lower() == "xls":
            message = f"tests from {quote(reference)} are not supported"
            raise MistakenError(Mistake(message, "save the file as .xlsx, or as CSV"))
        file = context.file(book["file"])
        return _checked_some(
            read_xlsx_tests(file, book["sheet"], context, structure), file, context
        )
    tests: list[Test] = []
    mistakes = Mistakes()
    files = context.files(reference)
    for file in files:
        with mistakes.below():
            found = _checked_some(_from_file(file, context, structure, alone=alone), file, context)
            if len(files) == 1:
                return found
            tests += found
    mistakes.raise_any()
    return tuple(tests)


def _checked_some(tests: Sequence[Test], file: Path, context: FileContext) -> Sequence[Test]:
    """Return the tests of a file; an empty one is refused unless the user allows it.

    Raises:
        MistakenError: The file is empty.
    """
    if not tests:
        is_table = file.suffix.lower() in {".csv", ".xlsx"} and file.stat().st_size > 0
        message = "no rows below the header" if is_table else "the file has no tests"
        if not context.allow_empty:
            raise MistakenError(Mistake(message, NONE_HINT, file=file))
        context.warn(Mistake(message, file=file))
    return tests


def _generated(
    reference: Mapping[str, Any],
    context: FileContext,
    structure: Callable[[Any], Test],
    remote: Callable[[Any], Test],
) -> Sequence[Test]:
    mistakes = Mistakes()
    for key in reference.keys() - {"path", "config"}:
        mistakes += unknown_key(key, ("config", "path"))
    path = reference.get("path")
    if not isinstance(path, str):
        mistakes.append(Mistake(f"must be the name of a file, got {kind(path)}", at=("path",)))
    mistakes.raise_any()
    with below("path"):
        script = _SCRIPT.fullmatch(str(path).removeprefix(FILE))
        if script is None:
            return read_tests(str(path), context, structure, remote=remote, alone=True)
        _check_scheme(str(path))
    with below("config"):
        config = [with_files(reference["config"], context)] if "config" in reference else []
    return _from_script(script, config, context, structure)


def _check_scheme(reference: str) -> None:
    found = _SCHEME.match(reference)
    if found and found[0] != FILE:
        message = f"tests from {found[0]}… are not supported, got {quote(reference)}"
        hint = "save them to a file, as CSV or JSONL"
        if found[0] in ("huggingface://", "hf://"):
            hint = f"write {found[0]}datasets/OWNER/NAME"
        raise MistakenError(Mistake(message, hint))


def _from_script(
    script: re.Match[str],
    arguments: Sequence[Any],
    context: FileContext,
    structure: Callable[[Any], Test],
) -> Sequence[Test]:
    from trioeval.suite.sources.code import call_function, check_node

    shown = quote(script["file"])
    context.check_code(shown)
    file = context.file(script["file"])
    is_python = script["suffix"] == "py"
    function = script["function"] or ("generate_tests" if is_python else "its default export")
    if is_python:
        read_python(file, script["file"], function)
        target = function
    else:
        check_node(file, "makes tests", context)
        target = f"value:{script['function'] or ''}"
    if not context.may_run(shown, f"the tests that {function} of {shown} makes"):
        return ()
    found = call_function(file, target, arguments, context)
    if not isinstance(found, list):
        message = f"{function} must return a list of tests, got {kind(found)}"
        raise MistakenError(Mistake(message, file=file))
    try:
        with moved_unknown_keys(lambda part: part if part.file else attrs.evolve(part, file=file)):
            tests = _structured(found, context, context, structure, numbered=False)
    except MistakenError as error:
        message = f"returned by {function}"
        raise MistakenError(
            *(
                attrs.evolve(part, file=file, hint=part.hint or message) if not part.file else part
                for part in first_mistakes(error.parts, file)
            )
        ) from None
    return _checked_some(tests, file, context)


def _from_file(
    file: Path, context: FileContext, structure: Callable[[Any], Test], *, alone: bool
) -> Sequence[Test]:
    from trioeval.suite.sources.csv_tests import read_csv_tests
    from trioeval.suite.sources.jsonl_tests import read_jsonl_tests

    match file.suffix.lower():
        case ".csv":
            return read_csv_tests(file, context, structure)
        case ".jsonl":
            return read_jsonl_tests(file, context, structure, alone=alone)
        case ".json" | ".yaml" | ".yml" as suffix:
            return _from_document(file, context, structure, numbered=alone and suffix == ".json")
        case suffix:
            message = f"tests from {quote(file.name)} are not supported"
            raise MistakenError(Mistake(message, f"use one of {', '.join(SUFFIXES)}"))


def _from_document(
    file: Path, context: FileContext, structure: Callable[[Any], Test], *, numbered: bool
) -> Sequence[Test]:
    origin = Origin(file, read_placed(file))
    data, _, dangling = resolve_references(origin, context)
    if dangling:
        raise MistakenError(*dangling)
    entries = data if isinstance(data, list) else [data]
    # Variables of the only source, if it is JSON, are relative to the suite.
    beside = context if numbered else context.below(file)

    def moved(part: Mistake) -> Mistake:
        return part if entries is data or part.file else attrs.evolve(part, at=part.at[1:])

    try:
        with moved_unknown_keys(lambda part: origin.placed(moved(part))):
            return _structured(entries, context, beside, structure, numbered=numbered)
    except MistakenError as error:
        parts = tuple(map(moved, error.parts))
        raise MistakenError(*first_mistakes(parts, file, origin.placed)) from None


def _structured(
    entries: Sequence[Any],
    context: FileContext,
    beside: FileContext,
    structure: Callable[[Any], Test],
    *,
    numbered: bool,
) -> tuple[Test, ...]:
    def read(place: int, entry: Any) -> Test:
        description = f"Row #{place + 1}" if numbered else None
        return structure(complete(entry, context, beside, description))

    return tuple(read_each(enumerate(entries), read).values())
