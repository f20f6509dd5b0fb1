"""`trioeval init --csv`: a suite for a table of questions."""

import csv
import json
import math
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from trioeval.cli.arguments import SUITE_SUFFIXES
from trioeval.cli.flags import InitFlags
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import SuiteError, UsageError
from trioeval.loading.load import load_suite
from trioeval.paths import suite_root
from trioeval.providers.resolve import MODULES, split_id
from trioeval.run import prepare
from trioeval.text import counted

_ANSWERS = (
    "answer", "expected", "target", "expected_answer", "expected_output", "correct_answer",
    "reference_answer", "ground_truth", "gold", "label", "solution", "reference", "correct", "output",
)  # fmt: skip
"""Names of answer columns, the most likely first."""
_QUESTIONS = ("question", "prompt", "query", "problem", "input", "instruction", "text", "task")
"""Names of question columns, the most likely first."""
_PARTS = frozenset(
    {"context", "passage", "document", "choices", "options", "choice", "option", *"abcdefgh"}
)
"""Names of columns that belong to a question."""
_FACTS = frozenset(
    {"id", "idx", "index", "number", "no", "uuid", "key", "category", "subject", "topic", "level",
     "difficulty", "source", "split", "tags", "url", "notes", "comment", "explanation", "rationale"}
)  # fmt: skip
"""Names of columns that describe a question without being part of it."""
_NUMBERED = re.compile(r"(?:choice|option)_?[a-z0-9]")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"https?://", re.IGNORECASE)
_SHORT = 3  # words of an answer that a reply can consist of


@attrs.frozen
class _Table:
    path: Path
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]

    def cells(self, column: str) -> list[str]:
        """The cells of a column; those that a short row lacks are empty."""
        at = self.columns.index(column)
        return [row[at].strip() if at < len(row) else "" for row in self.rows]


@attrs.frozen
class _Model:
    """A provider of the suite."""

    id: str
    label: str | None = None
    base_url: str | None = None

    @property
    def name(self) -> str:
        """The heading of its column."""
        return self.label or self.id


@attrs.frozen
class _SuiteParts:
    """The table and the choices of a suite."""

    table: _Table
    models: Sequence[_Model]
    questions: Sequence[str]
    answer: str | None
    checks: Sequence[str]

    @property
    def is_short(self) -> bool:
        """True if every answer is a number or a few words, so that a reply can consist of it."""
        if self.answer is None:
            return False
        return all(len(cell.split()) <= _SHORT for cell in self.table.cells(self.answer))

    def prompt(self) -> str:
        """Return the prompt template."""
        first, *others = self.questions
        parts = [f"{{{{{first}}}}}"]
        if others:
            parts.append("\n".join(f"{name}: {{{{{name}}}}}" for name in others))
        if self.is_short:
            parts.append("Reply with the answer only, without explanation or punctuation.")
        return "\n\n".join(parts)


def write_table_suite(
    folder: Path | None, path: Path, flags: InitFlags, environ: Mapping[str, str]
) -> int:
    """Write a suite for a table of questions, and print the command that runs it.

    Args:
        folder: The folder of the suite; None for the folder of the table.
        path: The table.
        flags: The models, and names of columns.
        environ: The environment of the process.

    Raises:
        UsageError: The table or a flag cannot be used, or the suite exists.
    """
    if folder is not None and flags.output is not None:
        raise UsageError(f"{folder} and -o {flags.output}: give either a folder or the suite file")
    suite = flags.output or (path.parent if folder is None else folder) / "suite.yaml"
    if suite.suffix.lower() not in SUITE_SUFFIXES[1:3]:
        raise UsageError(f"-o {suite}: the name must end in .yaml or .yml")
    models = _models(flags)
    table = _read_table(path, environ)
    checks = [name for name in table.columns if name.startswith("__expected")]
    answer = _answer_column(table, flags.answer_column, checks)
    questions = _question_columns(table, flags.question_column, answer)
    if suite.exists() or suite.is_symlink():
        raise UsageError(f"{suite}: already exists; name another file with -o")
    parts = _SuiteParts(table, models, questions, answer, checks)
    outside = not path.resolve().is_relative_to(suite_root(suite.parent.absolute()).resolve())
    missing = _write_checked(suite, _suite_text(suite, parts), environ, outside=outside)
    say(f"wrote {suite}: {counted(len(table.rows), 'row')} of {path}")
    for line in (*_notes(parts), *missing):
        say(line)
    show(" ".join(["trioeval", shlex.quote(str(suite)), *(["--allow-outside"] if outside else [])]))
    return Exit.OK


