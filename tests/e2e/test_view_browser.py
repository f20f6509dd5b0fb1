"""`trioeval view` in a real browser: real runs of a real provider, watched and controlled from its pages."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import attrs
import pytest
import trio
from browser import Browser, Keys

from trioeval.store.reader import read_store
from trioeval.store.store import open_store
from trioeval.web.live_client import open_live

pytestmark = [pytest.mark.slow, pytest.mark.network]

HOSTILE = "<script>window.hostileRan=1</script><img src=x onerror=window.hostileRan=1> \u202etxt"


@attrs.define
class Machine:
    """A folder with suites, a provider, a view, and runs in separate processes."""

    folder: Path
    server: subprocess.Popen[str]
    view: str
    _provider: str
    _start: Callable[..., subprocess.Popen[str]]

    def run(
        self, name: str, tests: int, width: int, silent: str | None = None
    ) -> tuple[subprocess.Popen[str], str]:
        """Start a run whose third row fails and whose fourth is not graded, and return it with its name.

        Args:
            name: The name of its suite.
            tests: The number of tests.
            width: The max concurrency of its lane.
            silent: The tests of a provider that does not reply, with its own lane.
        """
        places = {"slow": self._provider} | ({} if silent is None else {"silent": silent})
        suite = {
            "description": f"{name} {HOSTILE}",
            "providers": [
                {
                    "id": "openai:chat:fake",
                    "label": f"{lane} {HOSTILE}",
                    "config": {"apiBaseUrl": place},
                    "lane": lane,
                }
                for lane, place in places.items()
            ],
            "lanes": {lane: {"maxConcurrency": width, "rpm": 60_000} for lane in places},
            "prompts": [f"say {{{{word}}}} {HOSTILE}"],
            "tests": [
                {
                    "vars": {"word": f"w{n}"},
                    "assert": [] if n == 3 else [{"type": "not-contains", "value": "w2 "}],
                }
                for n in range(tests)
            ],
        }
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(suite))
        flags = ["--no-table", "--no-progress", "--no-cache"]
        process = self._start("run", str(path), *flags, "--db", str(self.folder / "runs.db"))
        return process, name


@pytest.fixture(scope="module")
def machine(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("view")
    with ExitStack() as stack:
        # A path short enough for sockets, for the runs, the view and this process.
        place = stack.enter_context(TemporaryDirectory(prefix="te-"))
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("XDG_RUNTIME_DIR", place)
        patch.setenv("NO_PROXY", "*")

        def start(*words: str) -> subprocess.Popen[str]:
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "trioeval", *words],
                    cwd=folder,
                    env=dict(os.environ),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )
            stack.callback(process.kill)
            return process

        def first_line(process: subprocess.Popen[str]) -> str:
            assert process.stdout is not None
            return process.stdout.readline().strip()

        async def make() -> None:
            async with open_store(folder / "runs.db"):
                pass

        trio.run(make)
        # They start while the browser does.
        provider = start("fake-provider", "--port", "0", "--latency", "0.1", "--hints", "none")
        view = start("view", "--port", "0", "--db", str(folder / "runs.db"))
        request.getfixturevalue("chromium")
        yield Machine(folder, view, first_line(view), first_line(provider), start)


def standing(folder: Path) -> Mapping[str, Any]:
    """The state of the latest run as its live server reports it."""
    with read_store(folder / "runs.db") as reader:
        run_id = reader.run("latest").id

    async def look() -> Mapping[str, Any]:
        async with open_live(run_id) as live:
            async for state in live.states():
                return state
        raise AssertionError("the run says nothing")

    return trio.run(look)


def latest(folder: Path) -> str:
    """The id of the latest run."""
    with read_store(folder / "runs.db") as reader:
        return "".join(str(run.description) for run in reader.runs(limit=1))


def hasten(folder: Path) -> None:
    """Let the latest run end soon."""
    with read_store(folder / "runs.db") as reader:
        run_id = reader.run("latest").id

    async def widen() -> None:
        async with open_live(run_id) as live:
            assert (await live.ask({"do": "retune", "lane": "slow", "maxConcurrency": 40}))["ok"]

    trio.run(widen)


def open_latest(browser: Browser, name: str) -> None:
    """Go from the list to a run, which appears there by itself."""
    link = browser.wait(
        lambda: next((one for one in browser.all("#runs a") if name in one.text), None), name
    )
    link.click()
    browser.find("#rows")


def inert(browser: Browser) -> bool:
    return bool(browser.js("return window.hostileRan === undefined"))


def assert_counts(browser: Browser) -> None:
    """The page of the run counts the row that was not graded apart from passed rows."""
    figures = dict(zip(browser.texts(".figures dt"), browser.texts(".figures dd"), strict=True))
    counted = [figures[name] for name in ("Passed", "Failed", "Errors", "Not graded", "Pass rate")]
    assert counted == ["38", "1", "0", "1", "97.4 % of 39 graded"]
    bar = browser.find("#live .bar")
    assert bar.get_attribute("aria-label") == "38 passed, 1 failed, 0 errors, 1 not graded"
    assert len(browser.all("#live .bar rect.not_graded")) == 1
    browser.click("#filter select[name=status] option[value=not_graded]")
    browser.wait(lambda: "NOT GRADED" in browser.text("#rows tbody"), "the row without assertions")
    assert browser.text("#total") == "1 row"
    assert "1.00" not in browser.texts("#rows tbody td")


def test_a_run_is_watched_to_its_end_and_browsed(machine: Machine, browser: Browser) -> None:
    """It appears in the list, its rows grow, and it ends, all without loading a page again."""
    browser.open(machine.view)
    assert browser.text("h1") == "Runs"
    assert browser.text("#runs p") == "No run yet."
    process, name = machine.run("watched", 40, 1)
    open_latest(browser, name)
    browser.js("window.sameAsBefore = 1")
    assert name in browser.text("h1")
    assert browser.find(".lane h3").text.startswith("slow")
    browser.wait(lambda: browser.all(".lane .chart canvas"), "a timeline")
    browser.wait(lambda: 0 < len(browser.all("#rows tbody tr")) < 40, "some rows")
    # A second window, which is reloaded in the middle, gets the same updates.
    first = browser.driver.current_window_handle
    browser.driver.switch_to.new_window("tab")
    browser.open(machine.view)
    open_latest(browser, name)
    browser.driver.refresh()
    hasten(machine.folder)
    browser.wait(lambda: browser.text("#state") == "finished", "the end, in the second window")
    browser.driver.close()
    browser.driver.switch_to.window(first)
    browser.wait(lambda: browser.text("#state") == "finished", "the end")
    browser.wait(lambda: len(browser.all("#rows tbody tr")) == 40, "all rows")
    assert process.wait(60) == 100
    assert browser.text("#total") == "40 rows"
    assert browser.text("#done") == "40"
    assert browser.js("return window.sameAsBefore") == 1

    assert_counts(browser)
    browser.click("#filter select[name=status] option[value=fail]")
    browser.wait(lambda: browser.text("#total") == "1 row", "the failed row")
    browser.click("#filter select[name=status] option[value='']")
    browser.type("#filter input[type=search]", "W1")
    browser.wait(lambda: len(browser.all("#rows tbody tr")) == 11, "w1 and w10 to w19")
    browser.driver.refresh()  # the choice is in the address
    browser.wait(lambda: len(browser.all("#rows tbody tr")) == 11, "the same rows")
    assert browser.find("#filter input[type=search]").get_attribute("value") == "W1"
    assert inert(browser)

    browser.click("#rows tbody a")
    browser.wait(lambda: browser.text("#status") == "PASS", "the row")
    sections = browser.texts("h2")
    assert sections[:3] == ["Variables", "Prompt", "Reply (ended by stop)"]
    assert {"Verdict", "Calls"} <= {*sections}
    assert HOSTILE.partition(" \u202e")[0] in browser.all("pre")[1].text
    browser.find("a[rel=next]").send_keys(Keys.ENTER)
    browser.wait(lambda: browser.text("h1").startswith("row 2 ("), "the next row")
    assert browser.text("#status") == "FAIL"
    assert inert(browser)
    names = {name for role, name in browser.roles() if role in {"link", "button"}}
    assert {"Previous", "Next", "runs"} <= names
    assert "" not in names


def test_a_run_is_paused_retuned_stopped_and_cancelled_from_its_page(
    machine: Machine, browser: Browser
) -> None:
    """Each time the run itself reports it, and the page shows it."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        silent = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        process, name = machine.run("steered", 240, 6, silent)
        browser.wait(lambda: name in latest(machine.folder), "the new run")
        browser.open(machine.view)
        open_latest(browser, name)
        steer(browser, machine.folder)
        assert process.wait(60) != 0
    browser.wait(lambda: browser.text(".lane h3 .badge") == "ended", "the lane as it was")
    assert not browser.all("#stopping")
    browser.wait(lambda: all_rows(browser) == 480, "all rows, most of them not run")
    browser.click("#rows .pager a")
    browser.wait(lambda: browser.text("#rows tbody td").strip() == "50", "the second page")
    choose_while_rows_are_reloaded(browser)
    assert inert(browser)

    assert not browser.find("#lost").is_displayed()
    machine.server.send_signal(signal.SIGTERM)
    assert machine.server.wait(60) == 0
    browser.js("htmx.trigger(document.body, 'rows')")
    browser.wait(lambda: browser.find("#lost").is_displayed(), "no server answers")
    assert browser.text("#total") == "1 row"  # the shown row is still there
    assert {*re.findall(r"net::([A-Z_]+)", "".join(browser.errors()))} == {"ERR_CONNECTION_REFUSED"}


