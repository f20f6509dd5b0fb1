"""The config keys of an entry, and the requirements on their values."""

import ast
import operator
import re
from collections.abc import Callable, Container, Mapping
from typing import Any, TypeAlias, TypeVar

from trioeval.errors import Problem, ProviderError
from trioeval.providers.bounds import MAX_RESPONSE
from trioeval.providers.config import (
    PRICE,
    Key,
    is_flag,
    is_integer,
    is_json,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    is_visible,
    to_snake,
)

# The HTTP statuses of a success: `validateStatus`, converted once to the set of accepted statuses.
#
# It is a list with ranges (`200-299, 404`, `2xx`), or a comparison in program code (`status < 300`). A
# comparison is parsed by Python's own parser and evaluated by a walk that supports only comparisons.


STATUSES = range(100, 1000)
"""All statuses that a status line can have."""

SUCCESS = frozenset(range(200, 300))

RIGHT = '"200-299, 404", a status, a list of statuses or a comparison such as "status < 500"'
"""The requirement on `validateStatus`."""

_LONGEST = 1000
"""Maximum length of a comparison; the parser's work grows with it."""

_RANGE = re.compile(r"([1-9]\d\d)(?:\s*-\s*([1-9]\d\d))?|([1-9])xx", re.IGNORECASE)
_FUNCTION = re.compile(r"\s*\(?\s*([A-Za-z_]\w*)?\s*\)?\s*=>")
_SPELLINGS = (("===", "=="), ("!==", "!="), ("&&", " and "), ("||", " or "))

_Settings = TypeVar("_Settings")

Compare: TypeAlias = Callable[[Any, Any], bool]
_COMPARE: Mapping[type[ast.cmpop], Compare] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def read_statuses(value: Any) -> frozenset[int] | None:
    """Return the statuses that a `validateStatus` accepts; None if it is invalid.

    Example:
        >>> sorted(read_statuses("200-202, 404"))
        [200, 201, 202, 404]
        >>> 304 in read_statuses("(status) => status >= 200 && status < 400")
        True
    """
    if is_integer(value) or isinstance(value, str):
        text = str(value).strip()
        return _listed(text) or _compared(text)
    if isinstance(value, list | tuple) and value:
        parts = [read_statuses(part) for part in value]
        return frozenset().union(*(part or () for part in parts)) if all(parts) else None
    return None


def _listed(text: str) -> frozenset[int] | None:
    accepted: set[int] = set()
    for part in text.split(","):
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            return None
        first, last, hundred = found.groups()
        if hundred:
            accepted.update(range(int(hundred) * 100, int(hundred) * 100 + 100))
        else:
            accepted.update(range(int(first), int(last or first) + 1))
    return frozenset(accepted)


def _compared(text: str) -> frozenset[int] | None:
    """Return the statuses for which a comparison holds; None if it is invalid or never holds."""
    name = "status"
    if function := _FUNCTION.match(text):
        name, text = function[1] or name, text[function.end() :]
    for theirs, ours in _SPELLINGS:
        text = text.replace(theirs, ours)
    text = re.sub(r"!(?!=)", " not ", text)
    if len(text) > _LONGEST:
        return None
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        return frozenset(one for one in STATUSES if _holds(tree, name, one)) or None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _holds(node: ast.expr, name: str, status: int) -> bool:
    match node:
        case ast.BoolOp(ast.And(), parts):
            # All parts are evaluated, even those that cannot matter, so that an invalid one is found.
            return all([_holds(part, name, status) for part in parts])  # noqa: C419
        case ast.BoolOp(_, parts):
            return any([_holds(part, name, status) for part in parts])  # noqa: C419
        case ast.UnaryOp(ast.Not(), part):
            return not _holds(part, name, status)
        case ast.Name("true" | "false" as value):
            return value == "true"
        case ast.Compare(left, operators, others):
            values = [_number(part, name, status) for part in (left, *others)]
            return all(
                _comparison(how)(one, other)
                for how, one, other in zip(operators, values, values[1:], strict=False)
            )
        case _:
            msg = "not a comparison"
            raise ValueError(msg)


def _comparison(how: ast.cmpop) -> Compare:
    if type(how) not in _COMPARE:
        msg = "not a comparison of numbers"
        raise ValueError(msg)
    return _COMPARE[type(how)]