def _models(flags: InitFlags) -> Sequence[_Model]:
    """Return the models that the flags name, in their order."""
    if not flags.model:
        raise UsageError("--csv needs a model, such as --model openai:gpt-4.1-mini")
    url = flags.base_url
    for name in flags.model:
        if _URL.match(name):
            raise UsageError(
                f"--model {name}: is a URL; name the model as well: --model NAME --base-url {name}"
            )
    if url is not None and not _URL.match(url):
        raise UsageError(f"--base-url {url}: must begin with http:// or https://")
    models = [_model(name, url) for name in flags.model]
    _check_different(flags.model, models)
    if url is not None and not any(model.base_url for model in models):
        raise UsageError(
            f"--base-url {url}: has no effect on {_listed(flags.model)}; "
            "name a model of that server, such as openai:NAME"
        )
    return models


def _model(name: str, url: str | None) -> _Model:
    """Return a model; with a base URL, a name without a vendor is one of that server."""
    vendor, _ = split_id(name)
    if url is None:
        return _Model(name)
    if vendor == "openai":
        return _Model(name, base_url=url)
    return _Model(name) if vendor in MODULES else _Model(f"openai:chat:{name}", name, url)


def _check_different(names: Sequence[str], models: Sequence[_Model]) -> None:
    """Raise if two names are those of one model."""
    first: dict[str, str] = {}
    for name, model in zip(names, models, strict=True):
        identity = re.sub("^openai:chat:", "openai:", model.id)
        if (other := first.get(identity)) is not None:
            same = "given twice" if other == name else f"the same model as {other}"
            raise UsageError(f"--model {name}: {same}; name each model once")
        first[identity] = name


def _read_table(path: Path, environ: Mapping[str, str]) -> _Table:
    """Read a CSV file.

    Raises:
        UsageError: It cannot be read, or has no header or no rows.
    """
    if path.suffix.lower() != ".csv":
        raise UsageError(f"--csv {path}: the name must end in .csv")
    names = ("TRIOEVAL_CSV_DELIMITER", "PROMPTFOO_CSV_DELIMITER")
    delimiter = next((environ[name] for name in names if environ.get(name)), ",")
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [
                row for row in csv.reader(file, delimiter=delimiter) if any(map(str.strip, row))
            ]
    except FileNotFoundError:
        raise UsageError(f"--csv {path}: file not found{_similar(path)}") from None
    except OSError as error:
        raise UsageError(f"--csv {path}: cannot be read: {error.strerror or error}") from None
    except (csv.Error, UnicodeDecodeError, TypeError) as error:
        raise UsageError(f"--csv {path}: not a CSV file in UTF-8: {error}") from None
    if not lines:
        raise UsageError(f"--csv {path}: empty; the first line must name the columns")
    header = [cell.strip() for cell in lines[0]]
    _check_header(path, header, has_rows=len(lines) > 1)
    return _Table(path, header, lines[1:])


def _check_header(path: Path, header: Sequence[str], *, has_rows: bool) -> None:
    """Refuse a first line that does not name columns, and a table without rows."""
    for mark, name in ((";", "';'"), ("\t", r"$'\t'")):
        if len(header) == 1 and mark in header[0]:
            raise UsageError(
                f"--csv {path}: one column only, {header[0]!r}; if {mark!r} separates its cells, "
                f"set TRIOEVAL_CSV_DELIMITER={name}"
            )
    known = {*_ANSWERS, *_QUESTIONS, *_PARTS, *_FACTS}
    is_data = not has_rows and not known & {_plain(name) for name in header}
    if is_data or not any(header) or any(map(_is_number, header)):
        raise UsageError(f"--csv {path}: no header; the first line must name the columns")
    if twice := sorted({name for name in header if header.count(name) > 1}):
        raise UsageError(f"--csv {path}: several columns are named {', '.join(map(repr, twice))}")
    if not has_rows:
        raise UsageError(f"--csv {path}: no rows below the header")


