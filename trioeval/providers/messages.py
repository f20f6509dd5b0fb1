"""Conversion of a prompt's text to chat messages.

* A text that starts with `- role:` is a YAML list of messages; its scalars stay text, so that
  `content: 12:30` and `content: no` keep their spelling.
* A text that is a JSON list of objects with roles is a list of messages.
* Any other text is the content of one user message. A text that starts like JSON but is invalid is
  refused, because it was meant to be messages.
"""

import json
import re
from typing import Any, NoReturn

import attrs
import yaml

from trioeval.errors import ProviderError
from trioeval.providers.config import is_json

OPENS_LIKE_JSON = re.compile(r'\s*(\[\s*[{\]]|\{\s*["}])')
"""`[{`, `[]`, `{"` or `{}`; a bare `[` or `{` also starts ordinary prompts, such as `[INST]`."""


NULL = ("tag:yaml.org,2002:null", re.compile(r"(~|null|Null|NULL|)\Z"))


class _TextLoader(yaml.CSafeLoader):
    """Reads every plain scalar as text, except null."""


_TextLoader.yaml_implicit_resolvers = {first: [NULL] for first in ("~", "n", "N", "")}


def to_messages(prompt: str) -> list[Any]:
    """Return the messages of a rendered prompt; never empty.

    Raises:
        ProviderError: `bad_request`, if the text was meant to be messages and is invalid.

    Example:
        >>> to_messages("Hello")
        [{'role': 'user', 'content': 'Hello'}]
    """
    if prompt.lstrip().startswith("- role:"):
        return _checked(_read_yaml(prompt))
    if OPENS_LIKE_JSON.match(prompt):
        data = _read_json(prompt)
        if isinstance(data, list) and any(_has_role(item) for item in data):
            return _checked(data)
    return [{"role": "user", "content": prompt}]


def _read_yaml(text: str) -> list[Any]:
    """Return the list: a text that begins with a dash cannot be anything else."""
    try:
        data: list[Any] = yaml.load(text, Loader=_TextLoader)  # noqa: S506 - derived from the safe loader
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" in line {error.problem_mark.line + 1}"
        _refuse(f"its YAML is not valid{line}: {error.problem}")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        first, *_ = str(error).splitlines() or [type(error).__name__]
        _refuse(f"its YAML is not valid: {first}")
    if not is_json(data):
        _refuse("its YAML has values that JSON does not support")
    return data


def _read_json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        _refuse(f"it starts like JSON but is not valid: {error}")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a valid JSON value")


def _checked(data: list[Any]) -> list[Any]:
    for index, item in enumerate(data):
        if not _has_role(item):
            _refuse(f"messages[{index}] is not an object with a role")
    return data


def _has_role(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("role"), str)


def _refuse(reason: str) -> NoReturn:
    raise ProviderError("bad_request", f"invalid prompt: {reason}")


# `data:` URIs, the form of images and documents in prompts.


_DATA_URI = re.compile(r"data:([\w.+-]+/[\w.+-]+)(?:;[\w-]+=[^;,\s]*)*;base64,([A-Za-z0-9+/=_-]+)")


@attrs.frozen
class DataUri:
    """The parts of a base64 `data:` URI."""

    media_type: str
    """For example `image/png`."""
    data: str = attrs.field(repr=False)
    """The data in base64."""


def read_data_uri(value: Any) -> DataUri | None:
    """Return the parts of a text that is a base64 `data:` URI; None for any other value.

    Example:
        >>> read_data_uri("data:image/png;base64,iVBORw==").media_type
        'image/png'
    """
    found = _DATA_URI.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if found is None else DataUri(found[1], found[2])


def read_image_url(part: Any) -> str | None:
    """Return the URL of a chat message part that is an image; None for any other part."""
    if not isinstance(part, dict) or part.get("type") != "image_url":
        return None
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return url if isinstance(url, str) else None
