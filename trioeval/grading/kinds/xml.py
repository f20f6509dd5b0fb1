"""Types that check whether an output is XML, or contains XML."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Literal
from xml.parsers import expat

import attrs

from trioeval.errors import GradingError
from trioeval.grading.kind import LONGEST_SEARCHED, Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject
from trioeval.text import output_text, quote

# Tags and elements of a text that need not be well-formed XML.
#
# Rejected: a parser, because replies have pieces of XML in prose, with bare ampersands and unquoted
# attributes, and only balanced regions of tags and the elements in them matter here.
#
# The scan is linear for any text. Only quotes could prevent that, because the end of a tag is searched for
# across them: from many `<` each as far as the end of the text. But a quote mark permutes the three states
# outside, in '…' and in "…", so two searches in progress at the same position are never in the same state,
# and one that is outside ends at the next `<`: each position is passed at most three times.


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
"""Most elements that are kept."""


@attrs.frozen
class Tag:
    """A tag of a text."""

    kind: Literal["opening", "closing", "empty"]
    name: str
    start: int
    end: int
    """The position after it."""
    rest: str
    """The text after the name."""


def tags_in(text: str, start: int, end: int) -> Iterator[Tag]:
    """Yield the tags in a part of a text, without those in comments, CDATA sections or declarations.

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


@attrs.define(eq=False, repr=False)
class Element:
    """An element, with the requested part of its content."""

    children: "dict[str, list[Element]]" = attrs.field(factory=dict)
    attributes: frozenset[str] = frozenset()
    has_text: bool = False
    has_elements: bool = False
    """True if there are elements in it, children or deeper."""


def element_tree(text: str, start: int, end: int, names: Collection[str]) -> Element:
    """Return the elements in a part of a text, under an element without a name.

    A closing tag ends the innermost element, whatever its name.

    Args:
        text: The text with the tags.
        start: Where the part starts.
        end: The position after it.
        names: Elements with other names, and their content, are left out.

    Raises:
        GradingError: There are too many elements.
    """
    root = Element()
    open_elements = [root]
    """Open elements that are kept, from the outermost."""
    lost = 0
    """Open elements within the innermost of them that are not kept."""
    count = 0
    behind = start
    for tag in tags_in(text, start, end):
        if not lost and text[behind : tag.start].strip():
            open_elements[-1].has_text = True
        behind = tag.end
        if tag.kind == "closing":
            if lost:
                lost -= 1
            elif len(open_elements) > 1:
                open_elements.pop()
            continue
        if not lost:
            open_elements[-1].has_elements = True
        if lost or tag.name not in names:
            lost += tag.kind == "opening"
            continue
        count += 1
        if count > _MOST_KEPT:
            msg = "the output has too many elements"
            raise GradingError(msg)
        element = Element(attributes=_attributes(tag))
        open_elements[-1].children.setdefault(tag.name, []).append(element)
        if tag.kind == "opening":
            open_elements.append(element)
    return root


def _attributes(tag: Tag) -> frozenset[str]:
    return frozenset(match[1] for match in _ATTRIBUTE.finditer(tag.rest))


