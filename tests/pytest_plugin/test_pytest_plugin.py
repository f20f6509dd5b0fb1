"""Suites as tests of pytest: real sessions and a real server that counts requests.

Sessions run in this process, where everything is imported already, except interrupted ones and those with
workers.
"""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import attrs
import pytest
from _pytest.pytester import SysModulesSnapshot
from hostile import SHORT, assert_inert_log, assert_inert_terminal, assert_inert_xml, hostile_suite
from server_process import fake_provider

from trioeval.store.reader import read_store

pytestmark = [pytest.mark.slow, pytest.mark.network]
pytest_plugins = ["pytester"]

UNCACHED = ("-o", "trioeval_cache=off")


@pytest.fixture(autouse=True)
def libraries_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A library that a session here is the first to import stays imported after the session.

    Imported again by later tests of this process, its exceptions would be other classes than those which
    libraries that had been there before know.
    """
    own, restore = str(tmp_path_factory.getbasetemp()), SysModulesSnapshot.restore

    def restore_all_but_libraries(self: SysModulesSnapshot) -> None:
        libraries = {
            name: module
            for name, module in list(sys.modules.items())
            if not str(getattr(module, "__dict__", {}).get("__file__")).startswith(own)
        }
        restore(self)
        for name, module in libraries.items():
            sys.modules.setdefault(name, module)

    monkeypatch.setattr(SysModulesSnapshot, "restore", restore_all_but_libraries)


@attrs.frozen
class Provider:
    """A fake provider in its own process."""

    url: str
    root: str

    def stats(self) -> Mapping[str, Any]:
        with urllib.request.urlopen(f"{self.root}/stats") as reply:
            found: dict[str, Any] = json.load(reply)
            return found

    def reset(self) -> None:
        urllib.request.urlopen(f"{self.root}/reset", data=b"").close()

    def wait_requests(self, count: int) -> None:
        """Wait until it has got this many requests."""
        while self.stats()["requests"] < count:
            time.sleep(0.02)

    def suite(self, words: str, *, width: int = 8, **more: Any) -> str:
        """Return a suite with a row for each word; rows of words with an x fail."""
        entry = {
            "id": "openai:chat:fake",
            "label": "fake",
            "config": {"apiBaseUrl": self.url, "apiKey": "k"},
            "lane": {"maxConcurrency": width},
        }
        tests = [{"vars": {"word": word}} for word in words.split()]
        return json.dumps(
            {
                "providers": [entry],
                "prompts": ["say {{word}}"],
                "defaultTest": {"assert": [{"type": "not-contains", "value": "x"}]},
                "tests": tests,
                **more,
            }
        )


@pytest.fixture(scope="module")
def server() -> Iterator[Provider]:
    with fake_provider("--latency", "0.1") as url:
        yield Provider(url, url.removesuffix("/v1"))


@pytest.fixture
def provider(server: Provider) -> Provider:
    server.reset()
    return server


@pytest.fixture(autouse=True)
def _alone(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings of this session do not affect the tested ones."""
    for name in [*os.environ]:
        if name.startswith(("TRIOEVAL_", "PROMPTFOO_", "PYTEST_", "COV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "140")
    # What these sessions do not need would take most of their time.
    unneeded = ("hypothesispytest", "anyio", "timeout")
    plugins = " ".join(f"-p no:{name}" for name in unneeded)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"--assert=plain {plugins}")
    monkeypatch.setenv("TMPDIR", str(pytester.path))
    monkeypatch.setattr(tempfile, "tempdir", str(pytester.path))


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("trioeval-*")]


