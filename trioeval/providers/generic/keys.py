"""The keys of an entry, and what their values must be."""

import re
from collections.abc import Mapping
from typing import Any

from trioeval.providers.bounds import MAX_RESPONSE
from trioeval.providers.config import (
    Key,
    is_flag,
    is_json,
    is_json_list,
    is_json_object,
    is_number,
    is_text,
    is_visible,
)
from trioeval.providers.generic.status import RIGHT, read_statuses
from trioeval.providers.prices import is_price

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
"""Keys that promptfoo knows, in snake_case; ignoring them would ask something else than is meant."""

MARK = re.compile(r"\{[{%#]")
"""Where a template begins to be one."""

_METHOD = re.compile(r"[A-Za-z]+")
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""What the name of a header is made of."""


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
    Key("price", "an object with input and output, in US dollars per million tokens", is_price),
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
"""Keys, in snake_case, that may differ for one call; the others say who is asked, and so which lane it is."""
