"""Runs that are killed, interrupted and cut off at random instants, and resumed until they finish.

Only calls in flight are lost, no recorded reply is requested again, and the rows are those of an
undisturbed run. The long form, of some minutes, prints its counts:

    TRIOEVAL_PROFILE=deep pytest tests/e2e/test_chaos.py -s -o faulthandler_timeout=0
"""

import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

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
REPLIES = 550
"""The approximate number of replies of a run of the suite, including failures."""
START = 1.0
"""The approximate seconds in which a process loads the suite and makes the first call."""
IN_FLIGHT = 1.0
"""Seconds before the end of an execution in which a reply may not have reached the disk yet, on an overloaded
machine; on others it is some milliseconds, as the output shows."""

FLAGS = ("--latency", "0.02", "--jitter", "1")
FAULTS = ("--failure-rate", "0.02", "--disconnect-rate", "0.02", "--throttle-rate", "0.02")
OUTPUTS = ("-o", "out.json", "-o", "out.jsonl")


@attrs.frozen
class Execution:
    """A running execution."""

    process: "subprocess.Popen[str]"
    provider: Provider
    folder: Path
    random: Random = attrs.field(repr=False)
    share: float
    """The share of the run that it may make, at most."""

    def wait(self) -> None:
        """Wait a random part of its share of the run."""
        wait_replies(self.process, self.provider, self.random.randint(1, int(REPLIES * self.share)))
        time.sleep(self.random.uniform(0, 0.03))  # the instants are what is varied


@attrs.frozen(kw_only=True)
class End:
    """A way to end an execution early."""

    strike: Callable[[Execution], float]
    """Ends an execution, and returns the instant from which it could no longer act as usual."""
    arguments: tuple[str, ...] = ()
    in_flight: float = IN_FLIGHT
    """Like the constant; 0 means that nothing may be lost."""
    keeps_all: bool = True
    """True if the disk keeps everything that was written."""
    names_command: bool = True
    """True if it can still name the command that continues the run."""


def kill(execution: Execution) -> float:
    """Kill it at any instant: while it loads, opens the store, calls providers, or writes its results."""
    if execution.random.random() < 0.25:
        time.sleep(execution.random.uniform(0, 1.5 * START))
    else:
        execution.wait()
    execution.process.kill()
    return time.time()


def cut_power(execution: Execution) -> float:
    """Kill it, and lose a part of what was written last."""
    at = kill(execution)
    execution.process.wait()
    cut_log(execution.folder, execution.random)
    return at


def interrupt(execution: Execution) -> float:
    """Interrupt it as Ctrl-C or a service manager does: it finishes running rows."""
    execution.wait()
    signals = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    execution.process.send_signal(execution.random.choice(signals))
    return time.time()


def interrupt_twice(execution: Execution) -> float:
    """Interrupt it, and again before it has ended."""
    interrupt(execution)
    time.sleep(execution.random.uniform(0, 0.03))
    execution.process.send_signal(signal.SIGINT)
    return time.time()


def await_deadline(execution: Execution) -> float:
    """Let it reach its own deadline, after which the last running row ends."""
    execution.process.wait(timeout=600)
    return execution.provider.wait_idle()[-1].utc_at


KILLED = End(strike=kill, names_command=False)
WITHOUT_POWER = End(strike=cut_power, in_flight=math.inf, keeps_all=False, names_command=False)
DRAINED = End(strike=interrupt, in_flight=0.0)
CANCELLED = End(strike=interrupt_twice)
TOO_LATE = End(strike=await_deadline, arguments=("--max-time", "0.4"))

CASES: dict[str, tuple[End, ...]] = (
    {
        **{f"killed {seed}": (KILLED,) * 30 for seed in range(3)},
        "without power": (WITHOUT_POWER,) * 30,
        "drained": (DRAINED,) * 15,
        "cancelled": (CANCELLED,) * 15,
        "too late": (TOO_LATE,) * 6,
        "mixed": (KILLED, DRAINED, CANCELLED, WITHOUT_POWER) * 5,
    }
    if DEEP
    else {
        "killed": (KILLED, WITHOUT_POWER, KILLED, KILLED),
        "warned": (DRAINED, CANCELLED, TOO_LATE),
    }
)


@attrs.define(eq=False)
class Stalls:
    """The longest pauses of a process of this machine, and of its disk."""

    longest: float = 0.0
    """Seconds."""


@contextmanager
def watch_stalls(folder: Path) -> Iterator[Stalls]:
    """Measure the duration of small steps that take no time on an idle machine."""
    stalls, over = Stalls(), threading.Event()

    def watch() -> None:
        with (folder / "beats").open("wb", buffering=0) as beats:
            while not over.is_set():
                began = time.monotonic()
                beats.write(b".")
                os.fsync(beats.fileno())
                over.wait(0.01)
                stalls.longest = max(stalls.longest, time.monotonic() - began - 0.01)

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield stalls
    finally:
        over.set()
        watching.join()


def chase(
    folder: Path, ends: Sequence[End], *, seed: int = 0, faults: tuple[str, ...] = FAULTS
) -> Audit:
    """Start a run, end it in all of these ways unless it finishes first, and let it finish."""
    random = Random(seed)  # noqa: S311 - repeatable instants, nothing to keep secret
    with (
        open_provider(folder, *FLAGS, *faults, "--seed", str(seed)) as provider,
        watch_stalls(folder) as stalls,
    ):
        audit = Audit(provider, folder)
        for end in (*ends, None):
            command = ["resume"] if audit.recorded.run else ["run", "suite.json"]
            arguments = end.arguments if end else ("--max-time", "600")
            process = start_run(folder, *command, "--no-cache", *OUTPUTS, *arguments)
            share = 0.9 / len(ends) if ends else 1.0
            ended_at = (
                end.strike(Execution(process, provider, folder, random, share)) if end else 0.0
            )
            _, stderr = process.communicate(timeout=600)
            assert "Traceback" not in stderr
            goes_on = "trioeval resume" in stderr.strip().rpartition("\n")[2]
            lost = audit.look(ended_at, keeps_all=end is None or end.keeps_all)
            if process.returncode == 100 and not goes_on:
                assert not lost
                break
            assert end is not None, stderr
            assert goes_on or not end.names_command or not audit.recorded.run, stderr
            # Neither the program nor the disk could do anything while the machine was paused.
            room = end.in_flight and end.in_flight + 2 * stalls.longest
            assert max(lost, default=0.0) <= room, str(audit)
            assert end.in_flight or not lost
        print(audit)
    assert audit.repeated == []
    return audit


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed run with a provider without failures."""
    folder = tmp_path_factory.mktemp("undisturbed")
    assert chase(folder, (), faults=()).executions == 1
    return folder


@pytest.mark.parametrize("name", CASES)
def test_a_run_that_is_ended_again_and_again_ends_as_if_it_never_was(
    tmp_path: Path, undisturbed: Path, name: str
) -> None:
    """ONCE, RESUME: with failures, refusals, broken connections, judges and conversations."""
    ends = CASES[name]
    audit = chase(tmp_path, ends, seed=sum(name.encode()))
    assert audit.executions > len(ends) // 2
    rows = rows_of(tmp_path)
    assert len({*places_of(rows)}) == len(rows)
    assert rows == rows_of(undisturbed)
    assert rows == lines_of(tmp_path)
    assert documents_of(tmp_path) == documents_of(undisturbed)
