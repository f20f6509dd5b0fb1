"""A jinja2 environment with the habits of nunjucks: how values print, and what an undefined one does."""

import difflib
import functools
import json
import urllib.parse
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn

import jinja2
from jinja2.exceptions import TemplateRuntimeError, UndefinedError
from jinja2.filters import make_attrgetter
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import missing

from trioeval.grading.text import json_text, number_text, quote

_EXACT_BELOW = 1e21  # JavaScript prints greater numbers with an exponent
_NOT_ENCODED = "-_.!~*'()"
_FOR_UNDEFINED = {"default", "d"}
"""Filters that may be asked about an undefined value."""


class UnknownVariableError(UndefinedError):
    """A variable that there is not is used; the message is its name."""


class _Missing(jinja2.ChainableUndefined):
    """An undefined value: false, unequal, with undefined members, and good for nothing else."""

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

    def refuse(self) -> NoReturn:
        """Raise the error that names what is undefined."""
        self._fail_with_undefined_error()

    def __str__(self) -> str:
        return self.refuse()

    def __len__(self) -> int:
        return self.refuse()

    def __iter__(self) -> NoReturn:
        self.refuse()

    def __contains__(self, _member: object) -> NoReturn:
        self.refuse()


class _Sandbox(ImmutableSandboxedEnvironment):
    """Members of an object come before the methods that Python gives to it."""

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return super().getattr(obj, attribute)


def make_environment() -> jinja2.Environment:
    """An environment of its own: nothing is shared between two of them."""
    environment = _Sandbox(
        undefined=_Missing, keep_trailing_newline=True, autoescape=False, finalize=printed
    )
    environment.filters |= {"dump": _dump, "join": _join, "urlencode": _urlencode}
    for name in environment.filters.keys() - _FOR_UNDEFINED:
        environment.filters[name] = _guarded(environment.filters[name])
    # A prompt is the same in every run, and shows no Python.
    del environment.filters["random"], environment.filters["pprint"], environment.globals["lipsum"]
    environment.policies["json.dumps_kwargs"] = {"default": str}
    return environment


def printed(value: Any) -> Any:
    """What is printed for a value, if not the value itself.

    Raises:
        TemplateRuntimeError: It is a function.

    Example:
        >>> printed(True), printed(None), printed([1.0, "x"]), printed({"a": 1})
        ('true', '', '1,x', '[object Object]')
    """
    match value:
        case str() | jinja2.Undefined():
            return value
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number_text(value)
        case Mapping():
            return "[object Object]"
        case Iterable():
            return ",".join(str(printed(member)) for member in value)
        case _ if callable(value):
            msg = f"a function is printed, {getattr(value, '__name__', 'without a name')}: call it"
            raise TemplateRuntimeError(msg)
        case _:
            return value


def _guarded(filter_: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that refuses what is undefined; many of jinja2's take it for something empty."""

    @functools.wraps(filter_)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        for value in (*args, *kwargs.values()):
            if isinstance(value, _Missing):
                value.refuse()
        return filter_(*args, **kwargs)

    return guarded


def _dump(value: Any, indent: int | None = None) -> str:
    # There and back: what is undefined tells its name, and numbers become those of JavaScript.
    plain = json.loads(json.dumps(value, default=str), parse_float=_number)
    if indent is None:
        return json_text(plain)
    return json.dumps(plain, ensure_ascii=False, indent=indent)


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < _EXACT_BELOW else number


@jinja2.pass_environment
def _join(
    environment: jinja2.Environment,
    value: Iterable[Any],
    separator: str = "",
    attribute: str | int | None = None,
) -> str:
    members = value if attribute is None else map(make_attrgetter(environment, attribute), value)
    return separator.join(str(printed(member)) for member in members)


def _urlencode(value: Any) -> str:
    if isinstance(value, Mapping):
        return "&".join(f"{_urlencode(key)}={_urlencode(member)}" for key, member in value.items())
    return urllib.parse.quote(str(printed(value)), safe=_NOT_ENCODED)
