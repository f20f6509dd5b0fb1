"""Settings and fixtures that every test shares."""

import os
import signal
from collections import Counter
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from browser import Browser

# What runs print is compared: it is the same where the tests are run in a step of GitHub Actions.
for _name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "GITHUB_WORKSPACE"):
    os.environ.pop(_name, None)

# A shell starts what it runs in the background with SIGINT ignored, and children inherit that: programs that
# tests interrupt would never notice.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Whole Trio runs are slow to draw for hypothesis' taste, never slow to check.
_COMMON = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

settings.register_profile("quick", _COMMON, max_examples=200)
settings.register_profile(
    "mutants",  # which law dies matters, not the smallest example of it
    _COMMON,
    max_examples=400,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
)
settings.register_profile("deep", _COMMON, max_examples=20_000)
settings.load_profile(os.environ.get("TRIOEVAL_PROFILE", "quick"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the reports of attacks carry their kind, also those that come from other processes."""
    for item in items:
        if (mark := item.get_closest_marker("attack")) is not None:
            item.user_properties.append(("attack", mark.args[0]))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many attacks of each kind were tried, and how many held."""
    tried: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for outcome in ("passed", "failed", "error"):
        for report in terminalreporter.getreports(outcome):
            for name, kind in getattr(
                report, "user_properties", ()
            ):  # a module that breaks has none
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
    """Runs of tests listen where nobody else's do: no test sees, or steers, a run of who runs the tests."""
    with TemporaryDirectory(prefix="te-") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", folder)
        yield


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[Browser]":
    """A browser for all tests of a module; most of them want `browser`."""
    from browser import missing_browser, open_browser

    if (missing := missing_browser()) is not None:
        pytest.skip(f"needs a browser; {missing}")
    with open_browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture
def browser(chromium: "Browser") -> "Iterator[Browser]":
    """The browser of the module; a test of it fails if the console of a page told an error."""
    chromium.errors()  # those of the test before
    yield chromium
    assert chromium.errors() == []
