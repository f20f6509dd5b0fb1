# Separate from `columns.form`: these checks read no file.
"""References between columns: the names that their texts use, and the checks that these columns exist."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.columns.column_form import missing_categories, prompt_text
from trioeval.columns.graph import ColumnGraph, Producer
from trioeval.columns.model import (
    CategorySampler,
    Column,
    PythonColumn,
    SamplerColumn,
    SeedColumns,
    SubcategorySampler,
)
from trioeval.columns.types import extras_of, producer_of
from trioeval.documents.files import FileContext
from trioeval.documents.mistakes import Mistake, MistakenError, nearest
from trioeval.documents.paths import DocumentPath
from trioeval.documents.structure import camel
from trioeval.grading import quote
from trioeval.templates import Templates
from trioeval.templates.expressions import (
    expression_error,
    expression_names,
    is_of_python,
    python_error,
    python_names,
)
from trioeval.templates.variables import GLOBAL_NAMES
from trioeval.text import parse_json


@attrs.frozen
class NameUse:
    """The names that one part of an entry uses."""

    at: DocumentPath
    names: tuple[str, ...] = ()
    """Columns, and side-effect columns."""
    fault: str | None = None
    """The error in the part, which then has no names."""
    is_later: bool = False
    """True if it is evaluated after the column's own values are made."""
    may_be_own: bool = False
    """True if the column's own name is accepted and ignored."""
    is_python: bool = False

    def means_column(self, name: str, known: Collection[str]) -> bool:
        """Return True if a name must be a column: it is one, or has no other meaning."""
        return name in known or not (is_of_python(name) if self.is_python else name in GLOBAL_NAMES)


@attrs.frozen
class NameReader:
    """Finds the names that entries use."""

    context: FileContext
    templates: Templates

    def uses(self, entry: Any) -> Iterator[NameUse]:
        """Yield the parts of an entry that name columns, in its order. Parts of a wrong type are skipped."""
        if not isinstance(entry, dict):
            return
        for key, value in entry.items():
            match entry.get("type"), camel(key), value:
                case _, "requires", list():
                    names = ((place, name) for place, name in enumerate(value) if _is_text(name))
                    yield from (
                        NameUse((key, at), (_first(name),), may_be_own=True) for at, name in names
                    )
                case _, "skip", {"when": str(text)}:
                    yield from self._expression((key, "when"), text)
                case _, "dropWhen", str():
                    yield from self._expression((key,), value, is_later=True)
                case ("sampler", "category", str()) | ("validation", "target", str()):
                    yield NameUse((key,), (_first(value),))
                case "validation", "assert", list():
                    yield from self._assertions((key,), value)
                case kind, name, str() | list():
                    yield from self._text(kind, name, key, value)
                case _:
                    pass

    def _text(self, kind: Any, name: str, key: str, value: str | list[Any]) -> Iterator[NameUse]:
        """Yield the use of a template or expression from which a column is made."""
        match kind, name, value:
            case ("expression", "template", str(text)) | ("embedding", "text", str(text)):
                fault = self.templates.syntax_error(text)
                yield NameUse((key,), _sorted(self.templates.references(text)), fault)
            case "expression", "python", str():
                yield NameUse(
                    (key,), _sorted(python_names(value)), python_error(value), is_python=True
                )
            case (("llm" | "judge"), "prompt", _):
                try:
                    text = prompt_text(value, self.context)
                except MistakenError:  # reported when the prompt is read
                    return
                names = {
                    name for one in _templates_in(text) for name in self.templates.references(one)
                }
                yield NameUse((key,), _sorted(names), self.templates.prompt_error(text))
            case _:
                pass

    def _expression(
        self, at: DocumentPath, text: str, *, is_later: bool = False
    ) -> Iterator[NameUse]:
        if text.strip():
            fault = expression_error(text, self.templates.filters)
            yield NameUse(
                at, _sorted(expression_names(text, self.templates.filters)), fault, is_later
            )

    def _assertions(self, at: DocumentPath, value: Iterable[Any]) -> Iterator[NameUse]:
        """Yield the uses in assertions; their errors are reported when they are read."""
        for place, assertion in enumerate(value):
            below = assertion if isinstance(assertion, dict) else {}
            for key in ("value", "metric"):
                texts = below.get(key)
                for text in texts if isinstance(texts, list) else [texts]:
                    if isinstance(text, str):
                        yield NameUse((*at, place, key), _sorted(self.templates.references(text)))
            members = below.get("assert")
            if isinstance(members, list):
                yield from self._assertions((*at, place, "assert"), members)


