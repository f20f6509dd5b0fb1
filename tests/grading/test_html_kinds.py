import pytest
from pace import takes_less

from trioeval.errors import GradingError
from trioeval.grading import Assertion, grade
from trioeval.grading.kinds import html as html_tree
from trioeval.grading.kinds.html import html_fault, html_points


@pytest.mark.parametrize(
    "text",
    [
        "<p>x", "<body>x",
        "<b>x<p>y</b>z</p>", "<table><tr><td>x</table>", "<my-el/>", "<br>", "<p it's>x</p>",
        "<ul><li>a<li>b</ul>", "<svg><g/></svg>",
        "<!-- c --><h1>x</h1><h2>y</h2>", "<script>a<b</script>",
        "<p>x</p>&nbsp;", "<div/>text", "<table><p>x</p></table>", "<b><table>x</table></b>", "<x><p>a</x>",
    ],
)  # fmt: skip
def test_texts_that_are_html(text: str) -> None:
    """Text may be in elements, or in an explicit body."""
    assert html_fault(text) is None


@pytest.mark.parametrize(
    "text",
    ["", "x", "x <p>y</p>", "<p>x</p> y",
     "<foo>x</foo>", "<?xml?><p/>", "<table>x</table>", "<tr></tr>",
     "<p>x<div>y</div>z", "<!-- <body> -->x<p>", "<p", "<html>x", "<script>a</script>b",
     "x" * 10_485_761],
)  # fmt: skip
def test_texts_that_are_not_html(text: str) -> None:
    """These are loose text, unknown elements, and other formats."""
    assert html_fault(text)


@pytest.mark.parametrize(
    ("text", "points"),
    [("<p>x</p>", 4), ("a &amp; <x/>", 2), ("<!doctype html>", 2), ("<!-- a -->", 1), (" k='v'", 1),
     ("<a", 2),
     ("< b>", 0), ("<!-- -- -->", 0)],
)  # fmt: skip
def test_points(text: str, points: int) -> None:
    """Each kind of evidence counts once."""
    assert html_points(text) == points
    assert grade(text, [Assertion(type="contains-html")]).passed is (points > 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "<a " * 200_000,
        '<a ="' * 100_001,
        "<b>" * 5_000 + "</b>" * 5_000,
        "<!--" * 200_000,
        "<a/" * 200_000,
    ],
)
def test_long_texts_are_judged_in_linear_time(text: str) -> None:
    """Unclosed tags and deep nesting are skipped."""
    html_points(text)
    html_fault(text)


@pytest.mark.slow
def test_the_number_of_tags_is_bounded() -> None:
    """Beyond it there is an error, not a verdict."""
    with pytest.raises(GradingError, match="too many tags"):
        html_fault("<p>" * 200_001)


def test_the_work_for_open_elements_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tag searches all of them; this test uses a lower bound."""
    monkeypatch.setattr(html_tree, "_MOST_STEPS", 500_000)
    html_fault("<div></div>" * 5_000)
    with pytest.raises(GradingError, match="too many tags"):
        html_fault("<div>" * 5_000)


def test_formatting_elements_are_only_counted() -> None:
    """Thousands of them, each closed, take no longer than other tags."""
    text = "<td><b>" * 15_000 + "</b>" * 15_000
    assert takes_less(3, lambda: html_fault(text))  # some 0.25 s on an idle machine
