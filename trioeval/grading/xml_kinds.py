"""Types that say whether an output is XML, or has XML in it."""

from collections.abc import Mapping, Sequence
from typing import Any
from xml.parsers import expat

from trioeval.grading.kind import LONGEST_SEARCHED, Finding, Kind, Kinds
from trioeval.grading.model import Assertion
from trioeval.grading.subject import Subject
from trioeval.grading.text import output_text, quote
from trioeval.grading.xml_scan import Region, balanced_regions, element_tree, has_path

_PIECE = 65_536  # bytes
_ELEMENTS = "requiredElements"


def _is_xml(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    fault = xml_fault(subject.text)
    if fault is not None:
        return Finding(holds=False, reason=f"the output is not XML: {fault}")
    missing = _missing(subject.text, Region(0, len(subject.text)), _required(value))
    if missing:
        return Finding(holds=False, reason=f"the output is XML without {quote(missing)}")
    return Finding(holds=True, reason="the output is XML" + _with(value))


def _contains_xml(subject: Subject, value: Any, _assertion: Assertion) -> Finding:
    required = _required(value)
    reason = "the output has no balanced tags"
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


def _missing(text: str, region: Region, required: Sequence[str]) -> list[str]:
    if not required:
        return []
    paths = [path.split(".") for path in required]
    names = {name for path in paths for name in path}
    root = element_tree(text, region.start, region.end, names)
    return [".".join(path) for path in paths if not has_path(root, path)]


class _NotAllowed(Exception):  # noqa: N818 - it never leaves this module
    """A part of XML that is refused."""


def xml_fault(text: str) -> str | None:
    """What keeps a text from being one XML document; None if nothing does.

    Namespaces are checked. Nothing outside of the text is read, and declarations of a document type
    inside of it, which could define entities that blow up, are refused.

    Example:
        >>> xml_fault("<a><b/></a>") is None, xml_fault("<a>")
        (True, 'line 1, column 4: no element found')
    """
    parser = expat.ParserCreate("utf-8", namespace_separator=" ")
    parser.StartDoctypeDeclHandler = _doctype
    try:
        # Only the declaration can tell 1.1, which differs in rare characters alone.
        document = memoryview(_as_first_version(text).encode())
        for start in range(0, len(document), _PIECE):  # so that other threads go on
            parser.Parse(document[start : start + _PIECE])
        parser.Parse(b"", True)  # noqa: FBT003 - takes no keywords
    except expat.ExpatError as error:
        return f"line {error.lineno}, column {error.offset + 1}: {expat.ErrorString(error.code)}"
    except UnicodeEncodeError:
        return "it has half of a character"
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
        msg = "it declares a document type by itself"
        raise _NotAllowed(msg)
    if system is not None and "#" in system:
        msg = "its document type is at a part of a document"
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
