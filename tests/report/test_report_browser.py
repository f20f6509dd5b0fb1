"""The page of a run in a real browser: what people see of it, by mouse and keys, in the dark and on paper."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from browser import Browser, Keys
from finished import headed, records_of, results_of, totals_of
from hostile import hostile_rows
from made_runs import made_results

from trioeval.report import Results
from trioeval.report.html_report import compare_chunks, html_chunks

pytestmark = pytest.mark.slow

TESTS = 1000  # of two columns
TABLE = ".tabulator-tableholder"
RUN = made_results(TESTS)
HIDDEN = "[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c\u200b\x1b\x07]"
LATER = "return new Promise(done => requestAnimationFrame(() => setTimeout(done)))"


def records(column: int) -> list[Mapping[str, Any]]:
    return [*RUN.records(column)]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page of a run, of two runs, and of hostile texts."""
    folder = tmp_path_factory.mktemp("pages")
    written: Mapping[str, Iterator[str]] = {
        "run": html_chunks(RUN),
        "two": compare_chunks([made_results(30)], [made_results(31, seed=1)], told=["p = 0.2"]),
        "hostile": html_chunks(hostile_results()),
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


def choose(browser: Browser, css: str, value: str) -> None:
    browser.js(
        "const [field, value] = arguments; field.value = value;"
        "for (const kind of ['input', 'change'])"
        " field.dispatchEvent(new Event(kind, {bubbles: true}))",
        browser.find(css),
        value,
    )


def test_a_page_is_searched_and_filtered(browser: Browser, pages: Path) -> None:
    """By words, by the status of a column, by provider, and by a measure; all of them together."""
    open_page(browser, pages / "run.html")
    assert count(browser) == f"{TESTS} tests"
    browser.press("/")
    browser.press(*"question 123:")
    assert count(browser) == f"1 of {TESTS} tests"
    assert "Question 123:" in browser.text(".tabulator-row")
    browser.find("[type=reset]").click()
    assert count(browser) == f"{TESTS} tests"

    first, second = records(0), records(1)
    choose(browser, ".tabulator-col[tabulator-field=c0] select", "fail")
    failed = [row for row in first if row["failureReason"] == 1]
    assert count(browser) == f"{len(failed)} of {TESTS} tests"
    choose(browser, ".tabulator-col[tabulator-field=c1] select", "pass")
    both = [row for row in failed if second[row["testIdx"]]["failureReason"] == 0]
    assert count(browser) == f"{len(both)} of {TESTS} tests"
    choose(browser, "[name=measure]", "metric names it")
    browser.type("[name=limit]", "0.9")
    left = [
        row
        for row in both
        if max(one["namedScores"]["names it"] for one in (row, second[row["testIdx"]])) >= 0.9
    ]
    assert count(browser) == f"{len(left)} of {TESTS} tests"
    browser.find("[type=reset]").click()

    choose(browser, "[name=column]", "anthropic:haiku-5")
    headings = [one.text for one in browser.all(".tabulator-col .heading strong") if one.text]
    assert headings == ["anthropic:haiku-5"]
    choose(browser, "[name=measure]", "ms")
    choose(browser, "[name=than]", "most")
    browser.type("[name=limit]", "500")
    quick = [row for row in second if row["latencyMs"] <= 500]
    assert count(browser) == f"{len(quick)} of {TESTS} tests"


def test_whole_texts_are_searched_if_asked(browser: Browser, pages: Path) -> None:
    """What stands behind the beginning of an answer is found then alone."""
    open_page(browser, pages / "run.html")
    word = next(
        text[200:]
        for row in records(0)
        if row["response"] and len(text := row["response"]["output"]) > 240
    )
    browser.type("[name=search]", word)
    browser.wait(lambda: count(browser) == f"0 of {TESTS} tests", "no test")
    browser.find("[name=whole]").click()
    browser.wait(lambda: count(browser) == f"1 of {TESTS} tests", "one test")


def test_a_page_is_used_with_keys_alone(browser: Browser, pages: Path) -> None:
    """Arrows move in the table, Enter opens a row, Escape closes it, and the focus is where it was."""
    open_page(browser, pages / "run.html")
    failed = next(row["testIdx"] for row in records(0) if row["failureReason"] == 1)
    table = browser.find(TABLE)
    table.send_keys(*[Keys.ARROW_DOWN] * (failed + 1), Keys.ENTER)
    assert f"Question {failed}:" in browser.find("dialog[open] h2").text
    blocks = [one.text for one in browser.all(".pane:first-child summary")]
    assert blocks == ["output", "reason", "assertions", "variables", "prompt", "waited"]
    output = next(row for row in records(0) if row["testIdx"] == failed)["response"]["output"]
    assert browser.text(".pane:first-child pre") == output
    told = browser.find(".pane:first-child .diff")
    signs = browser.js(
        "return Array.from(arguments[0].childNodes, one => [one.nodeName, one.textContent])", told
    )
    expected = "".join(text for tag, text in signs if tag != "INS")
    assert expected == "The largest city is there."
    assert "".join(text for tag, text in signs if tag != "DEL") == output
    browser.find("dialog .next").click()
    browser.wait(lambda: f"Question {failed + 1}:" in browser.text("#sheet-title"), "next row")
    browser.press(Keys.ESCAPE)
    assert browser.all("dialog[open]") == []
    assert browser.js("return document.activeElement === arguments[0]", table)
    table.send_keys(Keys.END)
    browser.wait(lambda: f"Question {TESTS - 1}:" in browser.text(".current"), "the last row")


def test_charts_and_lanes_are_drawn_and_told(browser: Browser, pages: Path) -> None:
    """As pictures whose names say what they show; tabs are moved between with arrows."""
    open_page(browser, pages / "run.html")
    browser.find("#tab-0").send_keys(Keys.ARROW_RIGHT)
    names = [one.get_attribute("aria-label") or "" for one in browser.all("#charts canvas")]
    assert len(names) == 4
    assert names[0].startswith("openai:gpt-6-mini one sentence: 1000 rows, median ")
    browser.find("#tab-charts").send_keys(Keys.ARROW_RIGHT)
    names = [one.get_attribute("aria-label") or "" for one in browser.all("#lanes canvas")]
    assert [name.partition(":")[0] for name in names] == ["openai", "anthropic"]
    assert "3 refused (429)" in names[0]
    keys = [one.text for one in browser.all("#lanes figure:first-child .k")]
    assert keys == ["in flight", "limit", "refused (429)", "waited: tpm", "waited: slots"]
    drawn = browser.js(
        "const c = document.querySelector('#lanes canvas');"
        "return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size"
    )
    assert drawn > 10
    roles = browser.roles()
    assert ("tab", "Lanes") in roles
    assert ("image", names[0]) in roles


def test_what_is_on_a_page_has_roles_and_names(browser: Browser, pages: Path) -> None:
    """A screen reader hears what everything is."""
    open_page(browser, pages / "run.html")
    roles = browser.roles()
    for found in (
        ("searchbox", "Search /"),
        ("combobox", "Status of openai:gpt-6-mini one sentence"),
        ("combobox", "Provider"),
        ("combobox", "Measure"),
        ("spinbutton", "limit of the measure"),
        ("tab", "Results"),
        ("button", "Dark"),
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
    """As the system is, unless somebody says otherwise; on small screens nothing is cut off."""
    ground = "return getComputedStyle(document.body).backgroundColor"
    browser.prefer("dark")
    open_page(browser, pages / "run.html")
    dark = browser.js(ground)
    assert browser.find("#theme").get_attribute("aria-pressed") == "true"
    browser.find("#theme").click()
    light = browser.js(ground)
    browser.prefer("light")
    browser.find("#theme").click()
    assert browser.js(ground) == dark != light
    browser.size(360, 700)
    wider = "return document.documentElement.scrollWidth > document.documentElement.clientWidth"
    assert not browser.js(wider)
    browser.size(1280, 900)


def test_no_text_of_others_does_anything(browser: Browser, pages: Path) -> None:
    """In the table and in each row: it is shown as text, and no character of it turns others around."""
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


def test_two_runs_are_seen_side_by_side(browser: Browser, pages: Path) -> None:
    """Filtered by how a row changed; both answers beside each other, and their difference."""
    open_page(browser, pages / "two.html")
    whole = count(browser)
    choose(browser, "[name=kind]", "worse")
    assert count(browser).endswith(f"of {whole}")
    assert {one.text for one in browser.all(".tabulator-row .kind")} == {"WORSE"}
    choose(browser, "[name=column]", "openai:gpt-6-mini | one sentence")
    browser.find(".tabulator-row").click()
    assert [one.text for one in browser.all("dialog[open] .pane h3")] == ["Before\ne0", "After\ne1"]
    assert "p = 0.2" in browser.text("main")
    choose(browser, "[name=kind]", "changed")
    browser.press(Keys.ESCAPE)
    browser.find(".tabulator-row").click()
    browser.find("dialog[open] .change .diff ins")
    choose(browser, "[name=kind]", "new")
    browser.press(Keys.ESCAPE)
    browser.find(".tabulator-row").click()
    browser.wait(lambda: len(browser.all("dialog[open] .pane")) == 1, "one answer alone")


def test_totals_are_there_without_scripts_and_on_paper(browser: Browser, pages: Path) -> None:
    """On paper the table is written out, as its filters leave it."""
    open_page(browser, pages / "run.html")
    browser.type("[name=search]", "question 12")
    wanted = count(browser).split()[0]
    browser.js("window.dispatchEvent(new Event('beforeprint'))")
    assert len(browser.all(".printed tr")) == int(wanted) + 1
    browser.js("window.dispatchEvent(new Event('afterprint'))")
    assert browser.all(".printed") == []
    disable = "Emulation.setScriptExecutionDisabled"
    browser.driver.execute_cdp_cmd(disable, {"value": True})
    try:
        browser.open((pages / "run.html").as_uri())
        assert "2000 rows:" in browser.text(".totals")
        assert "openai:gpt-6-mini" in browser.text(".summary")
        assert "shown by a script" in browser.text("noscript")
    finally:
        browser.driver.execute_cdp_cmd(disable, {"value": False})
