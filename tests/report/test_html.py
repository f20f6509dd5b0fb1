"""The page of a run: its contents, and foreign text as text only."""

import base64
import hashlib
import re
import tracemalloc
from pathlib import Path
from typing import Any

import attrs
import pytest
from finished import SUITE, headed, records_of, results_of, totals_of
from hostile import HUGE, assert_inert_html, hostile_rows
from hypothesis import given
from hypothesis import strategies as st
from made_runs import made_activity, made_results
from page_data import PageData

import trioeval
from trioeval.providers import ToolCall
from trioeval.report.html_report import compare_chunks, html_chunks, inert_html, plain
from trioeval.report.html_report.page import Packs
from trioeval.report.results import Results
from trioeval.report.strip import KEEP_ALL, Strip


def page_of(*parts: Results) -> PageData:
    return PageData("".join(html_chunks(*parts)))


def answers(text: Any) -> trioeval.Provider:
    async def provider(_request: trioeval.Request) -> trioeval.Reply:
        return trioeval.Reply(output=text)

    return provider


ONE = {"providers": ["mine"], "prompts": ["x"]}


def test_a_page_shows_its_totals_without_scripts() -> None:
    """Each column is a line with the interval of its pass rate."""
    page = page_of(results_of())
    head, mine, back, errors, down = page.lines
    assert head[:5] == ["Provider, prompt", "Rows", "Pass", "Fail", "Error"]
    assert mine[:5] == ["minesay {{word}}", "2", "0", "1", "1"]
    assert mine[5].split() == [
        "0.0",
        "%",
        "of",
        "2",
        "0.0",
        "to",
        "65.8",
    ]  # Wilson's interval of 0 of 2
    assert mine[6] == "0.750"  # an error has no score
    assert back[:5] == ["backsay {{word}}", "2", "1", "1", "0"]
    assert "4 rows: 1 passed, 2 failed, 1 error – 25.0 % of 4 rows passed" in page.text
    assert [cell.strip() for cell in errors] == ["Count", "Rows", "Provider", "Error"]
    assert down[:3] == ["1 row", "2", "mine"]
    assert down[3].startswith("server: down\n")


def test_the_title_of_a_page_is_the_description_file_or_id() -> None:
    """The title is the description, or else the file of the suite, or else the run id."""
    run = results_of()
    named = attrs.evolve(run, head=attrs.evolve(run.head, config={"description": "Small talk"}))
    nameless = attrs.evolve(run, head=attrs.evolve(run.head, config={}))
    filed = attrs.evolve(nameless, info=attrs.evolve(run.info, suite="/x/y/words.yaml"))
    for results, title in (
        (named, "Small talk"),
        (filed, "words.yaml"),
        (nameless, run.head.eval_id),
    ):
        shown = attrs.evolve(
            results, head=attrs.evolve(results.head, utc_created="2026-11-22T20:50:07.1+01:00")
        )
        text = page_of(shown).text
        assert text.startswith(f"{title} {title} {run.head.eval_id} · 2026-11-22 19:50 UTC · ")


def test_a_page_has_a_line_for_each_test_and_a_cell_for_each_column() -> None:
    """A cell has the verdict, measures, the output, and the reason of a failure."""
    page = page_of(results_of())
    (_, first_name, _), (_, second_name, _) = page.rows("index")
    assert (first_name, second_name) == ("word=hi", "second")
    (first, _), (second, last) = page.cells()
    assert first == {
        "status": 1,
        "score": 0.75,
        "ms": 0,
        "tokens": 5,
        "cost": 0.5,
        "text": "say hi",
        "why": 'the output does not equal "no"',
        "metrics": {"m": 0.75},
        "row": 0,
    }
    assert second is not None
    assert (second["status"], second["text"], second["why"]) == (2, "server: down", "")
    assert last is not None
    assert (last["status"], last["row"]) == (0, 3)