def test_rows_are_items_that_end_as_the_rows_do(
    pytester: pytest.Pytester, provider: Provider
) -> None:
    """Failing rows and errors have their reasons without a traceback; rows run concurrently."""
    pytester.makefile(
        ".trioeval.json",
        words=provider.suite("a b\u202e d x\u001b[31mx y", evaluateOptions={"repeat": 2}),
    )
    pytester.makefile(
        ".trioeval.yaml",
        tasks="""
        providers: [echo]
        tasks:
          - id: first
            type: prompt_eval
            prompts: ["{{a}}"]
            tests:
              - {description: unknown, vars: {b: 1}}
              - {description: "odd :: name", vars: {a: 1}}
          - id: later
            type: prompt_eval
            dependsOn: first
            prompts: ["{{a}}"]
            tests: [{vars: {a: 1}}]
          - id: answers
            type: prompt_eval
            prompts: ["{{a}}"]
            tests: [{vars: {a: x}}, {vars: {a: y}}]
          - id: checked
            type: prompt_eval
            prompts: ["{{b}}"]
            tests: {fromTask: answers, vars: {b: output}}
            defaultTest: {assert: [{type: equals, value: x}]}
        evaluateOptions: {strictVariables: true}
        """,
    )
    pytester.makepyfile(test_plain="def test_plain():\n    pass\n")
    done = pytester.runpytest_inprocess("-ra", "--junitxml=out.xml", "-o", "trio_mode=true")
    done.assert_outcomes(passed=12, failed=4, skipped=1)
    text = done.stdout.str()
    assert "\u202e" not in text
    assert "Traceback" not in text
    assert "pytest_support" not in text
    done.stdout.fnmatch_lines(
        [
            "1 of 2 rows of checked did not pass",
            "row 1 (*), echo: the output does not equal*",
            'the output contains "x"',
            "prompt:",
            "    say x [[]31mx",
            "output:",
            "SKIPPED [[]1[]] tasks.trioeval.yaml:*: *first*",
            "FAILED tasks.trioeval.yaml::first: unknown[[]echo[]] - Failed: no verdict: *a*",
            "FAILED tasks.trioeval.yaml::checked - *",
            'FAILED words.trioeval.json::word:x [[]31mx[[]fake[]] - Failed: the output contains "x"*',
            "FAILED words.trioeval.json::word:x [[]31mx[[]fake-repeat 2[]] - *",
        ],
        consecutive=False,
    )
    stats = provider.stats()
    assert stats["requests"] == 10
    assert 2 <= stats["max_in_flight"] <= 8  # all eight if the machine is fast enough
    cases = ET.parse(pytester.path / "out.xml").iter("testcase")  # noqa: S314 - our own
    told = {
        case.get("name"): {one.get("name"): one.get("value") for one in case.iter("property")}
        for case in cases
    }
    assert told["word:a[fake]"].keys() >= {"provider", "score", "latency_ms", "tokens"}
    assert "first: odd : name[echo]" in told
    assert left_behind(pytester.path) == []


def test_only_what_is_selected_is_asked_for_and_paid_for_once(
    pytester: pytest.Pytester, provider: Provider
) -> None:
    """Collecting makes no calls; deselected rows are not run; cached replies are not paid for again."""
    pytester.makefile(".trioeval.json", words=provider.suite("a b x"))
    pytester.makefile(
        ".trioeval.yaml",
        bad="providers: [echo]\npromts: [a]\ntests: [{assert: [{type: contians}]}]",
    )
    done = pytester.runpytest_inprocess("--collect-only", "-q")
    done.stdout.fnmatch_lines(
        [
            "words.trioeval.json::word:a[[]fake[]]",
            'bad.trioeval.yaml:2:1: $.promts: "promts" is not a key here',
            "bad.trioeval.yaml:3:*contians*",
        ],
        consecutive=False,
    )
    assert "Traceback" not in done.stdout.str()
    assert provider.stats()["requests"] == 0
    (pytester.path / "bad.trioeval.yaml").unlink()
    done = pytester.runpytest_inprocess("-k", "not word:b", "-o", "trioeval_db=runs.db")
    done.assert_outcomes(passed=1, failed=1, deselected=1)
    assert provider.stats()["requests"] == 2
    with read_store(pytester.path / "runs.db") as reader:
        run = reader.run("latest")
        assert (run.state, run.passed, run.failed, run.expected) == ("finished", 1, 1, 2)
    names = [f"words.trioeval.json::word:{word}[fake]" for word in "bx"]
    pytester.runpytest_inprocess(*names).assert_outcomes(passed=1, failed=1)
    assert provider.stats()["requests"] == 3


