"""Undefined values: they print nothing or, in strict mode, are an error that names them."""

import difflib
from collections.abc import Mapping
from typing import Any, NoReturn

import jinja2
from jinja2.exceptions import TemplateRuntimeError, UndefinedError
from jinja2.utils import missing

from trioeval.templates.values import UndefinedValue
from trioeval.text import quote


class UnknownVariableError(UndefinedError):
    """An undefined variable is used; the message is its name."""


class _NamedUndefined(UndefinedValue, jinja2.ChainableUndefined):
    """An undefined value that knows its owner and suggests a similar name."""

    __slots__ = ()

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: str | None = None,
        exc: type[TemplateRuntimeError] = UndefinedError,
    ) -> None:
        if hint is None and obj is missing:
            exc = UnknownVariableError
        super().__init__(hint, obj, name, exc)

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint is not None:
            return self._undefined_hint
        name, owner = self._undefined_name, self._undefined_obj
        if owner is missing:
            return name or ""
        close = (
            difflib.get_close_matches(name, owner, n=1)
            if isinstance(owner, Mapping) and isinstance(name, str)
            else ()
        )
        hint = f'; did you mean "{close[0]}"?' if close else ""
        return f"{quote(name)} is not defined in {quote(owner)}{hint}"


class Lenient(_NamedUndefined):
    """Prints nothing, has undefined members, and is false."""

    __slots__ = ()


class Strict(_NamedUndefined):
    """Is false and unequal to everything, has undefined members, and refuses any other use."""

    __slots__ = ()

    def refuse(self) -> NoReturn:
        """Raise the error that names the undefined value."""
        self._fail_with_undefined_error()

    def __str__(self) -> str:
        return self.refuse()
