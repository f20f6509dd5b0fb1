"""Tags and elements of a text that need not be well-formed XML.

Why not a parser: replies hold pieces of XML in prose, with bare ampersands and attributes without quotes,
and what is asked of them is only where a tag region is balanced and which elements stand in it.

The scan is linear for any text. Trouble could only come from quotes, as the end of a tag is looked for
across them: from many `<` each as far as the end of the text. But a quote mark moves the three states
outside, in '…' and in "…" by a permutation, so two searches that are under way at the same place are
never in the same state, and one that is outside ends at the next `<`: no place is passed more than thrice.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import attrs

from trioeval.errors import GradingError

_START = (
    ":A-Z_a-z\xc0-\xd6\xd8-\xf6\xf8-\u02ff\u0370-\u037d\u037f-\u1fff\u200c\u200d\u2070-\u218f"
    "\u2c00-\u2fef\u3001-\ud7ff\uf900-\ufdcf\ufdf0-\ufffd\U00010000-\U000effff"
)
_NAME = rf"[{_START}][{_START}\-.0-9\xb7\u0300-\u036f\u203f\u2040]*+"
_TAG_OR_SECTION = re.compile(
    rf"""<(?:(?P<section>[!?])|(?P<closing>/?)(?P<name>{_NAME})"""
    r"""(?P<rest>[^<>"']*+(?:(?:"[^"]*+"|'[^']*+')[^<>"']*+)*+)>)"""
)
_DECLARATION = re.compile(r"""(?:[^"'\[\]>]|"[^"]*+"|'[^']*+'|\[[^\]]*+\])*+>""")
_ATTRIBUTE = re.compile(r"""([^\s=/"']+)(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"']+))?""")
_SECTIONS = (("<!--", "-->"), ("<![CDATA[", "]]>"), ("<?", "?>"))
_MOST_TAGS = 200_000
_MOST_KEPT = 100_000
"""Elements that somebody asks for."""


@attrs.frozen
class Tag:
    """A tag of a text."""

    kind: Literal["opening", "closing", "empty"]
    name: str
    start: int
    end: int
    """Behind it."""
    rest: str
    """What stands behind the name."""


def tags_in(text: str, start: int, end: int) -> Iterator[Tag]:
    """The tags in a stretch of a text, none from comments, CDATA sections or declarations.

    Raises:
        GradingError: There are too many.
    """
    count = 0
    match = _TAG_OR_SECTION.search(text, start, end)
    while match is not None:
        behind = match.end()
        if match["section"]:
            behind = _behind_section(text, match.start(), end)
        else:
            count += 1
            if count > _MOST_TAGS:
                msg = "the output has too many tags"
                raise GradingError(msg)
            yield _tag(match)
        match = _TAG_OR_SECTION.search(text, behind, end)


def _tag(match: re.Match[str]) -> Tag:
    name, rest = match["name"], match["rest"]
    empty = rest.rstrip().endswith("/")
    kind: Literal["opening", "closing", "empty"] = (
        "closing" if match["closing"] else "empty" if empty else "opening"
    )
    return Tag(kind, name, match.start(), match.end(), rest)


def _behind_section(text: str, start: int, end: int) -> int:
    for opening, closing in _SECTIONS:
        if text.startswith(opening, start):
            found = text.find(closing, start + len(opening), end)
            return end if found < 0 else found + len(closing)
    match = _DECLARATION.match(text, start, end)
    return end if match is None else match.end()


@attrs.define(eq=False)
class Element:
    """An element, with as much of what is in it as somebody asks for."""

    children: "dict[str, list[Element]]" = attrs.field(factory=dict)
    attributes: frozenset[str] = frozenset()
    has_text: bool = False
    has_elements: bool = False
    """Whether there are any in it, children or others."""


def element_tree(text: str, start: int, end: int, names: Collection[str]) -> Element:
    """What stands in a stretch of a text, under an element without a name.

    A closing tag ends the innermost element, whatever its name.

    Args:
        text: Holds the tags.
        start: Where the stretch begins.
        end: Behind it.
        names: Elements of other names, and what is in them, are left out.

    Raises:
        GradingError: There are too many.
    """
    root = Element()
    kept = [root]
    """Open elements that somebody asks for, from the outermost."""
    lost = 0
    """Open elements within the innermost of them that nobody asks for."""
    count = 0
    behind = start
    for tag in tags_in(text, start, end):
        if not lost and text[behind : tag.start].strip():
            kept[-1].has_text = True
        behind = tag.end
        if tag.kind == "closing":
            if lost:
                lost -= 1
            elif len(kept) > 1:
                kept.pop()
            continue
        if not lost:
            kept[-1].has_elements = True
        if lost or tag.name not in names:
            lost += tag.kind == "opening"
            continue
        count += 1
        if count > _MOST_KEPT:
            msg = "the output has too many elements"
            raise GradingError(msg)
        element = Element(attributes=_attributes(tag))
        kept[-1].children.setdefault(tag.name, []).append(element)
        if tag.kind == "opening":
            kept.append(element)
    return root


def _attributes(tag: Tag) -> frozenset[str]:
    return frozenset(match[1] for match in _ATTRIBUTE.finditer(tag.rest))


def has_path(root: Element, path: Sequence[str]) -> bool:
    """Whether names lead from the root to something.

    Where a name stands several times, its number in their order must follow, from 0. `@_name` is an
    attribute, `#text` the text beside elements or attributes.
    """
    current: Element | list[Element] = root
    for step, name in enumerate(path):
        if isinstance(current, list):
            if not (name.isascii() and name.isdigit() and name == str(int(name[:9]))):
                return False
            if int(name) >= len(current):
                return False
            current = current[int(name)]
            continue
        several = current.children.get(name)
        if not several:
            return step == len(path) - 1 and _has_part(current, name)
        current = several if len(several) > 1 else several[0]
    return True


def _has_part(element: Element, name: str) -> bool:
    if name == "#text":
        return element.has_text and (element.has_elements or bool(element.attributes))
    return name.startswith("@_") and name[2:] in element.attributes


@attrs.frozen
class Region:
    """A stretch of a text in which tags are balanced, or one that is made of such."""

    start: int
    end: int


def balanced_regions(text: str) -> Iterator[Region]:
    """The largest stretches whose tags are balanced; neighbours are taken together, with what is between.

    Example:
        >>> text = "so <a>1</a> and <b/> but <c>"
        >>> [text[region.start : region.end] for region in balanced_regions(text)]
        ['<a>1</a> and <b/>']
    """
    balanced: list[tuple[int, int, int]] = []
    """Elements in no other, with the place of the tag around them that nothing closes, or -1."""
    waiting: list[tuple[Tag, int]] = []
    """Open tags, each with how many elements were balanced before it."""
    for tag in tags_in(text, 0, len(text)):
        around = waiting[-1][0].start if waiting else -1
        if tag.kind == "opening":
            waiting.append((tag, len(balanced)))
        elif tag.kind == "empty":
            balanced.append((around, tag.start, tag.end))
        elif waiting and waiting[-1][0].name == tag.name:
            opening, before = waiting.pop()
            del balanced[before:]
            around = waiting[-1][0].start if waiting else -1
            balanced.append((around, opening.start, tag.end))
        else:
            waiting.clear()
    groups: dict[int, Region] = {}
    for around, start, end in balanced:
        first = groups.get(around)
        groups[around] = Region(start if first is None else first.start, end)
    behind = 0
    for region in sorted(groups.values(), key=lambda region: (region.start, -region.end)):
        if region.start >= behind:
            behind = region.end
            yield region