@pytest.fixture
def unready(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Suites that lack a key, suites with other problems, and a test in Python."""
    for name in ("OPENAI_API_KEY", "OWN", "HUB_TOKEN", "HUB_URL"):
        monkeypatch.delenv(name, raising=False)

    def of(*providers: object) -> str:
        tests: list[object] = [{"description": name, "vars": {}} for name in ("one", "two")]
        return json.dumps({"providers": providers, "prompts": ["p"], "tests": tests})

    config = {"body": {"p": "{{prompt}}"}, "headers": {"x-token": "{{env.HUB_TOKEN}}"}}
    pytester.makefile(
        ".trioeval.json",
        good=of("echo"),
        key=of("echo", "openai:chat:some"),
        named=of({"id": "openai:chat:some", "config": {"apiKeyEnvar": "OWN"}}),
        token=of({"id": "http://127.0.0.1:1", "config": config}),
        url=of({"id": "http://{{env.HUB_URL}}/", "config": config}),
        both=of("ecko", "openai:chat:some"),
        text="no JSON",
    )
    pytester.makepyfile(test_plain="def test_plain():\n    pass\n")


@pytest.mark.usefixtures("unready")
def test_a_suite_that_cannot_run_does_not_stop_other_tests(pytester: pytest.Pytester) -> None:
    """Without a key its items are skipped, or fail if the user wants that; other problems are its error."""
    done = pytester.runpytest_inprocess("-ra")
    done.assert_outcomes(passed=3, skipped=8, errors=3)
    text = done.stdout.str()
    for line in (
        "SKIPPED [4] key.trioeval.json:1: openai:chat:some needs an API key: set OPENAI_API_KEY",
        "SKIPPED [2] named.trioeval.json:1: the environment variable OWN is not set",
        "SKIPPED [2] token.trioeval.json:1: the environment variable HUB_TOKEN is not set",
        "ERROR text.trioeval.json::suite - Failed: text.trioeval.json:1:1: $: not JSON",
        "url.trioeval.json:1:23: $.providers[0].id: the environment variable HUB_URL is not set",
        'both.trioeval.json:1:16: $.providers[0].id: unknown provider "ecko"',
        "$.providers[1].config.apiKey: openai:chat:some needs an API key",
    ):
        assert line in text
    assert "Traceback" not in text
    wanted = ("-o", "trioeval_missing_key=fail")
    done = pytester.runpytest_inprocess(*wanted, "key.trioeval.json", "-k", "one or plain")
    done.assert_outcomes(failed=2, deselected=2)
    done.stdout.fnmatch_lines(["openai:chat:some needs an API key: set OPENAI_API_KEY"])


@pytest.mark.usefixtures("unready")
def test_problems_are_shown_where_no_item_of_the_suite_runs(pytester: pytest.Pytester) -> None:
    """Problems are collection errors if items are only listed, or requested by name."""
    done = pytester.runpytest_inprocess("--collect-only", "-q", "key.trioeval.json")
    assert done.ret == pytest.ExitCode.OK
    done.stdout.fnmatch_lines(["key.trioeval.json::one[[]openai:chat:some[]]"])
    done = pytester.runpytest_inprocess("--collect-only", "-q")
    assert done.ret == pytest.ExitCode.INTERRUPTED
    done.stdout.fnmatch_lines(["text.trioeval.json:1:1: $: not JSON: expecting value"])
    done = pytester.runpytest_inprocess("text.trioeval.json::one[echo]")
    done.stdout.fnmatch_lines(["text.trioeval.json:1:1: $: not JSON: expecting value"])
    done = pytester.runpytest_inprocess("-o", "trioeval_missing_key=ignore", "key.trioeval.json")
    done.stdout.fnmatch_lines(["trioeval_missing_key must be skip or fail, got 'ignore'"])


def test_what_cannot_be_run_is_told_in_a_few_lines(pytester: pytest.Pytester) -> None:
    """Invalid files, settings and warnings are errors; a cache that cannot be written is a warning."""
    said = {"providers": ["echo"], "prompts": ["{{env.UNKNOWN}}"], "tests": [{"vars": {"a": 1}}]}
    unfiled = {**said, "commandLineOptions": {"envFile": "none.env"}}
    pytester.makefile(".trioeval.json", warns=json.dumps(said), unfiled=json.dumps(unfiled))
    done = pytester.runpytest_inprocess("-W", "error")
    done.stdout.fnmatch_lines(
        [
            "*unfiled.trioeval.json: envFile *none.env: cannot be read: *",
            "warns.trioeval.json:*the environment variable UNKNOWN is not set",
        ],
        consecutive=False,
    )
    assert "pytest_support" not in done.stdout.str()
    done = pytester.runpytest_inprocess("-o", "trioeval_max_concurrency=zero")
    done.stdout.fnmatch_lines(["trioeval_max_concurrency must be a whole number*"])
    assert "pytest_support" not in done.stdout.str()
    (pytester.path / "unfiled.trioeval.json").unlink()
    (pytester.path / "file").write_text("no folder")
    done = pytester.runpytest_inprocess("-W", "default", "-o", "trioeval_cache=file/c.db")
    done.assert_outcomes(passed=1, warnings=2)
    done.stdout.fnmatch_lines(["*PytestWarning: *file*cannot be created*"])


def test_nothing_in_a_row_is_more_than_text(pytester: pytest.Pytester) -> None:
    """Texts are inert in all output of pytest, for people, GitHub and files."""
    suite = hostile_suite(SHORT, "python:mine.py")
    pytester.makepyfile(
        mine="def call_api(prompt, options, context):\n    return {'output': prompt}"
    )
    failing = {"assert": [{"type": "equals", "value": "no"}]}
    pytester.makefile(".trioeval.json", all=json.dumps({**suite, "defaultTest": failing}))
    done = pytester.runpytest_inprocess("-v", "-rA", "--junitxml=out.xml", "--color=no")
    assert done.parseoutcomes()["failed"] >= len(SHORT)
    assert_inert_log(done.stdout.str())
    assert_inert_terminal(done.stdout.str())
    assert_inert_xml((pytester.path / "out.xml").read_text("utf-8"))


@pytest.mark.usefixtures("unready")
def test_workers_share_out_lanes(pytester: pytest.Pytester, provider: Provider) -> None:
    """All suites with a lane have one worker, and those with another lane another one."""
    for name in ("one", "two"):
        words = " ".join(f"{name}{n}" for n in range(12))
        pytester.makefile(".trioeval.json", **{name: provider.suite(words, width=3)})
    words = " ".join(f"three{n}" for n in range(12))
    other = provider.suite(words, width=2).replace("openai:chat:fake", "openai:chat:other")
    pytester.makefile(".trioeval.json", three=other)
    pytester.makepyfile(
        "import pytest\n@pytest.mark.parametrize('n', range(40))\ndef test(n): pass"
    )
    done = pytester.runpytest_inprocess("-n", "2", "-v", *UNCACHED)
    done.assert_outcomes(passed=12 * 3 + 40 + 3, skipped=8, errors=3)
    ran: dict[str, set[str]] = {}
    for worker, file in re.findall(
        r"^\[(gw\d)\] .* (\w+)\.trioeval\.json::", done.stdout.str(), re.MULTILINE
    ):
        ran.setdefault(file, set()).add(worker)
    assert ran["one"] == ran["two"]
    assert sorted([*ran["one"], *ran["three"]]) == ["gw0", "gw1"]
    stats = provider.stats()
    assert stats["requests"] == 36
    assert stats["max_in_flight"] <= 5
    assert left_behind(pytester.path) == []


def test_rows_that_are_spread_over_workers_are_paid_for_once(
    pytester: pytest.Pytester, provider: Provider
) -> None:
    """The first worker runs the rows of a file; the others read their results."""
    for name in ("one", "two"):
        words = " ".join(f"{name}{n}" for n in range(12))
        pytester.makefile(".trioeval.json", **{name: provider.suite(words)})
    done = pytester.runpytest_inprocess("-n", "2", "--dist", "worksteal", *UNCACHED)
    done.assert_outcomes(passed=24)
    assert provider.stats()["requests"] == 24
    assert left_behind(pytester.path) == []


def test_a_worker_that_dies_costs_what_was_under_way_and_no_more(
    pytester: pytest.Pytester, provider: Provider
) -> None:
    """The next worker continues the run and repeats no call; too many failures anywhere stop it."""
    words = "a b c d e f " + " ".join(f"x{n}" for n in range(60))
    pytester.makefile(".trioeval.json", words=provider.suite(words, width=1))
    pytester.makeconftest(
        f"""
        import json, os, threading, time, urllib.request

        def die():
            while True:
                with urllib.request.urlopen("{provider.root}/stats") as reply:
                    if json.load(reply)["requests"] >= 4:
                        os._exit(1)
                time.sleep(0.01)

        if os.environ.get("PYTEST_XDIST_WORKER") == "gw0":
            threading.Thread(target=die, daemon=True).start()
        """
    )
    done = pytester.runpytest_inprocess(
        "-n", "1", "--maxfail=2", "-o", "trioeval_db=runs.db", *UNCACHED
    )
    done.stdout.fnmatch_lines(["*worker 'gw0' crashed*", 'the output contains "x"'])
    with read_store(pytester.path / "runs.db") as reader:
        run = reader.run("latest")
    assert run.passed == 6
    assert 0 < run.failed < 60
    # The call under way when it died, and the one before it, if its reply was not on disk yet.
    assert provider.stats()["requests"] <= run.passed + run.failed + 2
    assert left_behind(pytester.path) == []


def test_an_interrupt_lets_rows_under_way_finish(
    pytester: pytest.Pytester, provider: Provider
) -> None:
    """Running rows are completed, as they are paid for, and cached for the next session."""
    words = " ".join(f"w{n}" for n in range(60))
    pytester.makefile(".trioeval.json", words=provider.suite(words, width=2))
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q"],
        cwd=pytester.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        provider.wait_requests(6)
        process.send_signal(signal.SIGINT)
        text = process.stdout.read()
        assert process.wait(30) == pytest.ExitCode.INTERRUPTED
    assert "running rows may finish" in text
    stats = provider.stats()
    assert (stats["disconnects"], stats["abandoned"], stats["in_flight"]) == (0, 0, 0)
    assert stats["requests"] < 60
    pytester.makefile(".trioeval.json", words=provider.suite(words, width=16))
    pytester.runpytest_inprocess("-q").assert_outcomes(passed=60)
    assert provider.stats()["requests"] == 60


def test_it_costs_next_to_nothing_where_no_suite_is_wanted(pytester: pytest.Pytester) -> None:
    """Nothing is imported, even if a suite is next to the tests."""
    pytester.makefile(".trioeval.json", words="no JSON")
    pytester.makepyfile(
        test_plain="""
        import sys

        def test_plain():
            ours = {name for name in sys.modules if name.startswith("trioeval")}
            assert ours == {"trioeval", *(f"trioeval.{own}" for own in ("_version", "lazy", "pytest_plugin"))}
        """
    )
    pytester.runpytest_subprocess("test_plain.py").assert_outcomes(passed=1)