def all_rows(browser: Browser) -> int:
    """The number of rows on the page: listed rows, and rows that were not run."""
    shown = browser.text("#total"), browser.text("#unlisted") if browser.all("#unlisted") else ""
    return sum(int(found[0]) for one in shown if (found := re.search(r"\d+", one)) is not None)


def choose_while_rows_are_reloaded(browser: Browser) -> None:
    """A slow response to an earlier request does not replace the latest one."""
    browser.js(
        """
        const real = window.fetch;
        window.fetch = async (url, how) => {
          try {
            const reply = await real(url, how);
            if (!url.includes("status=")) await new Promise((done) => setTimeout(done, 400));
            return reply;
          } finally {
            window.answered = (window.answered ?? 0) + 1;
          }
        };
        htmx.trigger(document.body, "rows");
        """
    )
    browser.click("#filter select[name=status] option[value=fail]")
    browser.wait(lambda: browser.text("#total") == "1 row", "the failed row")
    browser.js("htmx.trigger(document.body, 'rows')")
    browser.wait(lambda: browser.js("return window.answered") >= 3, "all answers")
    assert browser.text("#total") == "1 row"
    assert "status=fail" in browser.driver.current_url


def steer(browser: Browser, folder: Path) -> None:
    """Every button of a run's page, while it runs."""
    browser.wait(lambda: browser.all(".lane"), "the lane")

    browser.click(".lane details summary")
    browser.type(".lane input[name=maxConcurrency]", "2")
    browser.type(".lane input[name=rpm]", "5000")
    browser.press(Keys.ENTER)
    browser.wait(lambda: "of 2 in flight" in browser.text(".lane .flight"), "another width")
    lane, _ = standing(folder)["lanes"]
    assert (lane["maxConcurrency"], lane["rpm"]) == (2, 5000)
    assert browser.text("#message") == "lane retuned"
    assert (
        browser.find(".lane details").get_attribute("open") is not None
    )  # updates do not close it

    browser.click(".lane form button")
    browser.wait(
        lambda: "0 in flight, no further starts" in browser.text(".lane .flight"), "a pause"
    )
    assert browser.text(".lane h3 .badge") == "paused"
    paused = standing(folder)
    assert (paused["lanes"][0]["mood"], paused["lanes"][0]["inFlight"]) == ("paused", 0)
    assert standing(folder)["lanes"][0]["calls"] == paused["lanes"][0]["calls"]
    button = browser.find(".lane form button")
    assert button.text == "Resume"
    button.send_keys(Keys.ENTER)
    browser.wait(lambda: browser.text(".lane h3 .badge") == "open", "it goes on")

    browser.click("#stopping button")
    assert "Stop this run?" in browser.driver.switch_to.alert.text
    browser.driver.switch_to.alert.accept()
    browser.wait(lambda: browser.text("#stopping button") == "Cancel", "calls that go on")
    assert browser.text("#state") == "stopping"
    assert standing(folder)["lanes"][1]["inFlight"] > 0  # of the provider that never replies
    browser.click("#stopping button")
    browser.driver.switch_to.alert.accept()
    browser.wait(lambda: browser.text("#state") == "interrupted", "the end")
