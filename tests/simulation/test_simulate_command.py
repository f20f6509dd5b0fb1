"""`trioeval simulate`: what it prints, its answers and exit codes, its sources, and its errors."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from trioeval.cli.app import run_command_line
from trioeval.cli.commands.simulate import simulate_command
from trioeval.cli.flags import SimulateFlags
from trioeval.cli.interrupts import Interrupts

SUITE: dict[str, Any] = {
    "providers": [
        {
            "id": "openai:chat:gpt-4.1-mini",
            "label": "mini",
            "config": {"apiKey": "sk-unused-0123456789"},
            "lane": {"maxConcurrency": 4},
        }
    ],
    "prompts": ["say {{word}}"],
    "tests": [{"vars": {"word": "a"}}],
    "evaluateOptions": {"repeat": 40},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(SUITE)
    return tmp_path


def write(suite: dict[str, Any]) -> None:
    Path("s.json").write_text(json.dumps(suite))


def recorded(*lines: dict[str, Any]) -> None:
    Path("r.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.usefixtures("folder")
def test_a_forecast_shows_everything(capfd: pytest.CaptureFixture[str]) -> None:
    """Makespan, cost, refusals, waits, answers, the chart, the table and a recommendation."""
    flags = ["--latency", "0.8±0.3", "--limit-in-flight", "2", "--deadline", "1h", "--budget", "5"]
    assert run_command_line(["simulate", "s.json", *flags]) == 0
    out = capfd.readouterr().out
    assert out.startswith("40 rows, ")
    for line in (
        r"  mini: given figures, mean 0\.8 s and 15\d tokens",
        r"makespan   1\d\.\d s.*",
        r"cost       \$0\.0\d+",
        r"429s       [1-9]\d* of \d+ requests \(.*%\)",
        r"deadline   1 h 0 min: fits, 59 min \d+ s to spare",
        r"budget     \$5\.00: fits, \$4\.99 to spare",
        r"lanes over time, 0\.2\d+ s a column",
        r" +x.* 429",
        r"as it is +1\d.*",
        r"2 keys .*",
        r"recommendation: with another account: 2 keys takes \d+% less time",
    ):
        assert re.search(rf"^{line}$", out, re.MULTILINE), line


@pytest.mark.usefixtures("folder")
def test_equal_seeds_give_equal_json(capfd: pytest.CaptureFixture[str]) -> None:
    """`--json` has all figures; another seed has others."""
    command = ["simulate", "s.json", "--latency", "1±0.5", "--json", "--no-compare"]
    found = []
    for seed in ("1", "1", "2"):
        assert run_command_line([*command, "--seed", seed]) == 0
        found.append(json.loads(capfd.readouterr().out))
    assert found[0] == found[1] != found[2]
    assert found[0]["rows"] == found[0]["done"] == found[0]["requests"] == 40
    assert found[0]["makespanS"] == pytest.approx(10, rel=0.1)
    assert found[0]["alternatives"] == []
    (lane,) = found[0]["lanes"].values()
    assert lane["maxConcurrency"] == 4


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ("--deadline 5s", "deadline   5 s: does not fit, 15.0 s too long"),
        ("--budget 0.001", "budget     $0.0010: does not fit, "),
    ],
)
def test_a_run_that_does_not_fit_fails(
    flags: str, line: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The exit code is 100, and a setting with which it would fit is named."""
    command = ["simulate", "s.json", "--latency", "2", *flags.split(), "--no-compare"]
    assert run_command_line(command) == 100
    assert line in capfd.readouterr().out


@pytest.mark.usefixtures("folder")
def test_a_setting_with_which_it_fits_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    """The smallest change comes first."""
    assert run_command_line(["simulate", "s.json", "--latency", "2", "--deadline", "11s"]) == 100
    assert "too long; it fits with maxConcurrency 8\n" in capfd.readouterr().out


@pytest.mark.usefixtures("folder")
def test_a_recording_is_a_source(capfd: pytest.CaptureFixture[str]) -> None:
    """Latency, tokens, cost and failures are those of its calls."""
    usage = {"prompt": 10, "completion": 5, "total": 15}
    good = {"prompt": "x", "output": "y", "provider": "mini", "usage": usage, "cost": 0.01}
    bad = {"prompt": "x", "error": {"kind": "server", "message": "no"}, "provider": "mini"}
    recorded(*(good | {"latency_ms": 500} for _ in range(3)), bad | {"latency_ms": 5})
    command = ["simulate", "s.json", "--recording", "r.jsonl", "--json", "--no-compare"]
    assert run_command_line(command) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["providers"]["mini"] == {
        "source": "3 calls of r.jsonl",
        "meanLatencyS": 0.5,
        "meanTokens": 15,
        "failureShare": 0.25,
        "refusalShare": 0,
    }
    assert found["costUsd"] == pytest.approx(0.4)
    assert found["failedRequests"] > 0


