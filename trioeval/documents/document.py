"""The document of a suite: one file or several, with references and environment variables filled in."""

import glob
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from os import PathLike
from pathlib import Path
from typing import Any

import attrs

from trioeval.documents.environment import render_environment
from trioeval.documents.files import FileContext, roots_of
from trioeval.documents.merge import MergedPart, Origin, combine
from trioeval.documents.mistakes import SUITE_HINT, Mistake, MistakenError, kind
from trioeval.documents.paths import DocumentPath
from trioeval.documents.patterns import is_glob
from trioeval.documents.read import read_document, unwritten_document
from trioeval.documents.references import REFERENCE, resolve_references
from trioeval.documents.trust import TRUSTED, Trust
from trioeval.grading import quote
from trioeval.scripting import is_script


@attrs.frozen(eq=False, repr=False)
class SuiteDocument:
    """The contents of the files of a suite, as plain data."""

    data: Any
    """The data of the one file; of several files, one object whose providers have the key `providers`."""
    mistakes: Sequence[Mistake]
    """Mistakes that left the files readable, with their positions."""
    warnings: Sequence[Mistake]
    """Warnings, with their positions."""
    files: Sequence[Path]
    """All files that were read, including referenced files; absolute."""
    whole: bool
    """All files could be read; if not, names that are not found here may be defined in the others."""
    _origin: Origin = attrs.field(repr=False)
    """The first file."""
    _parts: Mapping[DocumentPath, MergedPart] = attrs.field(repr=False)

    def placed(self, mistake: Mistake) -> Mistake:
        """Return a mistake with its file, its path in that file, and its line and column."""
        if mistake.file is not None:
            return mistake
        for depth in range(len(mistake.at), 0, -1):
            if part := self._parts.get(mistake.at[:depth]):
                return part.placed(attrs.evolve(mistake, at=mistake.at[depth:]))
        return self._origin.placed(mistake)

    @property
    def has_gaps(self) -> bool:
        """True if at least one reference could not be resolved; null is in its place."""
        return bool(self._gaps)

    def follows(self, mistake: Mistake) -> bool:
        """Return whether a mistake is only a consequence of a reference that could not be resolved."""
        gaps, steps = self._gaps, range(len(mistake.at) + 1)
        return any((mistake.file, mistake.at[:depth]) in gaps for depth in steps)

    @property
    def _gaps(self) -> AbstractSet[tuple[Path | None, DocumentPath]]:
        dangling = (mistake for mistake in self.mistakes if mistake.at[-1:] == (REFERENCE,))
        return {(mistake.file, mistake.at[:-1]) for mistake in dangling}


def read_suite_documents(
    files: Sequence[Path],
    *,
    environ: Mapping[str, str],
    allow_outside: bool = False,
    trust: Trust = TRUSTED,
    with_own_paths: Callable[[Mapping[str, Any], Path], Mapping[str, Any]] = lambda data, _: data,
    run: Callable[[Path, FileContext], Any] | None = None,
) -> SuiteDocument:
    """Read the files of a suite.

    Args:
        files: Later ones add to earlier ones, or override them.
        environ: The environment variables.
        allow_outside: References may leave the root of the file that contains them.
        trust: Which environment variables templates may see.
        with_own_paths: Makes the paths in a file independent of its folder; called for files in another
            folder than the first.
        run: Returns the data of a file that is a program; None refuses such files.

    Raises:
        MistakenError: All mistakes of the files as documents, with their positions, if none can be read.
    """
    read: list[_Read] = []
    mistakes: list[Mistake] = []
    for file in files:
        directory = file.absolute().parent
        context = FileContext(
            directory=directory,
            environ=environ,
            roots=roots_of([directory], trust),
            allow_outside=allow_outside,
            trust=trust,
        )
        try:
            one = _read(file, context, run, alone=len(files) == 1)
        except MistakenError as error:
            mistakes += error.parts
            continue
        if directory != files[0].absolute().parent:
            one = attrs.evolve(one, data=with_own_paths(one.data, directory))
        read.append(one)
    if not read:
        raise MistakenError(*mistakes)
    data, parts = read[0].data, {}
    warnings = [warning for one in read for warning in one.warnings]
    if len(files) > 1:
        combined = combine([(one.data, one.origin) for one in read])
        data, parts = combined.data, combined.parts
        warnings += combined.warnings
    origins = [one.origin for one in read]
    return SuiteDocument(
        data,
        [
            *mistakes,
            *(mistake for one in read for mistake in one.dangling),
            *(origin.placed(mistake) for origin in origins for mistake in origin.document.mistakes),
        ],
        warnings,
        [
            *(file.absolute() for file in files),
            *(origin.file.absolute() for one in read for origin in one.others),
        ],
        len(read) == len(files),
        origins[0],
        parts,
    )


def suite_files(patterns: Sequence[str | PathLike[str]]) -> tuple[Path, ...]:
    """Return the suite files that paths and globs name, relative to the working directory; globs are sorted.

    Raises:
        MistakenError: A glob matches no file.
    """
    found: list[Path] = []
    mistakes: list[Mistake] = []
    for pattern in map(Path, patterns):
        if not is_glob(str(pattern)) or pattern.exists():
            found.append(pattern)
            continue
        matches = sorted(map(Path, glob.iglob(str(pattern), recursive=True)))  # noqa: PTH207 - may be absolute
        files = [path for path in matches if path.is_file()]
        if not files:
            message = f"no file matches {quote(str(pattern))}"
            mistakes.append(Mistake(message, "check the pattern", file=pattern))
        found += files
    if mistakes:
        raise MistakenError(*mistakes)
    return tuple(found)


@attrs.frozen(eq=False, repr=False)
class _Read:
    """One file of the suite."""

    data: Any
    origin: Origin
    others: Sequence[Origin]
    """The files that it references."""
    dangling: Sequence[Mistake]
    """References that cannot be resolved, and variables that it may not see."""
    warnings: Sequence[Mistake]


def _read(
    file: Path,
    context: FileContext,
    run: Callable[[Path, FileContext], Any] | None,
    *,
    alone: bool,
) -> _Read:
    try:
        if run is not None and is_script(file) and file.is_file():
            document = unwritten_document(run(file.absolute(), context))
        else:
            document = read_document(file)
    except MistakenError as error:
        raise MistakenError(*(attrs.evolve(part, file=file) for part in error.parts)) from None
    origin = Origin(file, document)
    data, others, dangling = resolve_references(origin, context)
    texts = [document.text, *(other.document.text for other in others)]
    rendered = render_environment(data, texts, context)
    mistakes = rendered.wrong
    if not (alone or isinstance(rendered.data, dict)):
        message = f"a suite must be an object, got {kind(rendered.data)}"
        mistakes = [*mistakes, Mistake(message, SUITE_HINT)]
    if mistakes:
        raise MistakenError(*map(origin.placed, [*dangling, *mistakes]))
    refused = map(origin.placed, rendered.refused)
    unset = [*map(origin.placed, rendered.unset)]
    return _Read(rendered.data, origin, others, [*dangling, *refused], unset)