def test_an_opened_row_shows_all_details() -> None:
    """Details are output, assertions with expected values, variables, prompt, and the provider's response."""
    page = page_of(results_of())
    first, _, second, _ = page.details()
    assert first["output"] == "say hi"
    assert "5 tokens" in first["facts"]
    contains, equals = page.block(0, "assertions")
    assert contains[:3] == [True, "1", "contains hi"]
    assert contains[4:] == ["weight 3, metric m", None]
    assert equals[:4] == [False, "0", "equals no", 'the output does not equal "no"']
    assert equals[5] == [False, "no"]
    assert page.block(0, "variables") == [["word", "hi"]]
    assert page.block(0, "prompt") == "say hi"
    assert second["output"] is None
    assert page.block(2, "error") == "server: down"
    assert page.block(2, "response of the provider") == "it is\ufffd <down>"


def test_an_opened_row_lists_tool_calls() -> None:
    """They are listed in one form, whatever the output has."""

    async def calling(_request: trioeval.Request) -> trioeval.Reply:
        calls = (ToolCall("add", {"a": 2}), ToolCall("f", "{"))
        return trioeval.Reply(text="Let me see.", tool_calls=calls)

    page = page_of(results_of(ONE, calling))
    assert page.block(0, "tool calls") == 'add {"a":2}\nf {'


def test_values_that_are_not_text_are_compared_as_json() -> None:
    """Only assertions with an expected output are compared."""
    suite = {**ONE, "tests": [{"assert": [{"type": "equals", "value": {"a": 1}}]}]}
    page = page_of(results_of(suite, answers({"a": 2})))
    ((_, _, _, _, _, compared),) = page.block(0, "assertions")
    assert compared == [True, '{\n  "a": 1\n}']
    suite = {**ONE, "tests": [{"assert": [{"type": "contains", "value": "b"}]}]}
    ((_, _, _, _, _, compared),) = page_of(results_of(suite, answers("a"))).block(0, "assertions")
    assert compared is None


def test_waits_of_a_row_are_sorted_longest_first() -> None:
    """Waits are described in words."""
    page = page_of(made_results(1))
    blocks = [
        ["1.500 s", "for the lane's rate of tokens"],
        ["0.250 s", "for a free slot of the lane"],
    ]
    assert page.block(0, "waited") == blocks


def test_a_page_sums_up_its_tasks_and_shows_each() -> None:
    """Each task is a part with its name."""
    parts = [
        attrs.evolve(one, head=attrs.evolve(one.head, task=name))
        for one, name in ((results_of(), "a<b"), (results_of(ONE), "second"))
    ]
    page = page_of(*parts)
    assert (
        "5 rows: 1 passed, 2 failed, 1 error, 1 not graded – 25.0 % of 4 rows passed" in page.text
    )
    tabs = [
        dict(found)["aria-controls"]
        for tag, found in page.tags
        if tag == "button" and "role" in found
    ]
    assert tabs == ["part-0", "part-1", "charts"]
    assert re.findall("<h2>(.*)</h2>", "".join(html_chunks(*parts))) == ["a&lt;b", "second"]
    assert len(page.cells(0)) == 2
    assert len(page.cells(1)) == 1
    assert [part["name"] for part in page.data["parts"]] == ["a<b", "second"]


def test_lanes_are_described_in_words_and_intervals() -> None:
    """Lanes have their waits; runs without activity have no lanes."""
    page = page_of(made_results(1))
    ((lane, _),) = [execution["lanes"] for execution in page.data["lanes"]]
    assert lane["name"] == "openai:gpt-6-mini"
    assert lane["text"].startswith("300 calls, 3 refused (429), ")
    assert re.search(r"waited [\d.]+ s of 44\.0 s: tpm [\d.]+ s, slots [\d.]+ s$", lane["text"])
    assert sum(bucket[3] for bucket in lane["buckets"]) == 3
    assert {word for bucket in lane["buckets"] for word in bucket[5]} == {"tpm", "slots"}
    assert lane["reasons"] == ["tpm", "slots"]  # the longest first
    assert page_of(results_of()).data["lanes"] == []
    assert "tab-lanes" not in "".join(html_chunks(results_of()))


def test_executions_without_calls_are_not_drawn() -> None:
    """A resumed run has several executions."""
    activities = [{"durationS": 0.1, "fields": [], "lanes": {}}, made_activity()]
    results = results_of()
    info = attrs.evolve(results.info, activity=activities)
    assert len(page_of(attrs.evolve(results, info=info)).data["lanes"]) == 1