def _similar(path: Path) -> str:
    """Return the names of CSV files beside a file that does not exist."""
    try:
        found = sorted(str(one) for one in path.parent.iterdir() if one.suffix == ".csv")
    except OSError:
        return ""
    return f"; CSV files there: {', '.join(found[:5])}" if found else ""


def _plain(name: str) -> str:
    """Return a column name as it is compared: lower case, words joined by underscores."""
    return re.sub(r"[\s-]+", "_", name.strip().lower())


def _is_number(cell: str) -> bool:
    try:
        return math.isfinite(float(cell.replace(",", "")))
    except ValueError:
        return False


def _column(table: _Table, name: str, flag: str) -> str:
    """Return a column that a flag names."""
    if name not in table.columns:
        columns = ", ".join(filter(None, table.columns))
        raise UsageError(f"{flag} {name}: {table.path} has no such column; it has {columns}")
    return _usable(table, name)


def _usable(table: _Table, name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        better = re.sub(r"\W+", "_", name).strip("_") or "question"
        raise UsageError(
            f"{table.path}: the column {name!r} cannot be used in a template; "
            f"rename it in the first line, to {better!r} for example"
        )
    return name


def _answer_column(table: _Table, named: str | None, checks: Iterable[str]) -> str | None:
    """Return the column of answers; None if there is none or `__expected` columns check the output."""
    if named is not None:
        return None if named in checks else _column(table, named, "--answer-column")
    if any(checks):
        return None
    plain = {_plain(name): name for name in reversed(table.columns)}
    found = next((plain[name] for name in _ANSWERS if name in plain), None)
    return None if found is None else _usable(table, found)


def _question_columns(table: _Table, named: Sequence[str], answer: str | None) -> list[str]:
    """Return the columns that the prompt shows, the question itself first."""
    if named:
        return [_column(table, name, "--question-column") for name in named]
    free = [name for name in table.columns if name and name != answer and not name.startswith("__")]
    plain = {_plain(name): name for name in reversed(free)}
    first = next((plain[name] for name in _QUESTIONS if name in plain), None)
    if first is not None:
        parts = [name for name in free if _is_part(_plain(name)) and name != first]
        return [_usable(table, name) for name in (first, *parts)]
    found = [name for name in free if _plain(name) not in _FACTS]
    if not found:
        columns = ", ".join(filter(None, table.columns))
        raise UsageError(
            f"{table.path}: no question column among {columns}; name one with --question-column"
        )
    return [_usable(table, name) for name in found]


def _is_part(name: str) -> bool:
    return name in _PARTS or _NUMBERED.fullmatch(name) is not None


def _notes(parts: _SuiteParts) -> Iterable[str]:
    """Yield the columns that were chosen, and warnings about them."""
    yield f"the prompt shows {', '.join(parts.questions)}"
    if parts.checks:
        yield f"outputs are checked by {', '.join(parts.checks)}"
    elif parts.answer is None:
        yield (
            "warning: no answer column found, so the suite has no assertion and no row is graded; "
            "name the column with --answer-column"
        )
    else:
        yield f"outputs are compared with {parts.answer}"
        if empty := parts.table.cells(parts.answer).count(""):
            verb = "has" if empty == 1 else "have"
            yield f"warning: {counted(empty, 'row')} of {parts.table.path} {verb} no answer"


def _write_checked(
    suite: Path, text: str, environ: Mapping[str, str], *, outside: bool
) -> Sequence[str]:
    """Write a suite and check it; remove it if it cannot be run.

    Returns:
        Warnings about what it needs before it can run, such as a key.

    Raises:
        UsageError: The suite cannot be written, or a model or the table cannot be used.
    """
    try:
        suite.parent.mkdir(parents=True, exist_ok=True)
        with suite.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{suite}: cannot be written: {error.strerror or error}") from None
    is_valid = False
    try:
        missing = _missing(suite, environ, outside=outside)
        is_valid = True
    except SuiteError as error:
        raise UsageError(f"no suite was written:\n{error}") from None
    finally:
        if not is_valid:
            suite.unlink(missing_ok=True)
    return missing


def _missing(suite: Path, environ: Mapping[str, str], *, outside: bool) -> Sequence[str]:
    """Return warnings about what a suite needs before it can run.

    Raises:
        SuiteError: The suite is wrong, or a provider unknown.
    """
    loaded = load_suite(suite, environ=environ, allow_outside=outside)
    try:
        prepare(loaded, environ=environ)
    except SuiteError as error:
        if unknown := [problem for problem in error.problems if problem.path.endswith(".id")]:
            raise SuiteError(unknown, files=error.files) from None
        return [
            f"warning: {problem.message}{f'; {problem.hint}' if problem.hint else ''}"
            for problem in error.problems
        ]
    return ()


def _suite_text(suite: Path, parts: _SuiteParts) -> str:
    """Return the suite as YAML with comments."""
    path = parts.table.path
    reference = os.path.relpath(path.resolve(), suite.parent.resolve()).replace(os.sep, "/")
    unused = [
        name
        for name in parts.table.columns
        if name and name not in {*parts.questions, parts.answer} and not name.startswith("__")
    ]
    more = f" Other columns: {', '.join(unused)}." if unused else ""
    names = _listed([model.name for model in parts.models])
    lines = [
        f"# Questions of {_comment(path.name)}, answered by {_comment(names)}.",
        f"description: {_quoted(f'{path.stem} with {names}')}",
        "",
        "providers:",
        *(line for model in parts.models for line in _provider_lines(model)),
        "",
        "prompts:",
        f"  # {{{{name}}}} is the cell of the column `name`.{_comment(more)}",
        "  - |-",
        *(f"    {line}".rstrip() for line in parts.prompt().splitlines()),
        "",
        "# One test a row. Columns are variables; __expected columns, if any, are assertions.",
        f"tests: {_quoted(f'file://{reference}')}",
        "",
        *_assertion_lines(parts),
        "",
        "evaluateOptions:",
        "  timeoutMs: 120000  # the working time of one row",
        "  # budget:",
        "  #   usd: 1         # stop before the run costs more",
    ]
    return "\n".join(lines) + "\n"


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _comment(text: str) -> str:
    """Return text that stays on the line of a comment."""
    return "".join(mark if mark.isprintable() else " " for mark in text)


def _quoted(text: str) -> str:
    """Return a YAML scalar; JSON strings are YAML."""
    return json.dumps(text, ensure_ascii=False)


def _provider_lines(model: _Model) -> Sequence[str]:
    return (
        f"  - id: {_quoted(model.id)}",
        *([f"    label: {_quoted(model.label)}"] if model.label else []),
        "    config:",
        *([f"      apiBaseUrl: {_quoted(model.base_url)}"] if model.base_url else []),
        "      temperature: 0",
        *_lane_lines(model.base_url),
    )


def _lane_lines(base_url: str | None) -> Sequence[str]:
    if base_url is None:
        return (
            "    lane:               # limits of your account: raise them if it allows more",
            "      maxConcurrency: 4",
            "      rpm: 120",
        )
    return (
        "    lane:               # as many requests as the server handles at once",
        "      maxConcurrency: 4",
        "      # rpm: 120",
    )


def _assertion_lines(parts: _SuiteParts) -> Sequence[str]:
    if parts.checks:
        return ("# The outputs are checked by the __expected columns of the table.",)
    if parts.answer is None:
        return (
            "# No answer column was found, so no row is graded. To grade rows, name a column here:",
            "# defaultTest:",
            "#   assert:",
            "#     - type: icontains",
            '#       value: "{{answer}}"',
        )
    if parts.is_short:
        comment = (
            "# The reply must be the answer itself. Use `icontains` if it may say more, or `similar` or",
            "# `llm-rubric` (both need a model) if other words are right too.",
        )
    else:
        comment = (
            "# The reply must contain the answer, ignoring case. Use `similar` or `llm-rubric` (both need a",
            "# model) if other words are right too.",
        )
    return (
        *comment,
        "defaultTest:",
        "  assert:",
        f"    - type: {'equals' if parts.is_short else 'icontains'}",
        f"      value: {_quoted(f'{{{{{parts.answer}}}}}')}",
    )