def _number(node: ast.expr, name: str, status: int) -> int:
    match node:
        case ast.Name(id=written) if written == name:
            return status
        case ast.Constant(int() as value) if is_integer(value):
            return value
        case _:
            msg = "neither the status nor a whole number"
            raise ValueError(msg)


NOT_YET = frozenset(
    {
        "session",
        "session_parser",
        "session_source",
        "signature_auth",
        "stateful",
        "token_estimation",
    }
)
"""Keys of promptfoo, in snake_case; ignoring them would send a different request than intended."""

DROPPED = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers of one connection, which are created anew; names in lower case."""

MARK = re.compile(r"\{[{%#]")
"""The start of a template tag."""

_METHOD = re.compile(r"[A-Za-z]+")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The characters of a header's name."""


def _is_method(value: Any) -> bool:
    return isinstance(value, str) and _METHOD.fullmatch(value) is not None


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | bool) or is_number(value)


def _is_pairs(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        is_text(name) and _is_scalar(part) for name, part in value.items()
    )


def _is_headers(value: Any) -> bool:
    return _is_pairs(value) and all(
        HEADER_NAME.fullmatch(name) and (MARK.search(str(part)) or is_visible(str(part)))
        for name, part in value.items()
    )


def _is_body(value: Any) -> bool:
    return isinstance(value, str | Mapping | list) and is_json(value)


def _is_tls(value: Any) -> bool:
    return (
        isinstance(value, Mapping)
        and value.keys() <= {*TLS_FILES}
        and all(map(is_text, value.values()))
    )


TLS_FILES: Mapping[str, str] = {
    "ca": "ca",
    "cert": "certificate",
    "key": "key",
    "caPath": "ca",
    "certPath": "certificate",
    "keyPath": "key",
}
"""Keys of `tls`; both spellings name a file."""

KEYS = (
    Key("url", "text", is_text, secret=True),
    Key("method", "a method such as GET or POST", _is_method),
    Key("headers", "an object of header names and printable ASCII texts", _is_headers, secret=True),
    Key("queryParams", "an object of texts, numbers and flags", _is_pairs, secret=True),
    Key("body", "an object, a list or text", _is_body),
    Key("multipart", "an object with parts", is_json_object),
    Key("request", "text", is_text, secret=True),
    Key("useHttps", "true or false", is_flag),
    Key("transformRequest", "text", is_text),
    Key("transformResponse", "text", is_text),
    Key("validateStatus", RIGHT, lambda value: read_statuses(value) is not None),
    Key("timeoutMs", "a number of milliseconds above 0", lambda it: is_number(it) and it > 0),
    Key("followRedirects", '"same-origin" or "any"', lambda it: it in ("same-origin", "any")),
    MAX_RESPONSE,
    PRICE,
    Key("auth", "an object with a type", is_json_object, secret=True),
    Key("tls", f"an object of files: {', '.join(TLS_FILES)}", _is_tls),
    Key("tools", "a list", is_json_list),
    Key("tool_choice", "text or an object", lambda it: is_text(it) or is_json_object(it)),
)

PER_CALL = frozenset(
    {
        *("body", "headers", "method", "multipart", "query_params", "tool_choice", "tools"),
        *("transform_request", "transform_response", "validate_status"),
    }
)
"""Keys, in snake_case, that may differ for one call; the others identify the account, and so the lane."""


def read_for_call(
    config: Mapping[str, Any],
    options: Mapping[str, Any],
    per_call: Container[str],
    read: Callable[[Mapping[str, Any]], _Settings | list[Problem]],
) -> tuple[_Settings, list[str]]:
    """Return the settings for one call, and its keys that cannot differ for one call.

    Args:
        config: The config of the entry.
        options: The values for the call.
        per_call: The keys that may differ for one call, in snake case.
        read: Reads a config.

    Raises:
        ProviderError: `bad_request`: a key is unknown, or its value is wrong.
    """
    names = {to_snake(str(key)): str(key) for key in options}
    kept = {key: value for key, value in config.items() if to_snake(key) not in names}
    found = read({**kept, **options})
    if isinstance(found, list):
        raise ProviderError("bad_request", "; ".join(map(str, found)))
    return found, [key for name, key in names.items() if name not in per_call]
