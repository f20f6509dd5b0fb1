"""XML text: what may stand in it, and documents in it.

XML has no way at all to write most control characters, escaped or not: they are left out.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

HEADER = '<?xml version="1.0" encoding="UTF-8"?>\n'

_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NAME = re.compile(r"(?!(?i:xml))[A-Za-z_][\w.-]*\Z", re.ASCII)


def xml_text(text: object) -> str:
    r"""Text as it may stand between tags.

    Example:
        >>> xml_text("a < b \x1b[1m& c")
        'a &lt; b [1m&amp; c'
    """
    plain = str(text)
    if not plain.isprintable():  # most texts are, which is quickly seen
        plain = _FORBIDDEN.sub("", plain)
    return (
        plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\r", "&#13;")
    )


def xml_attributes(attributes: Mapping[str, object]) -> str:
    r"""Attributes as they may stand in a tag, with a space before each.

    Example:
        >>> xml_attributes({"name": 'say "hi"\n', "tests": 2})
        ' name="say &quot;hi&quot;&#10;" tests="2"'
    """
    found = ((name, xml_text(value).replace('"', "&quot;")) for name, value in attributes.items())
    return "".join(
        f' {name}="{text}"'.replace("\n", "&#10;").replace("\t", "&#9;") for name, text in found
    )


def xml_chunks(name: str, value: Any, margin: str = "") -> Iterator[str]:
    """A value as an element, piece by piece; a list is one element a member, all of the same name.

    Args:
        name: Of the element; one that cannot be a name in XML becomes `entry` with an attribute.
        value: Iterators stand for lists.
        margin: What begins a line at this level.

    Example:
        >>> print(
        ...     "".join(xml_chunks("row", {"ok": True, "tags": ["a", "b"], "my var": None})), end=""
        ... )
        <row>
          <ok>true</ok>
          <tags>a</tags>
          <tags>b</tags>
          <entry name="my var"></entry>
        </row>
    """
    if isinstance(value, list | tuple | Iterator):
        yield from _members(name, value, margin)
        return
    tag = name if _NAME.match(name) else "entry"
    opening = tag if tag is name else tag + xml_attributes({"name": name})
    if not isinstance(value, Mapping):
        yield f"{margin}<{opening}>{xml_text(_scalar(value))}</{tag}>\n"
        return
    yield f"{margin}<{opening}>\n"
    for key, part in value.items():
        yield from xml_chunks(str(key), part, margin + "  ")
    yield f"{margin}</{tag}>\n"


def _members(name: str, values: Iterable[Any], margin: str) -> Iterator[str]:
    for value in values:
        # A list in a list would otherwise lose its bounds.
        inner = {"item": value} if isinstance(value, list | tuple) else value
        yield from xml_chunks(name, inner, margin)


def _scalar(value: Any) -> object:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case _:
            return value