def _templates_in(prompt: str) -> Iterator[str]:
    """Yield the templates in a prompt: of a JSON prompt its decoded texts."""
    try:
        parts = [parse_json(prompt)]
    except ValueError:
        parts = [prompt]
    while parts:
        part = parts.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, list | dict):
            parts += part.values() if isinstance(part, dict) else part


def _sorted(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def related(
    entries: Sequence[Any], columns: Sequence[Column | None], reader: NameReader
) -> tuple[list[Column | None], list[Mistake]]:
    """Return columns with their dependencies, and everything that is wrong with these.

    Args:
        entries: The entries of the file.
        columns: The column of each entry; None for invalid ones.
        reader: Finds the names.
    """
    made = [_made_by(entry, column) for entry, column in zip(entries, columns, strict=True)]
    mistakes = list(_made_twice(made))
    real = {name for names, _ in made for name in names.values()}
    known = real | {name for _, extras in made for name in extras.values()}
    found: list[Column | None] = []
    for place, (entry, column) in enumerate(zip(entries, columns, strict=True)):
        names, extras = made[place]
        own = {*names.values(), *(name for name in extras.values() if name not in real)}
        needed: dict[str, None] = {}
        for use in reader.uses(entry):
            if use.fault is not None:
                mistakes.append(Mistake(use.fault, at=use.at).below(place))
                continue
            others = [name for name in use.names if use.means_column(name, known)]
            mistakes += (one.below(place) for one in _wrong_names(entry, use, others, own, known))
            needed |= dict.fromkeys(name for name in others if name in known - own)
        if column is not None and needed and _comes_first(column):
            message = f"this column is made first, but needs {_listed(needed)}, made later"
            at = next(at for at in (("dropWhen",), ("drop_when",)) if at[0] in entry)
            mistakes.append(Mistake(message, "use only its own columns", at=(place, *at)))
        found.append(column and attrs.evolve(column, requires=tuple(needed)))
    mistakes += _category_mistakes(found)
    mistakes += _cycles(found)
    return found, mistakes


def _comes_first(column: Column) -> bool:
    """Return True if a column needs no others; it may still drop rows by its own values."""
    return isinstance(column, SeedColumns) or (
        isinstance(column, PythonColumn) and column.scope == "scratch"
    )


def _first(name: str) -> str:
    """Return the column of a dotted name."""
    return name.partition(".")[0]


def _listed(names: Iterable[str]) -> str:
    return " and ".join(names)


_Places = Mapping[DocumentPath, str]
"""Names by their places in an entry."""


def _made_by(entry: Any, column: Column | None) -> tuple[_Places, _Places]:
    """Return the columns and side-effect columns of an entry; for an invalid one, what it seems to make."""
    entry = entry if isinstance(entry, dict) else {}
    names: dict[DocumentPath, str] = {}
    extras: dict[DocumentPath, str] = {}
    for key, value in entry.items():
        match key, value:
            case "name", str():
                names[key,] = value
            case "outputs", list():
                names |= {(key, place): one for place, one in enumerate(value) if _is_text(one)}
            case "columns", list() if entry.get("type") == "seed":
                names |= {(key, place): one for place, one in enumerate(value) if _is_text(one)}
            case "columns", dict() if entry.get("type") == "seed":
                names |= {(key, one): one for one in value}
            case "extras", list():
                extras |= {(key, place): one for place, one in enumerate(value) if _is_text(one)}
            case "reasoning" | "trace", str() if entry.get("type") in ("llm", "judge"):
                extras[key,] = value
            case _:
                pass
    if column is not None:
        names = {at: name for at, name in names.items() if name in column.outputs}
        extras = {at: name for at, name in extras.items() if name in extras_of(column)}
    # `outputs` of a function also contains its name.
    first = {name: at for at, name in reversed(names.items())}
    return {at: name for name, at in first.items()}, extras


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _made_twice(made: Sequence[tuple[_Places, _Places]]) -> Iterator[Mistake]:
    """Yield columns with the same name, and side-effect columns with the same name that no column has."""
    first: dict[str, DocumentPath] = {}
    for place, (names, _) in enumerate(made):
        for at, name in names.items():
            if name in first:
                yield _twice(name, first[name], (place, *at), "column")
            first.setdefault(name, (place, *at))
    aside: dict[str, DocumentPath] = {}
    for place, (_, extras) in enumerate(made):
        for at, name in extras.items():
            if name in first:
                continue
            if name in aside:
                yield _twice(name, aside[name], (place, *at), "side-effect column")
            aside.setdefault(name, (place, *at))


def _twice(name: str, first: DocumentPath, at: DocumentPath, kind_of_name: str) -> Mistake:
    message = f"columns[{first[0]}] also makes the {kind_of_name} {quote(name)}"
    return Mistake(message, "rename one of them", at=at)


def _wrong_names(
    entry: Any, use: NameUse, names: Iterable[str], own: set[str], known: set[str]
) -> Iterator[Mistake]:
    user = entry.get("name") if isinstance(entry, dict) else None
    where = f" in column {quote(user)}" if isinstance(user, str) else ""
    for name in names:
        if name not in known:
            may_be = known if use.is_later or use.may_be_own else known - own
            yield Mistake(f"unknown column {quote(name)}{where}", nearest(name, may_be), at=use.at)
        elif name in own and not (use.is_later or use.may_be_own):
            message = f"{quote(name)} is made here, and has no value yet"
            yield Mistake(message, "use another column", at=use.at)


def _category_mistakes(columns: Sequence[Column | None]) -> Iterator[Mistake]:
    """Yield categories without values, and values of unknown categories, if all categories are known."""
    drawn = {
        column.name: column.sampler
        for column in columns
        if isinstance(column, SamplerColumn) and isinstance(column.sampler, CategorySampler)
    }
    for place, column in enumerate(columns):
        sampler = column.sampler if isinstance(column, SamplerColumn) else None
        if not isinstance(sampler, SubcategorySampler) or sampler.category not in drawn:
            continue
        missing, foreign = missing_categories(sampler, drawn[sampler.category])
        at = (place, "values")
        if missing:
            message = f"no values are given for {_listed(map(quote, missing))}"
            yield Mistake(message, f"{sampler.category} may have any of these values", at=at)
        for name in foreign:
            message = f"{quote(name)} is not a value of {sampler.category}"
            yield Mistake(
                message,
                nearest(name, missing or sampler.values.keys() - foreign),
                at=(*at, name),
                key=True,
            )


def _cycles(columns: Sequence[Column | None]) -> Iterator[Mistake]:
    """Yield cycles of columns; other mistakes of the graph are reported elsewhere."""
    places = [place for place, column in enumerate(columns) if column is not None]
    producers: list[Producer] = []
    taken: set[str] = set()
    for place, column in enumerate(columns):
        if column is None:
            continue
        producer = producer_of(column)
        outputs = tuple(name for name in producer.outputs if name not in taken)
        taken.update(outputs)
        producers.append(
            attrs.evolve(
                producer, outputs=outputs or (f" {place}",), scope="full", extras=producer.extras
            )
        )
    made = {name for one in producers for name in (*one.outputs, *one.extras)}
    seen: set[str] = set()
    for place, one in enumerate(producers):
        extras = tuple(name for name in dict.fromkeys(one.extras) if name not in seen)
        seen.update(extras)
        requires = tuple(name for name in one.requires if name in made)
        producers[place] = attrs.evolve(one, extras=extras, requires=requires)
    for mistake in ColumnGraph.mistakes(producers):
        at = (places[mistake.producer],)
        yield Mistake(mistake.message, mistake.hint, at=at)
