"""Settings and fixtures that every test shares."""

import gc
import os
import re
import signal
import sys
import time
from collections import Counter
from contextlib import chdir
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from browser import Browser
    from distributed import LocalCluster

# The output of runs is compared, so it must be the same in a step of GitHub Actions.
for _name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
    os.environ.pop(_name, None)

# Hundreds of tests start programs of ours; each would be compiled anew, which takes longer than it runs.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# A shell starts background processes with SIGINT ignored, and children inherit that: programs that tests
# interrupt would never receive it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Drawing whole Trio runs is slow by hypothesis' standards; checking them is not.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("quick", _COMMON, max_examples=200)
settings.register_profile(
    "mutants",  # which law fails matters, not the smallest example of it
    _COMMON,
    max_examples=400,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.register_profile("deep", _COMMON, max_examples=20_000)
settings.load_profile(os.environ.get("TRIOEVAL_PROFILE", "quick"))


_ALL_SLOW = re.compile(r"^pytestmark = (\[[^\]]*)?pytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip modules without a selected test: each process of pytest imports all others, with their SDKs."""
    if not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    selected = config.getoption("markexpr")
    text = collection_path.read_text(encoding="utf-8")
    if selected == "slow":
        return "slow" not in text or None
    return (selected.startswith("not slow") and _ALL_SLOW.search(text) is not None) or None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> "Generator[None, object, object]":
    """Collect without garbage collections, and exempt the thousands of tests from those that follow."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add the kind to reports of attacks, also to those from other processes."""
    for item in items:
        if (mark := item.get_closest_marker("attack")) is not None:
            item.user_properties.append(("attack", mark.args[0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the number of attempted attacks of each kind, and of those that were withstood."""
    tried: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            for name, kind in getattr(
                report, "user_properties", ()
            ):  # a module that fails to import has none
                if name == "attack" and (report.when == "call" or outcome == "error"):
                    tried[str(kind)] += 1
                    held[str(kind)] += outcome == "passed"
    if tried:
        terminalreporter.section("attacks: tried, held")
        for kind in sorted(tried):
            terminalreporter.write_line(f"{tried[kind]:6} {held[kind]:6}  {kind}")
        terminalreporter.write_line(f"{tried.total():6} {held.total():6}  in all")


@pytest.fixture(scope="session", autouse=True)
def _runtime_folder() -> "Iterator[None]":
    """Use a separate runtime folder, so that no test sees or controls a run of the user."""
    with TemporaryDirectory(prefix="te-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture(scope="session")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[LocalCluster]":
    """Provide two worker processes to all tests that need not start them themselves."""
    from clusters import local_cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCALEOUT_TEST_KEY", "k")
        with chdir(tmp_path_factory.mktemp("cluster")), local_cluster(2) as started:
            yield started


@pytest.fixture
def cluster(two_workers: "LocalCluster") -> "LocalCluster":
    """Provide the two worker processes; one that another test has killed is started again."""
    scheduler = two_workers.scheduler
    assert scheduler is not None
    ends_at = time.monotonic() + 60
    while len(scheduler.workers) < 2:
        assert time.monotonic() < ends_at, "a killed worker was not started again"
        time.sleep(0.02)
    return two_workers


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Browser]":
    """Provide a browser for all tests of a module; most of them need `browser`."""
    from browser import missing_browser, open_browser

    if (missing := missing_browser()) is not None:
        pytest.skip(f"needs a browser; {missing}")
    with open_browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def browser(chromium: "Browser") -> "Iterator[Browser]":
    """Provide the browser of the module; the test fails if the console of a page has an error."""
    chromium.errors()  # those of the previous test
    yield chromium
    assert chromium.errors() == []
