"""Runs that are killed, interrupted and cut off at random instants, and resumed until they are over.

Nothing that was paid for is lost but what was in flight, nothing that is recorded is asked again, and the
rows are those of a run that nobody disturbed. `TRIOEVAL_PROFILE=deep` makes the long form of it.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, TypeAlias

import attrs
import pytest
from chaos import (
    Audit,
    Provider,
    cut_log,
    documents_of,
    lines_of,
    open_provider,
    places_of,
    rows_of,
    start_run,
    wait_replies,
)

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.slow, pytest.mark.network, pytest.mark.timeout(1200)]

DEEP = os.environ.get("TRIOEVAL_PROFILE") == "deep"
KILLS = 30 if DEEP else 4
REPLIES = 550
"""About what a run of the suite is answered, failures among it."""
START = 1.0
"""Seconds, about, in which a process loads the suite and asks the first question."""

FAULTS = ("--failure-rate", "0.02", "--disconnect-rate", "0.02", "--throttle-rate", "0.02")
FLAGS = ("--latency", "0.02", "--jitter", "1")
OUTPUTS = ("-o", "out.json", "-o", "out.jsonl")

IN_FLIGHT = 0.25
"""Seconds before a kill in which a reply may have been on its way to the disk."""

Process: TypeAlias = "subprocess.Popen[str]"
End: TypeAlias = Callable[[Process, Provider, Random], float]
"""Ends an execution, and returns when it did."""


@attrs.frozen
class Chase:
    """A run that was resumed until it was over."""

    folder: Path
    audit: Audit
    ends: int
    """How many of its executions did not come to their end."""
    said: list[str]
    """Their last lines."""


def chase(
    folder: Path,
    end: End,
    *,
    times: int,
    seed: int = 0,
    more: tuple[str, ...] = (),
    faults: tuple[str, ...] = FAULTS,
    cuts_power: bool = False,
) -> Chase:
    """Begin a run, end it so many times unless it is over before, and let it come to its end."""
    random = Random(seed)  # noqa: S311 - repeatable instants, nothing to keep secret
    ends, lasts = 0, []
    with open_provider(folder, *FLAGS, *faults, "--seed", str(seed)) as provider:
        audit = Audit(provider, folder, keeps_all=not cuts_power)
        for left in range(times, -1, -1):
            command = ["resume"] if audit.recorded.run else ["run", "suite.json"]
            process = start_run(folder, *command, "--no-cache", *OUTPUTS, *(more if left else ()))
            ended_at = end(process, provider, random) if left else time.time()
            _, said = process.communicate(timeout=120)
            assert "Traceback" not in said
            lasts.append(said.strip().rpartition("\n")[2])
            if cuts_power and left:
                cut_log(folder, random)
            audit.look(ended_at)
            if process.returncode == 100 and "continue with" not in said:
                break
            ends += 1
        assert process.returncode == 100, said
    print(audit)
    return Chase(folder, audit, ends, lasts)


def check_same(folder: Path, undisturbed: Path) -> None:
    """A run tells what one tells that nobody disturbed: rows, in order, each once; totals of all columns."""
    rows = rows_of(folder)
    assert len({*places_of(rows)}) == len(rows)
    assert rows == rows_of(undisturbed)
    assert rows == lines_of(folder)
    assert documents_of(folder) == documents_of(undisturbed)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that nobody disturbed, at a provider without faults."""
    folder = tmp_path_factory.mktemp("undisturbed")
    run = chase(folder, lambda *_: 0.0, times=0, faults=())
    assert (run.ends, run.audit.lost_ages) == (0, [])
    return folder


def kill(process: Process, provider: Provider, random: Random) -> float:
    """No warning, at any instant: while it loads, opens the store, asks, or writes its results."""
    if random.random() < 0.25:
        time.sleep(random.uniform(0, 1.5 * START))  # the instants are what is varied
    else:
        wait_replies(process, provider, random.randint(1, REPLIES // KILLS))
        time.sleep(random.uniform(0, 0.03))
    process.kill()
    return time.time()


@pytest.mark.parametrize("seed", range(3 if DEEP else 1))
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_never_was(
    tmp_path: Path, undisturbed: Path, seed: int
) -> None:
    """ONCE, RESUME: with failures, refusals, broken connections, judges and conversations."""
    run = chase(tmp_path, kill, times=KILLS, seed=seed)
    assert run.ends > KILLS // 2
    assert run.audit.asked_again == []
    assert max(run.audit.lost_ages, default=0.0) < IN_FLIGHT
    check_same(tmp_path, undisturbed)


def test_a_power_cut_loses_no_more_than_the_last_writes(tmp_path: Path, undisturbed: Path) -> None:
    """Whatever part of the log the disk had, it opens, is intact, and goes on from there."""
    run = chase(tmp_path, kill, times=KILLS // 2, seed=99, cuts_power=True)
    assert run.ends > 0
    assert run.audit.asked_again == []
    check_same(tmp_path, undisturbed)


def interrupt(process: Process, provider: Provider, random: Random) -> float:
    """Ctrl-C, or what a service manager sends, once it asks: it finishes what it has begun."""
    wait_replies(process, provider, random.randint(1, REPLIES // KILLS))
    process.send_signal(random.choice([signal.SIGINT, signal.SIGTERM, signal.SIGHUP]))
    return time.time()


def interrupt_twice(process: Process, provider: Provider, random: Random) -> float:
    """Ctrl-C, and again before it is over."""
    interrupt(process, provider, random)
    time.sleep(random.uniform(0, 0.03))
    process.send_signal(signal.SIGINT)
    return time.time()


def leave_alone(process: Process, provider: Provider, _random: Random) -> float:
    """It has a deadline of its own; then comes the last that was answered."""
    process.wait(timeout=60)
    return provider.wait_idle()[-1].utc_at


@pytest.mark.parametrize(
    ("end", "more", "in_flight"),
    [
        pytest.param(interrupt, (), 0.0, id="drained"),
        pytest.param(interrupt_twice, (), IN_FLIGHT, id="cancelled"),
        pytest.param(leave_alone, ("--max-time", "1.5"), IN_FLIGHT, id="deadline"),
    ],
)
def test_a_run_that_is_cut_off_tells_what_it_has_and_goes_on(
    tmp_path: Path, undisturbed: Path, end: End, more: tuple[str, ...], in_flight: float
) -> None:
    """What was drained is all recorded; what was cancelled was in flight."""
    run = chase(tmp_path, end, times=KILLS // 2, more=more)
    assert run.ends > 0
    assert all("trioeval resume" in said for said in run.said[:-1])
    assert run.audit.asked_again == []
    assert all(age < in_flight for age in run.audit.lost_ages)
    assert in_flight or not run.audit.lost_ages
    check_same(tmp_path, undisturbed)
