"""Variables in the texts of a request: what is a template is filled in, and what is filled in is no template.

Three laws. The prompt is text that is ready: what looks like a template inside it stays as it is. A text that
is exactly one variable (`"{{ messages }}"`) becomes that variable's value, with its type; a text variable
stays text, whatever is in it. All other texts are rendered as text.
"""

import re
from collections.abc import Mapping
from typing import Any

import attrs

from trioeval.errors import ProviderError, TemplateError
from trioeval.providers.settings import Templates
from trioeval.verbatim import verbatim

PROMPT = "prompt"

_WHOLE = re.compile(r"\{\{-?\s*([A-Za-z_]\w*)\s*-?\}\}")


@attrs.frozen
class Filling:
    """The variables of one call."""

    prompt: Any
    """The prompt, or what the suite's own code made of it."""
    _templates: Templates = attrs.field(repr=False)
    _given: Mapping[str, Any] = attrs.field(repr=False)
    """What templates are rendered with."""

    @classmethod
    def of(cls, templates: Templates, variables: Mapping[str, Any], prompt: Any) -> "Filling":
        """The variables of a test, and a prompt; a variable of that name is not seen."""
        return cls(prompt, templates, {**variables, PROMPT: verbatim(prompt)})

    def text(self, written: str, what: str) -> str:
        """The text with its variables filled in.

        Raises:
            ProviderError: `bad_request`, which names `what`: it cannot be rendered.
        """
        if "{" not in written:
            return written
        try:
            return self._templates.render(written, self._given)
        except TemplateError as error:
            raise ProviderError("bad_request", f"{what}: {error}") from error

    def data(self, written: Any, what: str) -> Any:
        """Data of JSON with its texts filled in; names of members stay as they are.

        Raises:
            ProviderError: See `text`.
        """
        match written:
            case str():
                return self._value(written, what)
            case Mapping():
                return {name: self.data(part, what) for name, part in written.items()}
            case list() | tuple():
                return [self.data(part, what) for part in written]
            case _:
                return written

    def _value(self, written: str, what: str) -> Any:
        whole = _WHOLE.fullmatch(written.strip())
        if whole is not None:
            if whole[1] == PROMPT:
                return self.prompt
            value = self._given.get(whole[1])
            if whole[1] in self._given and not isinstance(value, str):
                return value
        return self.text(written, what)
