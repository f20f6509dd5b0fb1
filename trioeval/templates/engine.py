"""The templates of one run: each text is compiled once and rendered for many rows."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any

import attrs

from trioeval.errors import TemplateError
from trioeval.templates.faults import RefusedError, not_a_template
from trioeval.templates.limits import LEVELS, TimeLeft, TooMuchError
from trioeval.templates.marks import has_marks, is_template, unclosed_tag
from trioeval.templates.plain import filled, plain_pieces
from trioeval.templates.values import dump
from trioeval.templates.variables import names_data, placed, resolved, uses_undefined
from trioeval.text import FromModel, Verbatim, from_model, parse_json, quote, verbatim

if TYPE_CHECKING:
    from trioeval.templates.nunjucks import Filter, Nunjucks

_KEPT = 1024  # texts
_INDENT = "  "  # in a prompt that is JSON
_NO_JSON: Any = object()
_DEEP = TemplateError(f"the JSON of the prompt is nested more than {LEVELS} levels deep")


@attrs.define(eq=False, repr=False)
class Templates:
    """Renders prompts and other texts of a suite. For one run.

    Example:
        >>> Templates().render(
        ...     "{{ items }} of {{ total }}", {"items": [1, 2.0, True], "total": None}
        ... )
        '1,2,true of '
    """

    env: Mapping[str, str] = attrs.field(factory=dict)
    """The variable `env` of templates; a name that it does not have prints nothing."""
    filters: "Mapping[str, Filter]" = attrs.field(factory=dict)
    """Filters by name, functions or JavaScript; they extend or replace those of nunjucks."""
    strict: bool = False
    """True if an undefined variable is an error that names it; otherwise it prints nothing."""
    enabled: bool = True
    """False if nothing is rendered at all."""
    json_aware: bool = True
    """True if a prompt that is JSON is rendered inside its texts, and written with two spaces of indent."""
    nested: bool = True
    """True if variables may be templates themselves; otherwise they are plain data."""
    _budget: TimeLeft = attrs.field(init=False, factory=TimeLeft)
    _json: Callable[[str], Any] = attrs.field(init=False)
    _is_template: Callable[[str], bool] = attrs.field(init=False)
    _for_data: "Templates | None" = attrs.field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        self._json = functools.lru_cache(_KEPT)(_parsed)
        self._is_template = functools.lru_cache(_KEPT)(is_template)

    @functools.cached_property
    def _engine(self) -> "Nunjucks":
        """The engine; opened for the first text that needs it, since a suite may have none."""
        from trioeval.templates.nunjucks import Nunjucks

        return Nunjucks(self.env, self.filters, 1 if self.strict else 0)

    def for_data(self) -> "Templates":
        """Return the same templates for variables that are plain data. Always the same object.

        Example:
            >>> Templates().for_data().render("{{ x }}", {"x": "{{ 1 + 1 }}"})
            '{{ 1 + 1 }}'
        """
        if self._for_data is None:
            self._for_data = attrs.evolve(self, nested=False) if self.nested else self
        return self._for_data

    def render(self, text: str, variables: Mapping[str, Any]) -> str:
        r"""Render a text with variables that may be templates themselves.

        Variables are treated as for a prompt; one that cannot be rendered is used as it is written. Returned
        unchanged are a text without marks, a text with a mark that is not closed on its line, unless it has a
        `raw` block, and row data. A result that contains output of a model is marked as such.

        Raises:
            TemplateError: The text is not a template, takes too long, or fails; or, if `strict`, uses an
                undefined variable.

        Example:
            >>> output = from_model("{{ 1 + 1 }}")
            >>> Templates().render("{{ x }}", {"x": "<{{ output }}>", "output": output})
            '<{{ 1 + 1 }}>'
        """
        if not (self.enabled and self._is_to_fill(text)):
            return text
        self._budget.start()
        return self._render(text, self._kept_or_rendered(self._variables(variables)))

    def fill(self, text: str, variables: Mapping[str, Any]) -> str:
        """Render a text with variables used as they are: for assertions, with `rendered_variables`.

        Raises:
            TemplateError: As for `render`.
        """
        if not (self.enabled and self._is_to_fill(text)):
            return text
        self._budget.start()
        return self._render(text, variables)

    def render_prompt(self, raw: str, variables: Mapping[str, Any]) -> str:
        r"""Render a prompt as it is sent: variables first, then the texts inside of its JSON, or the text.

        A variable that is a template and names no undefined variable is rendered before the prompt is. In a
        prompt that is JSON, one that cannot be rendered is used as it is written.

        Raises:
            TemplateError: As for `render`; also for a variable that cannot be rendered.

        Example:
            >>> Templates().render_prompt('{"to": "{{ name }}"}', {"name": 'a "b"'})
            '{\n  "to": "a \\"b\\""\n}'
        """
        return self.render_row(raw, variables)[0]

    def render_row(self, raw: str, variables: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the results of `render_prompt` and of `rendered_variables`, which share most of their work.

        Raises:
            TemplateError: As for both.
        """
        self._budget.start()
        row = self._variables(variables)
        return (raw if isinstance(raw, Verbatim) else self._prompt(raw, row)), row

    def _prompt(self, raw: str, row: dict[str, Any]) -> str:
        document = self._json(raw) if self.json_aware else _NO_JSON
        if isinstance(document, TemplateError):
            raise RefusedError(str(document))
        if document is not _NO_JSON:
            known = self._kept_or_rendered(row)
            try:
                made = dump(self._inside(document, known), _INDENT)
                return self._marked(made, _texts_in(document), known)
            except RefusedError:
                raise
            except TemplateError:
                pass  # a text inside is not a template: then the whole is one text, as below
        if not self.enabled:
            return raw
        known = row
        if self.nested:
            rendered = {
                name: self._variable(name, value, row)
                for name, value in row.items()
                if _is_to_render(value, row)
            }
            known = {**row, **rendered} if rendered else row
        return self._render(raw, known) if self._is_template(raw) else raw

    def rendered_variables(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return variables for assertions: with references between them replaced, see `variables`.

        One that refers to row data is rendered, and is row data from then on.

        Raises:
            TemplateError: One of them would grow too long.
        """
        self._budget.start()
        return self._variables(variables)

    def syntax_error(self, text: str) -> str | None:
        """Return the mistake of a text as a template, with its line; None if it is valid."""
        if not (self.enabled and has_marks(text)):
            return None
        if unclosed := unclosed_tag(text):
            return unclosed
        if plain_pieces(text) is not None:
            return None
        described = self._engine.describe(text, "")
        return described.fault and not_a_template(described.line, described.fault)

    def prompt_error(self, raw: str) -> str | None:
        """Return the mistake of a prompt as a template; if it is JSON, that of one of its texts."""
        document = self._json(raw) if self.json_aware else _NO_JSON
        if document is _NO_JSON:
            return self.syntax_error(raw)
        if isinstance(document, TemplateError):
            return str(document)
        errors = (self.syntax_error(text) for text in _texts_in(document))
        return next((error for error in errors if error is not None), None)

    def references(self, text: str) -> frozenset[str]:
        """Return the variables that a text may use, possibly only sometimes; none if it is not a template.

        Example:
            >>> sorted(Templates().references("{% for x in a.b %}{{ x ~ c }}{% endfor %}"))
            ['a', 'c']
        """
        if not self._is_template(text):
            return frozenset()
        pieces = plain_pieces(text)
        if pieces is None:
            return self._engine.describe(text, "").names
        return frozenset(name for _, name in pieces if name is not None)

    def _is_to_fill(self, text: str) -> bool:
        return is_template(text) and not isinstance(text, Verbatim)

    def _variables(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        if not self.nested:
            return dict(variables)
        try:
            row = resolved(variables)
            made = {
                name: self._with_data(value, row)
                for name, value in row.items()
                if names_data(value, row)
            }
        except TooMuchError as error:
            raise RefusedError(str(error)) from error
        return {**row, **made} if made else row

    def _with_data(self, text: str, variables: Mapping[str, Any]) -> str:
        """Return the value of a variable that refers to row data; it is never treated as a template."""
        if self.enabled and _is_to_render(text, variables):
            try:
                made: str = verbatim(self._render(text, variables))
            except RefusedError:
                raise
            except TemplateError:
                pass
            else:
                return made
        return placed(text, variables)

    def _marked(self, text: str, templates: Iterable[str], variables: Mapping[str, Any]) -> str:
        """Return the result of templates, marked if it may contain output of a model."""
        models = {name for name, value in variables.items() if isinstance(value, FromModel)}
        if not models:
            return text
        made: str = text
        if any(self._may_use(template, models) for template in templates):
            made = from_model(text)
        return made

    def _may_use(self, template: str, names: AbstractSet[str]) -> bool:
        if not has_marks(template):
            return False
        used = self.references(template)
        return not used.isdisjoint(names) or not self._is_template(template)

    def _variable(self, name: str, text: str, variables: Mapping[str, Any]) -> str:
        try:
            return self._render(text, variables)
        except TemplateError as error:
            raise type(error)(f"the variable {quote(name)}: {error}") from error

    def _kept_or_rendered(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        known = dict(variables)
        if not (self.enabled and self.nested):
            return known
        for name, value in variables.items():
            if _is_to_render(value, variables):
                try:
                    known[name] = self._render(value, variables)
                except RefusedError:
                    raise
                except TemplateError:
                    continue
        return known

    def _inside(self, value: Any, variables: Mapping[str, Any]) -> Any:
        """Return JSON data with its texts rendered; names of members are unchanged."""
        match value:
            case str():
                return (
                    self._render(value, variables) if self.enabled and has_marks(value) else value
                )
            case list():
                return [self._inside(part, variables) for part in value]
            case dict():
                return {name: self._inside(part, variables) for name, part in value.items()}
            case _:
                return value

    def _render(self, text: str, variables: Mapping[str, Any]) -> str:
        pieces = plain_pieces(text)
        if pieces is not None:
            made = filled(pieces, variables, strict=self.strict)
            if made is not None:
                return made
        if fault := self.syntax_error(text):
            raise TemplateError(fault)
        try:
            made = self._engine.render(text, variables, self._budget)
        except TooMuchError as error:
            raise RefusedError(str(error)) from error
        return self._marked(made, (text,), variables)


def _texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for part in value:
                yield from _texts_in(part)
        case dict():
            for part in value.values():
                yield from _texts_in(part)
        case _:
            pass


def _is_to_render(value: Any, variables: Mapping[str, Any]) -> bool:
    return (
        isinstance(value, str)
        and not isinstance(value, Verbatim)
        and is_template(value)
        and not uses_undefined(value, variables)
    )


def _parsed(text: str) -> Any:
    """Return the value of a text that is JSON; an error if it is nested too deeply to be examined."""
    try:
        document = parse_json(text)
    except ValueError as error:
        return _DEEP if isinstance(error.__context__, RecursionError) else _NO_JSON
    return _DEEP if _levels(document) > LEVELS else document


def _levels(value: Any) -> int:
    levels, parts = 0, [value]
    while parts := [part for part in parts if isinstance(part, list | dict)]:
        levels += 1
        parts = [
            one for part in parts for one in (part.values() if isinstance(part, dict) else part)
        ]
    return levels
