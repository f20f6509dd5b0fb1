"""The page of a run: what it says, and that no answer can be more than text in it."""

import re
from html.parser import HTMLParser
from typing import Any

import attrs
import pytest
from finished import SUITE, results_of
from hypothesis import given
from hypothesis import strategies as st

import trioeval
from trioeval.report import Results
from trioeval.report.html_report import html_chunks, inert_html
from trioeval.suite.strip import Strip


class Page(HTMLParser):
    """What a browser finds: tags with their attributes, and the cells of all tables."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.lines: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(attrs)))
        if tag == "tr":
            self.lines.append([])
        if tag in {"td", "th"}:
            self.lines[-1].append("")

    def handle_data(self, data: str) -> None:
        if self.lines and self.lines[-1]:
            self.lines[-1][-1] += data


def page_of(*parts: Results) -> Page:
    return Page("".join(html_chunks(*parts)))


def answers(text: Any) -> trioeval.Provider:
    async def provider(_request: trioeval.Request) -> trioeval.Reply:
        return trioeval.Reply(output=text)

    return provider


ONE = {"providers": ["mine"], "prompts": ["x"]}


def test_a_page_has_a_line_a_column_and_a_line_a_test() -> None:
    """Counts above; below every verdict with what was answered and why."""
    head, mine, back, heading, first, second = page_of(results_of()).lines
    heading = [cell.strip() for cell in heading]
    assert head[:4] == ["provider, prompt", "pass", "fail", "error"]
    assert mine[:6] == ["minesay {{word}}", "0", "1", "1", "0.0 %", "0.375"]
    assert back[:4] == ["backsay {{word}}", "1", "1", "0"]
    assert heading == ["#", "test", "minesay {{word}}", "backsay {{word}}"]
    assert first[:2] == ["0", "word=hi"]
    assert first[2] == 'FAIL score 0.75, 0 mssay hithe output does not equal "no"'
    assert second[1:3] == ["second", "ERROR server: down"]


def test_a_page_sums_up_its_tasks_and_tells_each() -> None:
    """Under its name."""
    parts = [
        attrs.evolve(one, head=attrs.evolve(one.head, task=name))
        for one, name in ((results_of(), "a<b"), (results_of(ONE), "second"))
    ]
    text = "".join(html_chunks(*parts))
    assert "5 rows: <b class=pass>1</b> passed" not in text  # `mine` answers ONE as well
    assert "5 rows: <b class=pass>2</b> passed, <b class=fail>2</b> failed" in text
    assert re.findall("<h2>(.*)</h2>", text) == ["a&lt;b", "second"]


HOSTILE = [
    "</td></table><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"><svg onload='x'>&amp;&#60;b&#62;",
    "<!-- ]]> --><style>*{display:none}</style>",
    "\x00\x1b]0;t\x07\u202eabc\u2066",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_answer_is_markup(text: str) -> None:
    """Nor a variable, a description, a name or a reason: a page of it has the tags of any other."""
    plain, evil = (
        page_of(
            results_of(
                {
                    "description": words,
                    "providers": [{"id": "mine", "label": words}],
                    "prompts": [{"raw": "x", "label": words}],
                    "tests": [
                        {"vars": {"v": words}, "assert": [{"type": "equals", "value": words * 2}]},
                        {"description": words, "vars": {"v": "x"}},
                    ],
                },
                answers(words),
            )
        )
        for words in ("word", text)
    )
    assert evil.tags == plain.tags


def test_a_page_may_run_and_load_nothing() -> None:
    """By its own policy; it has no script, link or picture."""
    text = "".join(html_chunks(results_of()))
    assert "content=\"default-src 'none'; style-src 'unsafe-inline'\"" in text
    assert not {tag for tag, _ in page_of(results_of()).tags} & {"script", "link", "img", "a"}


@given(st.text(st.characters(exclude_categories=()), max_size=50), st.integers(1, 60))
def test_text_in_a_page_is_what_it_was(text: str, most: int) -> None:
    """As far as it is shown, but for what would change how a page reads."""
    found = Page(f"<tr><td>{inert_html(text, most)}</td>").lines[0][0]
    kept = found if len(text) <= most else found.rpartition("… (")[0]
    assert len(kept) == min(len(text), most)
    assert all(a in {b, "\ufffd"} for a, b in zip(kept, text, strict=False))


def test_long_answers_are_cut() -> None:
    """A million characters are told by their number."""
    text = "".join(html_chunks(results_of(ONE, answers("a" * 1_000_000))))
    assert "… (1000000 characters)" in text
    assert len(text) < 8000


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("prompt_text", "say {{word}}"), ("response_output", "say hi"), ("test_vars", "word=hi")],
)
def test_what_is_left_out_is_not_on_the_page(name: str, hidden: str) -> None:
    """As in all other files."""
    suite = SUITE | {"tests": [{"vars": {"word": "hi"}}]}
    assert hidden in "".join(html_chunks(results_of(suite)))
    assert hidden not in "".join(html_chunks(results_of(suite, strip=Strip(**{name: True}))))
