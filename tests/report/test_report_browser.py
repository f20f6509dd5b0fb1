"""The page of a run in a real browser: by mouse and keys, in the dark theme and on paper."""

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest
from browser import Browser, Keys
from finished import headed, records_of, results_of, totals_of
from hostile import hostile_rows
from made_runs import made_results

from trioeval.report.html_report import compare_chunks, html_chunks
from trioeval.report.results import Results

pytestmark = pytest.mark.slow

TESTS = 300  # of two columns
TABLE = ".matrix[tabindex]"
RUN = made_results(TESTS)
HIDDEN = "[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\u200b\x1b\x07]"
LATER = "return new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


@cache
def records(column: int) -> list[Mapping[str, Any]]:
    return [*RUN.records(column)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write pages of a run, of two runs, of hostile texts, of two tests, and of two equal runs."""
    folder = tmp_path_factory.mktemp("some pages, für alle")
    written: Mapping[str, Iterator[str]] = {
        "run": html_chunks(RUN),
        "two": compare_chunks(
            [made_results(30)], [made_results(31, seed=1)], sentences=["p = 0.2"]
        ),
        "hostile": html_chunks(hostile_results()),
        "small": html_chunks(results_of()),
        "same": compare_chunks([results_of()], [results_of()]),
    }
    for name, chunks in written.items():
        with (folder / f"{name}.html").open("w", encoding="utf-8") as file:
            file.writelines(chunks)
    return folder


def hostile_results() -> Results:
    suite, rows = hostile_rows()
    found = records_of(rows)
    return attrs.evolve(
        results_of(),
        head=headed(suite),
        totals=totals_of(suite, rows),
        records=lambda _column: iter(found),
    )


def open_page(browser: Browser, path: Path) -> None:
    browser.open(path.as_uri())
    browser.find("html[data-ready]")


def count(browser: Browser) -> str:
    browser.js(LATER)
    return browser.text(".count")


def expect_count(browser: Browser, text: str) -> None:
    browser.expect(lambda: count(browser), text)


def expect_tests(browser: Browser, tests: int) -> None:
    none = "" if tests else ". No test matches these filters."
    expect_count(browser, f"{tests} of {TESTS} tests{none}")


def open_row(browser: Browser) -> None:
    """Open the first row of the table, once the table is at rest."""
    browser.js(LATER)
    browser.click(".tabulator-row")
    browser.find("dialog[open]")


def close_row(browser: Browser) -> None:
    browser.press(Keys.ESCAPE)
    browser.wait(lambda: not browser.all("dialog[open]"), "a closed row")


def choose(browser: Browser, css: str, value: str) -> None:
    browser.js(
        "const [field, value] = arguments; field.value = value;"
        "for (const kind of ['input', 'change'])"
        " field.dispatchEvent(new Event(kind, {bubbles: true}))",
        browser.find(css),
        value,
    )


def test_a_page_is_searched_and_filtered(browser: Browser, pages: Path) -> None:
    """Rows are filtered by words, status of a column, provider and measure, and by all together."""
    open_page(browser, pages / "run.html")
    expect_count(browser, f"{TESTS} tests")
    browser.press("/")
    browser.press(*"question 123:")
    expect_count(browser, f"1 of {TESTS} tests")
    assert "Question 123:" in browser.text(".tabulator-row")
    browser.click("[type=reset]")
    expect_count(browser, f"{TESTS} tests")

    first, second = records(0), records(1)
    choose(browser, ".tabulator-col[tabulator-field=c0] select", "fail")
    failed = [row for row in first if row["failureReason"] == 1]
    expect_count(browser, f"{len(failed)} of {TESTS} tests")
    choose(browser, ".tabulator-col[tabulator-field=c1] select", "pass")
    both = [row for row in failed if second[row["testIdx"]]["failureReason"] == 0]
    expect_count(browser, f"{len(both)} of {TESTS} tests")
    choose(browser, "[name=measure]", "metric names it")
    browser.type("[name=limit]", "0.9")
    left = [
        row
        for row in both
        if max(one["namedScores"]["names it"] for one in (row, second[row["testIdx"]])) >= 0.9
    ]
    expect_count(browser, f"{len(left)} of {TESTS} tests")
    browser.click("[type=reset]")

    choose(browser, "[name=column]", "anthropic:haiku-5")
    browser.expect(
        lambda: [text for text in browser.texts(".heading .sort") if text], ["anthropic:haiku-5"]
    )
    choose(browser, "[name=measure]", "ms")
    choose(browser, "[name=than]", "most")
    browser.type("[name=limit]", "500")
    quick = [row for row in second if row["latencyMs"] <= 500]
    expect_count(browser, f"{len(quick)} of {TESTS} tests")


def test_row_height_and_sort_arrows_are_minimal(browser: Browser, pages: Path) -> None:
    """Cells have up to three lines of an output, and only the sorted column has an arrow."""
    open_page(browser, pages / "run.html")
    sizes = (
        "return Array.from(document.querySelectorAll('.tabulator-row'), (one) => one.offsetHeight)"
    )
    heights = browser.js(sizes)
    assert min(heights) < max(heights) <= 90
    arrows = (
        "return Array.from(document.querySelectorAll('.tabulator-arrow'),"
        " (one) => getComputedStyle(one).visibility).filter((one) => one === 'visible').length"
    )
    assert browser.js(arrows) == 0
    browser.click(".tabulator-col .sort")
    browser.expect(lambda: browser.js(arrows), 1)


def test_only_visible_filters_are_active(browser: Browser, pages: Path) -> None:
    """A cleared filter resets everything, also the status of a hidden column and remembered values."""
    open_page(browser, pages / "run.html")
    choose(browser, ".tabulator-col[tabulator-field=c0] select", "fail")
    browser.wait(lambda: count(browser) != f"{TESTS} tests", "fewer rows")
    choose(browser, "[name=column]", "anthropic:haiku-5")
    expect_count(browser, f"{TESTS} tests")
    browser.type("[name=limit]", "0.9")
    browser.wait(lambda: count(browser) != f"{TESTS} tests", "fewer rows")
    browser.open("about:blank")
    browser.driver.back()
    browser.find("html[data-ready]")
    assert browser.js("return document.querySelector('[name=limit]').value") == ""
    expect_count(browser, f"{TESTS} tests")


def test_whole_texts_are_searched_on_request(browser: Browser, pages: Path) -> None:
    """Text behind the shown beginning is only found with whole texts."""
    open_page(browser, pages / "run.html")
    word = next(
        text[200:]
        for row in records(0)
        if row["response"] and len(text := row["response"]["output"]) > 240
    )
    browser.type("[name=search]", word)
    expect_tests(browser, 0)
    browser.click("[name=whole]")
    expect_tests(browser, 1)
    failed = [row for row in RUN.records(None) if row["failureReason"] == 1]
    for words, tests in (
        ('not equal "the largest', {row["testIdx"] for row in failed}),  # as it is written
        ("pairs", ()),  # the source of a page is not its text
    ):
        browser.type("[name=search]", words)
        expect_tests(browser, len(tests))


def test_a_page_can_be_used_with_the_keyboard_alone(browser: Browser, pages: Path) -> None:
    """Arrows move in the table, Enter opens a row, Escape closes it, and the focus returns."""
    open_page(browser, pages / "run.html")
    failed = next(row["testIdx"] for row in records(0) if row["failureReason"] == 1)
    table = browser.find(TABLE)
    table.send_keys(*[Keys.ARROW_DOWN] * (failed + 1), Keys.ENTER)
    assert f"Question {failed}:" in browser.text("dialog[open] h2")
    blocks = browser.texts(".pane:first-child summary")
    assert blocks == ["output", "reason", "assertions", "variables", "prompt", "waited"]
    output = next(row for row in records(0) if row["testIdx"] == failed)["response"]["output"]
    assert browser.text(".pane:first-child pre") == output
    difference = browser.find(".pane:first-child .diff")
    signs = browser.js(
        "return Array.from(arguments[0].childNodes, one => [one.nodeName, one.textContent])",
        difference,
    )
    expected = "".join(text for tag, text in signs if tag != "INS")
    assert expected == "The largest city is there."
    assert "".join(text for tag, text in signs if tag != "DEL") == output
    browser.click("dialog .next")
    browser.wait(lambda: f"Question {failed + 1}:" in browser.text("#sheet-title"), "next row")
    assert browser.text("dialog .place") == f"{failed + 2} of {TESTS}"
    browser.js("const next = document.querySelector('dialog .next'); next.click(); next.click()")
    browser.wait(lambda: f"Question {failed + 3}:" in browser.text("#sheet-title"), "the one after")
    close_row(browser)
    browser.wait(
        lambda: browser.js("return document.activeElement === arguments[0]", table), "focus"
    )
    table.send_keys(Keys.END)
    browser.wait(lambda: f"Question {TESTS - 1}:" in browser.text(".current"), "the last row")
    table.send_keys(Keys.ENTER)
    browser.find("dialog .next[aria-disabled=true]")
    close_row(browser)

    assert browser.js("return arguments[0].getAttribute('aria-rowcount')", table) == str(TESTS + 1)
    current = "document.getElementById(arguments[0].getAttribute('aria-activedescendant'))"
    assert f"Question {TESTS - 1}:" in browser.js(f"return {current}.textContent", table)
    table.send_keys(
        Keys.TAB, Keys.ENTER, Keys.ENTER
    )  # sorts by number, then in the other direction
    browser.wait(lambda: browser.all(".tabulator-col[aria-sort=descending]"), "sorted")
    table.send_keys(Keys.HOME)
    browser.wait(lambda: f"Question {TESTS - 1}:" in browser.text(".current"), "the last on top")


def labels(browser: Browser, css: str, number: int) -> list[str]:
    browser.expect(lambda: len(browser.all(css)), number)
    return [one.get_attribute("aria-label") or "" for one in browser.all(css)]


def test_charts_and_lanes_are_drawn_and_described(browser: Browser, pages: Path) -> None:
    """Charts have names that describe them; arrows change tabs."""
    open_page(browser, pages / "run.html")
    browser.find("#tab-0").send_keys(Keys.ARROW_RIGHT)
    names = labels(browser, "#charts canvas", 4)
    assert names[0].startswith(f"openai:gpt-6-mini one sentence: {TESTS} rows, median ")
    browser.find("#tab-charts").send_keys(Keys.ARROW_RIGHT)
    names = labels(browser, "#lanes canvas", 2)
    assert [name.partition(":")[0] for name in names] == ["openai", "anthropic"]
    assert "3 refused (429)" in names[0]
    keys = browser.texts("#lanes figure:first-child .k")
    assert keys == ["calls in flight", "limit", "refused (429)", "waited for"]
    drawn = browser.js(
        "const c = document.querySelector('#lanes canvas');"
        "return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
    )
    assert drawn > 10
    roles = browser.roles()
    assert ("tab", "Lanes") in roles
    assert ("image", names[0]) in roles
    browser.size(360, 700)
    fits = "return document.querySelector('#lanes canvas').clientWidth < innerWidth"
    browser.wait(lambda: browser.js(fits), "a smaller picture")
    browser.size(1280, 900)


def test_rows_without_latency_are_counted(browser: Browser, pages: Path) -> None:
    """A chart has as many rows as the table above, with equal medians."""
    open_page(browser, pages / "small.html")
    browser.click("#tab-charts")
    descriptions = browser.wait(lambda: browser.texts("#charts figure > p"), "charts")
    assert descriptions[1] == "2 rows, median 0 ms, p95 0 ms, most 0 ms"
    assert descriptions[2] == "1 row, median 5 tokens, p95 5 tokens, most 5 tokens"


def test_all_parts_of_a_page_have_roles_and_names(browser: Browser, pages: Path) -> None:
    """A screen reader gets names for all parts."""
    open_page(browser, pages / "run.html")
    roles = browser.roles()
    for found in (
        ("searchbox", "Search"),
        ("grid", "Tests; arrows move, Enter opens"),
        ("button", "openai:gpt-6-mini"),
        ("combobox", "Status of openai:gpt-6-mini one sentence"),
        ("combobox", "Provider"),
        ("combobox", "Measure"),
        ("spinbutton", "limit of the measure"),
        ("tab", "Results"),
        ("button", "Switch to dark"),
    ):
        assert found in roles, found
    kinds = [role for role, _ in roles]
    assert {"grid", "row", "gridcell", "columnheader", "tablist", "tabpanel"} <= set(kinds)
    nameless = [
        role
        for role, name in roles
        if not name and role in {"button", "combobox", "searchbox", "textbox", "tab", "checkbox"}
    ]
    assert nameless == []


def test_a_page_is_light_or_dark(browser: Browser, pages: Path) -> None:
    """The theme is the system's or the chosen one; small screens cut nothing off."""
    ground = "return getComputedStyle(document.body).backgroundColor"
    browser.prefer("dark")
    open_page(browser, pages / "run.html")
    dark = browser.js(ground)
    assert browser.text("#theme") == "Switch to light"
    browser.click("#theme")
    light = browser.js(ground)
    assert browser.text("#theme") == "Switch to dark"
    browser.prefer("light")
    browser.click("#theme")
    assert browser.js(ground) == dark != light
    browser.size(360, 700)
    wider = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.js(wider)
    browser.size(1280, 900)


def test_foreign_text_has_no_effect(browser: Browser, pages: Path) -> None:
    """Foreign text is text in the table and in each row, without direction marks."""
    open_page(browser, pages / "hostile.html")
    rows = len(records_of(hostile_rows()[1]))
    browser.find(TABLE).send_keys(Keys.ARROW_DOWN, Keys.ENTER)
    assert browser.text("dialog[open] .pane pre") == "<script>window.hostileRan=1</script>"
    seen = browser.js(
        """
        const [hidden, rows] = [new RegExp(arguments[0]), arguments[1]];
        const found = {hidden: [], tags: new Set(), titles: new Set()};
        const step = async () => {
          const title = document.getElementById("sheet-title");
          const whole = document.querySelector("main");
          for (let row = 0; row < rows; row++) {
            found.titles.add(title.textContent);
            const sheet = document.querySelector("dialog");
            if (hidden.test(sheet.textContent)) found.hidden.push(title.textContent);
            if (row % 8 == 0 && hidden.test(whole.textContent)) found.hidden.push(row);
            sheet.querySelectorAll("*").forEach((one) => found.tags.add(one.tagName));
            const before = title.textContent;
            document.querySelector("dialog .next").click();
            for (let turn = 0; turn < 9 && title.textContent === before; turn++)
              await new Promise((done) => setTimeout(done));
          }
          document.querySelectorAll(".matrix *").forEach((one) => found.tags.add(one.tagName));
          return {...found, tags: [...found.tags], titles: found.titles.size};
        };
        return step();
        """,
        HIDDEN,
        rows,
    )
    assert seen["hidden"] == []
    assert seen["titles"] > rows * 0.8
    own = "DIV H2 H3 BUTTON SECTION SPAN P B DETAILS SUMMARY PRE DL DT DD UL LI DEL INS"
    table = "STRONG SELECT OPTION BR"
    assert set(seen["tags"]) <= {*own.split(), *table.split()}
    assert browser.js("return window.hostileRan === undefined")


def test_two_runs_are_shown_side_by_side(browser: Browser, pages: Path) -> None:
    """Two runs are filtered by the kind of change; both outputs and their difference are shown."""
    open_page(browser, pages / "two.html")
    whole = count(browser)
    choose(browser, "[name=kind]", "worse")
    browser.wait(lambda: count(browser).endswith(f"of {whole}"), "fewer rows")
    assert {*browser.texts(".tabulator-row .kind")} == {"WORSE"}
    choose(browser, "[name=column]", "openai:gpt-6-mini | one sentence")
    open_row(browser)
    assert browser.texts("dialog[open] .pane h3") == ["Before e0", "After e1"]
    assert "p = 0.2" in browser.text("main")
    close_row(browser)
    choose(browser, "[name=kind]", "changed")
    open_row(browser)
    browser.find("dialog[open] .change .diff ins")
    close_row(browser)
    choose(browser, "[name=kind]", "new")
    open_row(browser)
    assert len(browser.all("dialog[open] .pane")) == 1
    open_page(browser, pages / "same.html")
    assert browser.text(".note") == "No rows."
    assert browser.text(".filters") == ""


def test_totals_are_shown_without_scripts_and_on_paper(browser: Browser, pages: Path) -> None:
    """On paper the table is written out as filtered."""
    open_page(browser, pages / "run.html")
    browser.type("[name=search]", "question 12")
    wanted = count(browser).split()[0]
    browser.js("window.dispatchEvent(new Event('beforeprint'))")
    assert len(browser.all(".printed tr")) == int(wanted) + 1
    assert browser.text(".printed caption") == f"{wanted} of {TESTS} tests"
    light = "return document.documentElement.dataset.theme"
    assert browser.js(light) == "light"
    browser.js("window.dispatchEvent(new Event('afterprint'))")
    assert browser.all(".printed") == []
    assert browser.js(light) is None
    disable = "Emulation.setScriptExecutionDisabled"
    browser.driver.execute_cdp_cmd(disable, {"value": True})
    try:
        browser.open((pages / "run.html").as_uri())
        assert f"{2 * TESTS} rows:" in browser.text(".totals")
        assert "openai:gpt-6-mini" in browser.text(".summary")
        assert "need scripts" in browser.text("noscript")
    finally:
        browser.driver.execute_cdp_cmd(disable, {"value": False})
