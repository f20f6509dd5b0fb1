"""Tests from other machines: datasets of Hugging Face, sheets of Google, and CSV files by their URLs.

The author of such a file must not run code here, read files or see the environment. So its rows are read
as those of an untrusted suite, and their variables are data: neither templates nor names of files.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import attrs

from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, is_misspelt, nearest
from trioeval.documents.placing import first_mistakes
from trioeval.documents.trust import LEAVE_OUT, Trust
from trioeval.errors import ProviderError
from trioeval.grading import quote
from trioeval.suite.model import MOST_ROWS, Test
from trioeval.suite.sources.tests import DATASETS
from trioeval.text import verbatim

FOLDER = "remote"
"""The folder of copies, beside the stored runs."""
_SHEETS = "https://docs.google.com/spreadsheets/"
_DATASET = re.compile(r"(?:huggingface|hf)://datasets/([\w.-]+)/([\w.-]+)/?(?:\?(.*))?", re.DOTALL)
_SHEET = re.compile(r"/spreadsheets/d/([\w-]+)(?:/|$)")
_KEYS = ("config", "limit", "split")
_HUB = "https://huggingface.co"
_TOKENS = ("HF_TOKEN", "HF_API_TOKEN", "HUGGING_FACE_HUB_TOKEN")
_ENVIRONMENT = re.compile(r"\{[{%][^{}]*\benv\b")
_SAVE = "save the file beside the suite, and name that"
_NO_SIDE_EFFECTS = (
    f"rows from another machine contain neither code nor names of files and variables; {_SAVE}"
)
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def guarded(context: FileContext) -> FileContext:
    """Return the context in which remote rows are read: no code, no environment, no files."""
    nowhere = _folder(context) / "nothing"
    return attrs.evolve(
        context,
        directory=nowhere,
        roots=(nowhere,),
        allow_outside=False,
        trust=Trust(trusted=False, plans=context.trust.plans),
    )


def read_remote_tests(
    reference: str, context: FileContext, structure: Callable[[Any], Test]
) -> tuple[Sequence[Test], Path]:
    """Return the tests of a file on another machine, and its copy on this one.

    Args:
        reference: Names it.
        context: The context of the entry that names it.
        structure: Reads one test in a context from `guarded`.

    Raises:
        MistakenError: The suite may not fetch it, it cannot be fetched, or its rows are wrong.
    """
    from trioeval.suite.sources.csv_tests import read_csv_tests

    _check_allowed(reference, context)
    is_dataset = reference.startswith(DATASETS)
    copy = _fetched_dataset(reference, context) if is_dataset else _fetched_csv(reference, context)
    context.on_file(copy)

    def read(value: Any) -> Test:
        if text := next((one for one in _texts_in(value) if _ENVIRONMENT.search(one)), None):
            message = f"a remote row does not see the environment, got {quote(text)}"
            raise MistakenError(Mistake(message, _SAVE))
        try:
            test = structure(value)
        except MistakenError as error:
            raise MistakenError(*map(_explained, error.parts)) from None
        return attrs.evolve(test, is_data=True)

    if not is_dataset:
        return read_csv_tests(copy, context, read), copy
    return _dataset_tests(copy, read), copy


def _check_allowed(reference: str, context: FileContext) -> None:
    if context.allow_network:
        return
    if not context.trust.trusted:
        message = f"an untrusted suite fetches no tests, got {quote(_shown(reference))}"
    elif reference not in context.own_urls:
        message = f"{quote(_shown(reference))} is not named by the suite file itself"
    else:
        return
    raise MistakenError(Mistake(message, "allow it with --allow-network"))


def _explained(mistake: Mistake) -> Mistake:
    if mistake.hint == LEAVE_OUT or (mistake.hint or "").startswith("allow it with "):
        return attrs.evolve(mistake, hint=_NO_SIDE_EFFECTS)
    return mistake


def _texts_in(value: Any) -> Iterator[str]:
    """Yield the texts of a test that are rendered: all but its variables."""
    match value:
        case str():
            yield value
        case list():
            for part in value:
                yield from _texts_in(part)
        case dict():
            for key, part in value.items():
                if key != "vars":
                    yield from _texts_in(part)
        case _:
            pass


def _dataset_tests(copy: Path, read: Callable[[Any], Test]) -> Sequence[Test]:
    from trioeval.suite.sources.jsonl_tests import read_line

    tests: list[Test] = []
    mistakes: list[Mistake] = []
    with copy.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                row = verbatim(read_line(line.rstrip()))
                tests.append(read({"vars": row, "options": {"disableVarExpansion": True}}))
            except MistakenError as error:
                mistakes += (
                    attrs.evolve(part, file=copy, place=(number, 1)) for part in error.parts
                )
    if mistakes:
        raise MistakenError(*first_mistakes(mistakes, copy))
    return tuple(tests)


def _fetched_dataset(reference: str, context: FileContext) -> Path:
    found = _DATASET.fullmatch(reference)
    if found is None:
        message = f"{quote(_shown(reference))} names no dataset"
        hint = f"write {DATASETS[0]}OWNER/NAME?split=test&config=default&limit=100"
        raise MistakenError(Mistake(message, hint))
    given = dict(parse_qsl(found[3] or "", keep_blank_values=True))
    for key in given:
        if key not in _KEYS and is_misspelt(key, _KEYS):
            message = f"{quote(key)} is not a parameter of a dataset"
            raise MistakenError(Mistake(message, nearest(key, _KEYS)))
    limit = given.pop("limit", None)
    if limit is not None and not (limit.isascii() and limit.isdecimal()):
        raise MistakenError(Mistake(f"limit must be a whole number, got {quote(limit)}"))
    hub = (context.process_environ.get("HF_ENDPOINT") or _HUB).rstrip("/")
    place = urlsplit(hub)
    token = next((text for name in _TOKENS if (text := context.visible_env.get(name))), None)
    if place.scheme != "https" and place.hostname not in _LOOPBACK:
        token = None
    owner, name = found[1], found[2]
    return _fetched(
        reference,
        context,
        suffix=".jsonl",
        url=f"{re.sub('^https://', 'https://datasets-server.', hub)}/rows",
        wanted="application/json",
        token=token,
        token_source=_TOKENS[0],
        rows={"dataset": f"{owner}/{name}", "config": "default", "split": "test", **given},
        most_rows=MOST_ROWS if limit is None else min(int(limit), MOST_ROWS),
    )


def _fetched_csv(reference: str, context: FileContext) -> Path:
    url = reference
    if reference.startswith(_SHEETS):
        url, ignored = sheet_export(reference)
        if ignored:
            message = f"gid={ignored} behind # has no effect: the first sheet is read"
            context.warn(Mistake(message, f"write ?gid={ignored} before the #", at=("tests",)))
    return _fetched(reference, context, suffix=".csv", url=url, wanted="text/csv")


def sheet_export(url: str) -> tuple[str, str | None]:
    """Return the URL of a sheet as CSV, and the number of a sheet that its address names without effect.

    Example:
        >>> sheet_export("https://docs.google.com/spreadsheets/d/1a/edit?gid=7#gid=7")
        ('https://docs.google.com/spreadsheets/d/1a/export?format=csv&gid=7', None)
    """
    parts = urlsplit(url)
    sheet = _SHEET.search(parts.path)
    if sheet is None or sheet[1] == "e":  # published, with an address of its own
        return url, None
    number = dict(parse_qsl(parts.query)).get("gid")
    shown = dict(parse_qsl(parts.fragment)).get("gid")
    ignored = shown if shown and shown not in (number, "0") else None
    export = f"{_SHEETS}d/{sheet[1]}/export?format=csv"
    return (f"{export}&gid={number}" if number else export), ignored


def _fetched(reference: str, context: FileContext, *, suffix: str, **parts: Any) -> Path:
    """Return the copy of a remote file, which is fetched or found to be the same still."""
    from trioeval.providers.remote_files import RemoteFile, fetch
    from trioeval.suite.sources.code import call_on_end

    named = context.variable("CA_CERT_PATH")
    file = RemoteFile(
        copy=_folder(context) / f"{_copy_name(reference)}{suffix}",
        ca=context.directory / named if named else None,
        verify=not context.switch("INSECURE_SSL"),
        **parts,
    )
    shown = quote(_shown(reference))
    try:
        with call_on_end() as cancellable:
            stale = fetch(file, cancellable=cancellable)
    except ProviderError as error:
        raise MistakenError(Mistake(f"{shown} cannot be fetched: {error}")) from None
    if stale is not None:
        message = f"{shown} cannot be fetched, so the last copy {file.copy} is used: {stale}"
        context.warn(Mistake(message, at=("tests",)))
    return file.copy


def _shown(reference: str) -> str:
    """Return a reference without its query and password, which may be secret."""
    try:
        parts = urlsplit(reference)
    except ValueError:
        return "a URL"
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _copy_name(reference: str) -> str:
    """Return the name of a copy: readable, and unique to the whole reference."""
    words = re.sub(r"[^\w.-]+", "-", _shown(reference).partition("://")[2]).strip("-.")
    digest = hashlib.sha256(reference.encode()).hexdigest()[:12]
    return f"{words[-60:].strip('-.')}-{digest}"


def _folder(context: FileContext) -> Path:
    """Return the folder of copies, which the suite does not choose."""
    process = attrs.evolve(context, environ=context.process_environ)
    return Path(process.variable("CONFIG_DIR", ".trioeval")).expanduser().absolute() / FOLDER