def hostile_results() -> Results:
    suite, rows = hostile_rows()
    records = records_of(rows)
    activity = {"durationS": 1.0, "fields": [], "lanes": {}}
    lane = next(iter(made_activity()["lanes"].values()))
    names = [row["vars"]["text"] for row in records]
    activity["lanes"] = {name: {**lane, "closed": name} for name in names}
    plain_results = results_of()
    return attrs.evolve(
        plain_results,
        head=headed(suite),
        totals=totals_of(suite, rows),
        info=attrs.evolve(plain_results.info, activity=[activity]),
        records=lambda _column: iter(records),
    )


def test_foreign_text_is_never_markup() -> None:
    """A page with hostile texts has only the elements of any page."""
    hostile = hostile_results()
    for text in (
        "".join(html_chunks(hostile)),
        "".join(compare_chunks([results_of()], [hostile], sentences=["<script>"])),
    ):
        assert_inert_html(text)
        assert {tag for tag, _ in PageData(text).tags} <= {
            *("html", "head", "meta", "title", "style", "script", "noscript", "body", "header"),
            *(
                "main",
                "section",
                "div",
                "span",
                "p",
                "b",
                "h1",
                "h2",
                "h3",
                "svg",
                "rect",
                "path",
                "kbd",
            ),
            *("table", "thead", "tbody", "tr", "th", "td", "dialog"),
            *("button", "form", "label", "select", "option", "input"),
        }


_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]"
)


def test_page_data_has_no_direction_marks() -> None:
    """Tables, details and lanes have no direction marks."""
    page = page_of(hostile_results())
    found = texts_in([page.data, [pack.rows for pack in page.packs]])
    assert any("hostile" in text for text in found)
    for text in found:
        assert not _HIDDEN.search(text), ascii(text)


def texts_in(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for pair in value.items() for part in pair for text in texts_in(part)]
        case list():
            return [text for part in value for text in texts_in(part)]
        case _:
            return []


def test_a_page_may_run_its_own_scripts_and_load_nothing() -> None:
    """The policy names the digests of all scripts and styles in the page."""
    text = "".join(html_chunks(results_of()))
    (policy,) = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'"
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        found = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digests = (base64.b64encode(hashlib.sha256(one.encode()).digest()) for one in found)
        assert rules[rule].split() == [f"'sha256-{digest.decode()}'" for digest in digests]
    assert "sourceMappingURL" not in text
    markup = re.sub("<script>.*?</script>", "", text, flags=re.DOTALL)
    assert not re.search(r"<link|<img|<iframe|\bsrc=|\bhref=", markup)


@given(st.text(st.characters(exclude_categories=()), max_size=50), st.integers(1, 60))
def test_page_text_is_preserved(text: str, most: int) -> None:
    """Text is preserved, except characters that would change how the page reads."""
    for found in (
        plain(text, most),
        PageData(f"<tr><td>{inert_html(text, most)}</td>").lines[0][0],
    ):
        kept = found if len(text) <= most else found.rpartition("… (")[0]
        shown = text[:most].replace("\r\n", "\n")
        assert len(kept) == len(shown)
        assert all(a in {b, "\ufffd"} for a, b in zip(kept, shown, strict=True))


@pytest.mark.parametrize("text", HUGE.values(), ids=HUGE)
def test_long_outputs_are_truncated(text: str) -> None:
    """A text of a million characters is cut and counted; a short one is whole."""
    page = page_of(results_of(ONE, answers(text)))
    assert page.details()[0]["output"].endswith(f"… ({len(text)} characters)")
    assert len(page.details()[0]["output"]) < 110_000
    page = page_of(results_of(ONE, answers("a" * 50_000)))
    assert page.details()[0]["output"] == "a" * 50_000


def test_a_large_page_has_shorter_texts() -> None:
    """Browsers can open it."""
    packs = Packs(0, "details")
    assert packs.most == 100_000
    assert attrs.evolve(packs, characters=40_000_000).most == 1500


