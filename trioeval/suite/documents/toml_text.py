"""TOML as plain data: its dates and times are text, as they are in YAML."""

import datetime as dt
import re
import tomllib
from typing import Any

from trioeval.suite.documents.plain import is_too_deep
from trioeval.suite.documents.spots import too_deep
from trioeval.suite.mistakes import Mistake, MistakenError, Place

_WHERE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")


def read_toml(text: str) -> dict[str, Any]:
    r"""The values of a TOML text.

    Raises:
        MistakenError: It is not TOML, or nested too deeply.

    Example:
        >>> read_toml("[a]\nday = 2024-01-31\nn = 1_000")
        {'a': {'day': '2024-01-31', 'n': 1000}}
    """
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message = str(error)
        place: Place | None = None
        if found := _WHERE.search(message):
            message = message[: found.start()]
            place = (int(found[1]), int(found[2])) if found[1] else _end(text)
        message = f"not TOML: {message[:1].lower()}{message[1:]}"
        raise MistakenError(Mistake(message, place=place)) from None
    except ValueError:  # Python's own limit; the parser does not say where
        raise MistakenError(Mistake("not TOML: an integer has too many digits")) from None
    except RecursionError:
        raise MistakenError(too_deep(())) from None
    if is_too_deep(data):
        raise MistakenError(too_deep(()))
    plain: dict[str, Any] = _plain(data)
    return plain


def _plain(value: Any) -> Any:
    match value:
        case dict():
            return {key: _plain(member) for key, member in value.items()}
        case list():
            return [_plain(member) for member in value]
        case dt.date() | dt.time():
            return value.isoformat()
        case _:
            return value


def _end(text: str) -> Place:
    lines = text.split("\n")
    return len(lines), len(lines[-1]) + 1