@pytest.mark.usefixtures("folder")
def test_a_stored_run_is_a_source(capfd: pytest.CaptureFixture[str]) -> None:
    """The calls of the store are read; providers that it lacks use those of all others, with a note."""
    lines = [{"prompt": "say a", "output": "y", "latency_ms": 20, "provider": "mini"}]
    recorded(*lines)
    assert run_command_line(["s.json", "--replay", "r.jsonl", "-q", "--no-table"]) == 0
    write({**SUITE, "providers": [*SUITE["providers"], {**SUITE["providers"][0], "label": "b"}]})
    capfd.readouterr()
    assert run_command_line(["simulate", "s.json", "--from", "latest", "--no-compare"]) == 0
    out = capfd.readouterr().out
    assert re.search(r"^  mini: 40 calls of run \S+, mean 0\.0\d+ s and ", out, re.MULTILINE)
    assert "note: no calls of b are known: those of all providers are used\n" in out


@pytest.mark.usefixtures("folder")
def test_a_provider_may_have_its_own_latency(capfd: pytest.CaptureFixture[str]) -> None:
    """A named provider overrides what holds for all."""
    write({**SUITE, "providers": [*SUITE["providers"], "echo"]})
    command = ["simulate", "s.json", "--latency", "9", "--latency", "mini=0.5", "--no-compare"]
    assert run_command_line([*command, "--limit-rpm", "mini=1000"]) == 0
    out = capfd.readouterr().out
    assert "  mini: given figures, mean 0.5 s" in out
    assert "  echo: instant, mean 0 s and 0 tokens\n" in out


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "the latency of mini is not known: pass --from RUN, --recording FILE or --latency"),
        ("--latency fast", "--latency must be a number such as 0.8 or 0.8±0.3, got 'fast'"),
        ("--latency x=1", "--latency names 'x'; the providers are mini"),
        ("--latency 1 --limit-rpm 0", "--limit-rpm must be a whole number of at least 1, got '0'"),
        ("--latency 1 --limit-tpm x=5", "--limit-tpm names 'x'; the providers are mini"),
        ("--latency 1 --limit-burst 5", "the provider's burst needs its rpm"),
        ("--latency 1 --deadline soon", "--deadline must be a duration such as"),
        ("--from latest --recording r", "--from and --recording exclude each other"),
        ("--from latest", "no database of runs"),
        ("--recording r.jsonl", "the recording cannot be read: No such file"),
        ("--latency 1 --task x", "the suite has no task x"),
    ],
)
def test_a_wrong_flag_is_one_error(
    flags: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The message says what would be right; nothing is printed on stdout."""
    assert run_command_line(["simulate", "s.json", *flags.split()]) == 2
    found = capfd.readouterr()
    assert message in found.err
    assert len(found.err.splitlines()) == 1
    assert not found.out


@pytest.mark.usefixtures("folder")
def test_tasks_that_cannot_be_simulated_are_named(capfd: pytest.CaptureFixture[str]) -> None:
    """Each of them, with its place in the file; other tasks can be chosen."""
    tests = {"prompts": SUITE["prompts"], "tests": SUITE["tests"]}
    task = {"id": "main", "type": "prompt_eval", **tests}
    rows = {"id": "rows", **tests, "type": "prompt_eval", "tests": {"fromTask": "main"}}
    write({"providers": SUITE["providers"], "tasks": [task, {**rows, "dependsOn": ["main"]}]})
    assert run_command_line(["simulate", "s.json", "--latency", "1"]) == 2
    message = "$.tasks[1]: its tests are the rows of task main, whose number only a run shows\n"
    assert message in capfd.readouterr().err
    assert run_command_line(["simulate", "s.json", "--latency", "1", "--task", "main"]) == 0


@pytest.mark.usefixtures("folder")
def test_agents_need_their_numbers_of_calls(capfd: pytest.CaptureFixture[str]) -> None:
    """The message names the task and the flag, which makes each case a chain of so many calls."""
    task = {"id": "fix", "type": "agent", "prompts": ["fix it"], "tests": [{"vars": {"x": "1"}}]}
    write({"providers": SUITE["providers"], "tasks": [task]})
    command = ["simulate", "s.json", "--latency", "2", "--no-compare"]
    assert run_command_line(command) == 2
    message = "the number of calls of mini for each case of task fix is not known: pass --from RUN"
    assert message in capfd.readouterr().err
    assert run_command_line([*command, "--agent-calls", "6"]) == 0
    out = capfd.readouterr().out
    assert out.startswith("1 row, 6 requests on 1 lane; ")
    assert "makespan   12.0 s\n" in out


@pytest.mark.usefixtures("folder")
def test_conversations_have_all_of_their_turns(capfd: pytest.CaptureFixture[str]) -> None:
    """The real number depends on replies, so the forecast is an upper bound, and a note says so."""
    config = {"userProvider": "echo", "instructions": "Ask for help.", "maxTurns": 3}
    user = {"id": "promptfoo:simulated-user", "config": config}
    write({**SUITE, "defaultTest": {"provider": user}})
    assert run_command_line(["simulate", "s.json", "--latency", "1", "--no-compare"]) == 0
    note = "note: conversations with simulated users have all of their turns (maxTurns)"
    assert note in capfd.readouterr().out


@pytest.mark.usefixtures("folder")
def test_a_signal_ends_a_simulation(capfd: pytest.CaptureFixture[str]) -> None:
    """Nothing of the forecast is printed, and the exit code is that of the signal."""
    interrupts = Interrupts(received=[signal.SIGTERM])
    assert simulate_command(Path("s.json"), SimulateFlags(latency=("1",)), interrupts) == 143
    found = capfd.readouterr()
    assert found.err == "interrupted before it finished; exit 143\n"
    assert not found.out