def has_path(root: Element, path: Sequence[str]) -> bool:
    """Return whether names lead from the root to an element, an attribute or a text.

    If a name occurs several times, its index must follow, from 0. `@_name` is an attribute, `#text` the text
    beside elements or attributes.
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
class XmlRegion:
    """A part of a text with balanced tags, or several adjacent ones."""

    start: int
    end: int


def balanced_regions(text: str) -> Iterator[XmlRegion]:
    """Yield the largest parts with balanced tags; neighbours are combined, with the text in between.

    Example:
        >>> text = "so <a>1</a> and <b/> but <c>"
        >>> [text[region.start : region.end] for region in balanced_regions(text)]
        ['<a>1</a> and <b/>']
    """
    balanced: list[tuple[int, int, int]] = []
    """Outermost balanced elements, with the position of the unclosed tag around them, or -1."""
    waiting: list[tuple[Tag, int]] = []
    """Open tags, each with the number of elements balanced before it."""
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
    groups: dict[int, XmlRegion] = {}
    for around, start, end in balanced:
        first = groups.get(around)
        groups[around] = XmlRegion(start if first is None else first.start, end)
    behind = 0
    for region in sorted(groups.values(), key=lambda region: (region.start, -region.end)):
        if region.start >= behind:
            behind = region.end
            yield region


_PIECE = 65_536  # bytes
_ELEMENTS = "requiredElements"


def _is_xml(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    fault = xml_fault(subject.text)
    if fault is not None:
        return Finding(holds=False, reason=f"the output is not XML: {fault}")
    missing = _missing(subject.text, XmlRegion(0, len(subject.text)), _required(value))
    if missing:
        return Finding(holds=False, reason=f"the output is XML without {quote(missing)}")
    return Finding(holds=True, reason="the output is XML" + _with(value))


def _contains_xml(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    required = _required(value)
    reason = "the output does not contain balanced tags"
    for region in balanced_regions(subject.text):
        missing = _missing(subject.text, region, required)
        if not missing:
            return Finding(holds=True, reason="the output contains XML" + _with(value))
        reason = f"no XML in the output has {quote(missing)}"
    return Finding(holds=False, reason=reason)


def _with(value: Any) -> str:
    required = _required(value)
    return f" with {quote(required)}" if required else ""


def _required(value: Any) -> list[str]:
    match value:
        case str():
            return [path.strip() for path in value.split(",")]
        case list() | tuple():
            return [output_text(path) for path in value]
        case Mapping():
            return [output_text(path) for path in value.get(_ELEMENTS, ())]
        case _:
            return []


def _missing(text: str, region: XmlRegion, required: Sequence[str]) -> list[str]:
    if not required:
        return []
    paths = [path.split(".") for path in required]
    names = {name for path in paths for name in path}
    root = element_tree(text, region.start, region.end, names)
    return [".".join(path) for path in paths if not has_path(root, path)]


class _NotAllowed(Exception):  # noqa: N818 - it never leaves this module
    """A part of XML that is rejected."""


def xml_fault(text: str) -> str | None:
    """Return the reason why a text is not one XML document; None if it is.

    Namespaces are checked. Nothing outside of the text is read, and document type declarations inside of it,
    which could define exponentially growing entities, are rejected.

    Example:
        >>> xml_fault("<a><b/></a>") is None, xml_fault("<a>")
        (True, 'line 1, column 4: no element found')
    """
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    parser.StartDoctypeDeclHandler = _doctype
    try:
        # Only the declaration distinguishes 1.1, which differs only in rare characters.
        document = memoryview(_as_first_version(text).encode())
        for start in range(0, len(document), _PIECE):  # so that other threads can run
            parser.Parse(document[start : start + _PIECE])
        parser.Parse(b"", True)  # noqa: FBT003 - takes no keywords
    except expat.ExpatError as error:
        return f"line {error.lineno}, column {error.offset + 1}: {expat.ErrorString(error.code)}"
    except UnicodeEncodeError:
        return "it has half a character"
    except _NotAllowed as refused:
        return str(refused)
    return None


def _as_first_version(text: str) -> str:
    beginning = text[:40]
    for mark in "\"'":
        beginning = beginning.replace(
            f"<?xml version={mark}1.1{mark}", f"<?xml version={mark}1.0{mark}"
        )
    return beginning + text[40:]


def _doctype(_name: str, system: str | None, _public: str | None, internal: int) -> None:
    if internal:
        msg = "it contains a document type declaration"
        raise _NotAllowed(msg)
    if system is not None and "#" in system:
        msg = "its document type has a subset or an external id"
        raise _NotAllowed(msg)


def _accepts(value: Any) -> bool:
    match value:
        case str():
            return _are_paths(value.split(","))
        case list() | tuple():
            return _are_paths(value)
        case Mapping():
            elements = value.get(_ELEMENTS, [])
            return (
                value.keys() <= {_ELEMENTS}
                and isinstance(elements, list | tuple)
                and _are_paths(elements)
            )
        case _:
            return value is None


def _are_paths(paths: Sequence[Any]) -> bool:
    return all(
        (isinstance(path, str) and path.strip() != "")
        or (isinstance(path, int | float) and not isinstance(path, bool))
        for path in paths
    )


_RIGHT = f'element paths such as "a.b": text with commas, a list, or {{"{_ELEMENTS}": […]}}'

KINDS: Kinds = {
    "contains-xml": Kind(_RIGHT, _accepts, _contains_xml, bare=True, longest=LONGEST_SEARCHED),
    "is-xml": Kind(_RIGHT, _accepts, _is_xml, bare=True, longest=LONGEST_SEARCHED),
}