@pytest.mark.slow
def test_memory_for_a_page_does_not_grow_with_its_rows() -> None:
    """Ten times as many rows need no more memory."""
    peaks = []
    for results in (made_results(6, words=4000), made_results(60, words=4000)):
        next(html_chunks(results))  # loads what is loaded once
        tracemalloc.start()
        for _chunk in html_chunks(results):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    few, many = peaks
    assert many < few + 1_000_000


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("prompt_text", "say {{word}}"), ("response_output", "an answer"), ("test_vars", "word=hi")],
)
def test_stripped_parts_are_not_on_the_page(name: str, hidden: str) -> None:
    """Stripped parts are not in pages, also of two runs."""
    suite = SUITE | {"tests": [{"vars": {"word": "hi"}}]}
    for strip in (KEEP_ALL, Strip(**{name: True})):
        shown = results_of(suite, answers("an answer"), strip=strip)
        other = results_of(suite, answers("another"), strip=strip)
        for chunks in (html_chunks(shown), compare_chunks([other], [shown])):
            page = PageData("".join(chunks))
            texts = [page.text, *texts_in([page.data, [pack.rows for pack in page.packs]])]
            assert any(hidden in text for text in texts) == (strip == KEEP_ALL)


def test_a_page_of_two_runs_shows_each_changed_row() -> None:
    """Changed rows have both outputs, the kind of the change, and counts."""
    before, after = made_results(30, activity=False), made_results(31, seed=1, activity=False)
    page = PageData("".join(compare_chunks([before], [after], sentences=["a <finding>"])))
    rows = page.rows("index")
    assert {row[3] for row in rows} <= {"better", "worse", "changed", "new"}
    assert [row[3] for row in rows].count("new") == 2
    old = dict(page.rows("index-before"))
    olds: dict[object, Any] = {}
    news: dict[object, Any] = {}
    for results, found in ((before, olds), (after, news)):
        for record in results.records(None):
            found[record["testIdx"], record["provider"]["label"]] = record
    for number, name, (nothing, cell), kind, column, place in rows:
        key = number // 2, column.partition(" | ")[0]
        assert nothing is None
        assert name == f"question={news[key]['vars']['question']}"
        assert cell[5] == output_of(news[key])
        if kind == "new":
            assert place is None
        else:
            assert old[place][5] == output_of(olds[key])
            cells = page.rows("before")[old[place][8]]
            response = olds[key]["response"]
            assert cells["output"] == (None if response is None else response["output"])
    assert len(page.rows("before")) == len(old) == len(rows) - 2
    assert "a <finding>" in page.text
    assert "62 rows: " in page.text
    assert [line[0] for line in page.lines][1:] == [
        "openai:gpt-6-mini | one sentence",
        "anthropic:haiku-5 | one sentence",
    ]


def output_of(record: Any) -> str:
    text = record["error"] if record["failureReason"] == 2 else record["response"]["output"]
    return str(text[:200])


def test_missing_rows_follow_the_others() -> None:
    """Missing rows have no output of the second run."""
    many, few = made_results(3, activity=False), made_results(2, activity=False)
    page = PageData("".join(compare_chunks([many], [few])))
    gone = [(row[0], row[2], row[3]) for row in page.rows("index")]
    assert gone == [(4, [None, None], "gone"), (5, [None, None], "gone")]
    assert len(page.rows("before")) == 2
    assert page.rows("details") == []
    assert "6 rows: 4 same, 2 gone" in page.text


def test_rows_of_equal_runs_are_counted_and_not_shown() -> None:
    """A run without rows has a page."""
    page = PageData("".join(compare_chunks([results_of()], [results_of()])))
    assert "4 rows: 4 same" in page.text
    assert page.text.startswith("Two runs of d")
    assert page.packs == []


def test_vendored_files_are_those_of_the_list() -> None:
    """Vendored files are unchanged and have their licences."""
    vendor = Path(trioeval.__file__).parent / "report" / "vendor"
    listed = dict(
        re.findall(
            r"^\| `(\S+)` \| `([0-9a-f]{64})` \|$", (vendor / "README.md").read_text(), re.MULTILINE
        )
    )
    there = {
        str(path.relative_to(vendor)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in vendor.rglob("*.*")
        if path.suffix in {".js", ".css"}
    }
    assert there == listed
    assert all((vendor / name).with_name("LICENSE").is_file() for name in there)
