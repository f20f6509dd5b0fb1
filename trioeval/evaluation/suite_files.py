"""The files that a suite depends on, and their digests.

A suite with the same files, flags and environment has the same rows, so a run of it can be continued without
comparing them. A Python file includes the modules beside it that it imports, and those that they import; a
JavaScript file includes the files that it imports by relative paths. Some
things cannot be seen from files: the result of a test generator that depends on other data, the contents of
`file://…` variables, which are read when their rows run, and modules that are installed elsewhere, or
imported by a computed name.
"""

import ast
import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs

from trioeval.evaluation.registers import texts_in
from trioeval.scripting import SCRIPTS, is_script
from trioeval.suite.model import ProviderEntry, Suite, Test
from trioeval.suite.tests import checked_places

_CODE = re.compile(
    r"(?:file://|python:|exec:)?([^\n\0]{1,1000}?\.(?:py|[cm]?[jt]s|rb|sh))(?::[\w.]+[?!]?)?"
)
"""A text that is a reference to a code file."""

_SCRIPT_IMPORT = re.compile(
    r"""(?:\bfrom\s*|\bimport\s*\(?\s*|\brequire\s*\(\s*)(['"])(\.{1,2}/[^'"\n]+)\1"""
)
"""A relative path that JavaScript imports."""

_PREFIX = re.compile(r"\A(?:file://|python:|replay:)")


@attrs.define(eq=False, repr=False)
class CodeFiles:
    """The digests of code files, by the references to them; each file is read once.

    Args:
        directory: The folder that references are relative to.
    """

    directory: Path
    _digests: dict[str, str | None] = attrs.field(init=False, factory=dict)

    def __call__(self, text: str) -> str | None:
        """Return the digest of the file that a text references; None without a readable file."""
        # A search for the dot is much faster, and most texts of a suite have none.
        found = _CODE.fullmatch(text) if "." in text else None
        if found is None:
            return None
        if text not in self._digests:
            self._digests[text] = _code_digest(self.directory / found[1])
        return self._digests[text]


def files_of(suite: Suite) -> tuple[Path, ...]:
    """Return all files that decide the content of a suite: those it was read from, its code, and seeds."""
    files = list(suite.files)
    for part in (suite, *(task.suite for task in suite.tasks)):
        named = (_CODE.fullmatch(text) for text in _texts(part))
        for found in named:
            files += [] if found is None else with_imports(part.directory / found[1])
        files += part.settings.files()
    return tuple(dict.fromkeys(file for file in files if file.is_file()))


def named_files(suite: Suite) -> Iterator[Path]:
    """Yield the files that providers and options of a suite name: recordings, requests, variables.

    Some may not exist, since any text of a config might be a file name.
    """
    for part in (suite, *(task.suite for task in suite.tasks)):
        options = part.command_line_options
        texts = [*options.env_file, *options.env_path]
        for entry in part.providers:
            texts += _of_provider(entry)
        for text in texts:
            name = _PREFIX.sub("", text)
            if "\0" not in name:
                yield part.directory / name


def file_digests(files: Iterable[Path | str]) -> dict[str, str | None]:
    """Return the SHA-256 of files by their paths, in hexadecimal; None for an unreadable file."""
    return {str(file): _digest(Path(file)) for file in files}


def with_imports(file: Path) -> list[Path]:
    """Return a code file, and the modules in its folder that it imports, also indirectly.

    A JavaScript file may be in another folder.
    """
    found, folder = [file], file.parent
    for one in found:  # the list grows during the loop
        for name in _imported(one, folder) if one.suffix == ".py" else ():
            stem = folder.joinpath(*name.split("."))
            for module in (stem.with_suffix(".py"), stem / "__init__.py"):
                if module not in found and module.is_file():
                    found.append(module)
        if is_script(one):
            found += [module for module in _imported_scripts(one) if module not in found]
    return found


def _imported_scripts(file: Path) -> Iterator[Path]:
    """Yield the files that a JavaScript file imports by relative paths."""
    try:
        code = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for named in dict.fromkeys(found[2] for found in _SCRIPT_IMPORT.finditer(code)):
        path = os.path.normpath(file.parent / named)
        compiled = re.sub(r"\.([cm]?)js$", r".\1ts", path)
        endings = (*sorted(SCRIPTS), "/index.js", "/index.ts")
        tried = map(Path, (path, compiled, *(path + ending for ending in endings)))
        yield from itertools.islice((one for one in tried if one.is_file()), 1)


def _imported(file: Path, folder: Path) -> Iterator[str]:
    """Yield the names of modules that a file may import, each preceded by its packages."""
    try:
        tree = ast.parse(file.read_bytes())
        package = file.parent.relative_to(folder).parts
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom):
            around = package[: len(package) + 1 - node.level] if node.level else ()
            base = ".".join((*around, *([node.module] if node.module else [])))
            names += [base, *(f"{base}.{one.name}".strip(".") for one in node.names)]
    for name in dict.fromkeys(names):
        parts = [part for part in name.split(".") if part.isidentifier()]
        yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))


def _code_digest(file: Path) -> str | None:
    """Return the digest of a code file and the modules beside it that it imports."""
    digests = [_digest(one) for one in with_imports(file)]
    if len(digests) == 1:
        return digests[0]
    return hashlib.sha256(json.dumps(sorted(map(str, digests))).encode()).hexdigest()


def _texts(suite: Suite) -> Iterator[str]:
    """Yield the texts of a suite that may name code."""
    yield from suite.extensions
    yield from suite.nunjucks_filters.values()
    yield from suite.assertion_types.values()
    yield from (metric.value for metric in suite.derived_metrics)
    for prompt in suite.prompts:
        if prompt.function is not None:
            yield prompt.function.target
    yield from suite.settings.code()
    for entry in suite.providers:
        yield from _of_provider(entry)
    if suite.default_test is not None:
        yield from _of_test(suite.default_test)
    for place in checked_places(suite.tests):
        yield from _of_test(suite.tests[place])
    for scenario in suite.scenarios or ():
        for test in (*scenario.config, *scenario.tests):
            yield from _of_test(test)


def _of_provider(entry: ProviderEntry) -> Iterator[str]:
    yield entry.id
    if entry.transform is not None:
        yield entry.transform
    yield from texts_in(entry.config)


def _of_test(test: Test) -> Iterator[str]:
    own = (test.options.transform, test.assert_scoring_function)
    yield from (text for text in own if text is not None)
    for entry in (test.provider, test.judge):
        if entry is not None:
            yield from _of_provider(entry)
    for assertion in test.assertions:
        if assertion.transform is not None:
            yield assertion.transform


def _digest(file: Path) -> str | None:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except (OSError, ValueError):
        return None
