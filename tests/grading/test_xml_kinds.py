import pytest

from trioeval.errors import GradingError
from trioeval.grading import Assertion, grade
from trioeval.grading.kinds.xml import balanced_regions, element_tree, xml_fault


def passes(output: str, kind: str, value: object = None) -> bool:
    return grade(output, [Assertion(type=kind, value=value)]).passed


def test_required_elements() -> None:
    """They are paths from the root; a repeated element needs its number."""
    text = "<r><i k='1'>x</i><i/><t>a<s/></t></r>"
    for path in ("r", "r.i.1", "r.i.0.@_k", "r.i.0.#text", "r.t.s", "r.t.#text"):
        assert passes(text, "is-xml", path), path
        assert passes(f"so {text}.", "contains-xml", [path]), path
    for path in ("i", "r.i.2", "r.i.x", "r.t.s.x", "r.i.1.#text", "r.i.01"):
        assert passes(text, "not-is-xml", {"requiredElements": [path]}), path
        assert not passes(text, "contains-xml", path), path


@pytest.mark.parametrize(
    "text",
    [
        "<a>",
        "<p:a/>",
        "<a/>x",
        "<!DOCTYPE a []><a/>",
        "<!DOCTYPE a SYSTEM 'x#y'><a/>",
        "\ud800<a/>",
        "<a>&b;</a>",
    ],
)
def test_texts_that_are_not_xml(text: str) -> None:
    """Namespaces are checked, and entities cannot be declared."""
    assert xml_fault(text)


def test_texts_that_are_xml() -> None:
    """Version 1.1, and document types in other positions, are accepted."""
    for text in ("<?xml version='1.1'?><a/>", "<!DOCTYPE a SYSTEM 'x'><a>&b;</a>", "<a>\u00e9</a>"):
        assert xml_fault(text) is None


def test_sections_and_declarations_contain_no_tags() -> None:
    """Tags in comments, CDATA, instructions or declarations, closed or not, do not count."""
    for text in (
        "<!-- <a/> -->",
        "<![CDATA[<a/>]]>",
        "<? <a/> ?>",
        "<!X '<a/>'>",
        "<!-- <a/>",
        "<!X '<a/>",
    ):
        assert not list(balanced_regions(text)), text


def test_elements_that_are_not_required_are_ignored() -> None:
    """Their content is ignored too."""
    root = element_tree("<a><b><a/></b></a></c>", 0, 22, {"a"})
    assert list(root.children) == ["a"]
    assert not root.children["a"][0].children


@pytest.mark.slow
def test_long_texts_are_judged_or_rejected() -> None:
    """The result is a verdict, or an error with its reason."""
    assert not passes("<a" * 100_000, "contains-xml")
    assert not passes("<a '\"" * 100_000, "contains-xml")
    with pytest.raises(GradingError, match="too many tags"):
        passes("<a>" * 200_001, "contains-xml")
    with pytest.raises(GradingError, match="too many elements"):
        passes("<a/>" * 100_001, "contains-xml", "a")
