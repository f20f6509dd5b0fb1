"""One-line mutants of the kernel, each of which some test must kill.

    python tests/mutants.py            all of them
    python tests/mutants.py width pace those whose name contains a word

Each mutant is applied to a copy of the package in a temporary folder, and the kernel's tests run against
that copy until the first failure. A mutant that survives is a hole in the laws; the exit code counts them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import attrs

ROOT = Path(__file__).parent.parent
TESTS = ("tests/property", "tests/kernel")


@attrs.frozen
class Mutant:
    """One change of one place."""

    name: str
    file: str
    """Below `trioeval/`."""
    old: str
    """Stands exactly once in the file."""
    new: str


MUTANTS = (
    Mutant(
        "burst off by one",
        "rates/pace.py",
        "(self.burst - 1) * self.period",
        "self.burst * self.period",
    ),
    Mutant(
        "pace not advanced",
        "rates/pace.py",
        "max(self.next_request_at, now) + self.period",
        "max(self.next_request_at, now)",
    ),
    Mutant(
        "pace forgets its past",
        "rates/pace.py",
        "max(self.next_request_at, now) + self.period",
        "now + self.period",
    ),
    Mutant("gap not kept", "rates/pace.py", "now + self.min_gap,", "self.next_gap_at,"),
    Mutant(
        "pace not taken",
        "kernel/lane.py",
        "self._pace = self._pace.take(now)",
        "self._pace.take(now)",
    ),
    Mutant(
        "newcomer ignores the pace",
        "kernel/lane.py",
        "        if self._paced_until(now) > now:",
        "        if False:",
    ),
    Mutant(
        "newcomer ignores the width",
        "kernel/lane.py",
        "self._limiter = trio.CapacityLimiter(self.spec.width)",
        "self._limiter = trio.CapacityLimiter(self.spec.width + 1)",
    ),
    Mutant(
        "newcomer passes those in line",
        "kernel/lane.py",
        "if self._turn.locked() and favourite is not job:",
        "if False:",
    ),
    Mutant(
        "favourite never ends",
        "kernel/lane.py",
        "        self._favourite = None\n        while True:",
        "        while True:",
    ),
    Mutant(
        "slot held while the pace is waited for",
        "kernel/lane.py",
        "                await trio.sleep_until(start_at)",
        "                self._limiter.acquire_on_behalf_of_nowait(self)\n"
        "                await trio.sleep_until(start_at)\n"
        "                self._limiter.release_on_behalf_of(self)",
    ),
    Mutant(
        "slot never given back",
        "kernel/lane.py",
        "        self._limiter.release_on_behalf_of(call)\n",
        "        pass\n",
    ),
    Mutant(
        "no news of a free slot",
        "kernel/lane.py",
        "            follower.notify()",
        "            pass",
    ),
    Mutant(
        "two leaders",
        "kernel/crew.py",
        "        if self._leading or self._live >= self.max_live:\n            return None",
        "        if self._live >= self.max_live:\n            return None",
    ),
    Mutant(
        "one live job too many",
        "kernel/crew.py",
        "        if self._live < self.max_live and",
        "        if self._live <= self.max_live and",
    ),
    Mutant(
        "jobs pass a closed gate",
        "kernel/crew.py",
        "self._live < self.max_live and self.running.lanes.gate.open and",
        "self._live < self.max_live and",
    ),
    Mutant(
        "the leader does not look at the gate again",
        "kernel/crew.py",
        "                    if gate.open:",
        "                    if True:",
    ),
    Mutant(
        "stop ignored by who stands in line",
        "kernel/crew.py",
        '        self._line.cancel("the run admits no new jobs")\n',
        "",
    ),
    Mutant(
        "stop ignored",
        "kernel/work.py",
        "return now < self.deadline and not self.stop.is_set()",
        "return now < self.deadline",
    ),
    Mutant(
        "jobs admitted at the deadline",
        "kernel/work.py",
        "return now < self.deadline and not",
        "return now <= self.deadline and not",
    ),
    Mutant(
        "calls started at the deadline",
        "kernel/calls.py",
        "        if now >= self._deadline:",
        "        if now > self._deadline:",
    ),
    Mutant(
        "timeout runs while waiting",
        "kernel/calls.py",
        "            self._scope.deadline = math.inf\n",
        "",
    ),
    Mutant(
        "timeout starts afresh after a wait",
        "kernel/calls.py",
        "self._left = self._scope.deadline - self._paused_at",
        "self._left = self.job.timeout",
    ),
    Mutant(
        "clock stands beside a call in flight",
        "kernel/calls.py",
        "if self._paused_at is None and not self._in_flight:",
        "if self._paused_at is None:",
    ),
    Mutant(
        "spent scope used again",
        "kernel/work.py",
        "while not scope.cancel_called:",
        "while True:",
    ),
    Mutant(
        "interrupted jobs not recorded",
        "kernel/work.py",
        "            running.record(Interrupted(*job_times, cut))\n",
        "",
    ),
    Mutant(
        "cancellation taken for a failure",
        "kernel/work.py",
        "    except Exception as error:  # noqa: BLE001 - whatever",
        "    except BaseException as error:  # noqa: BLE001 - whatever",
    ),
    Mutant(
        "out of order",
        "kernel/ledger.py",
        "        if index != self._next:",
        "        if False:",
    ),
    Mutant(
        "held outcomes forgotten",
        "kernel/ledger.py",
        "return self._held.pop(index, None) or NotRun(index, self.cut)",
        "return NotRun(index, self.cut)",
    ),
    Mutant(
        "one stretch at a time",
        "kernel/ledger.py",
        "            following = self._held.pop(self._next, None)",
        "            following = None",
    ),
    Mutant(
        "sink dies with the caller",
        "kernel/run.py",
        "        flushing.shield = True\n",
        "",
    ),
    Mutant(
        "shield without an end",
        "kernel/run.py",
        "        flushing.deadline = trio.current_time() + grace",
        "        pass",
    ),
    Mutant(
        "sink inside the deadline",
        "kernel/run.py",
        "        flushing = trio.CancelScope()",
        "        flushing = trio.CancelScope(deadline=deadline)",
    ),
    Mutant(
        "no deadline",
        "kernel/run.py",
        "        trio.CancelScope(deadline=deadline),",
        "        trio.CancelScope(),",
    ),
    Mutant(
        "serial jobs beside others",
        "kernel/gate.py",
        "                while self._parallel:\n                    await self._drained.park()\n",
        "",
    ),
    Mutant(
        "the gate stays closed",
        "kernel/gate.py",
        "            self._closed_out.unpark_all()",
        "            pass",
    ),
    Mutant(
        "serial jobs also in the main pass",
        "kernel/backlog.py",
        "            if job.index in self._skip:\n                continue\n",
        "",
    ),
    Mutant(
        "queue compacted one short",
        "kernel/backlog.py",
        "del self.items[: self.head]",
        "del self.items[: self.head - 1]",
    ),
)


def apply(mutant: Mutant, package: Path) -> None:
    """Change the one place in a copy of the package.

    Raises:
        ValueError: The place is not there, or not unique: the list is behind the code.
    """
    path = package / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        msg = (
            f"{mutant.name}: {mutant.old!r} stands {text.count(mutant.old)} times in {mutant.file}"
        )
        raise ValueError(msg)
    path.write_text(text.replace(mutant.old, mutant.new))


def killer(mutant: Mutant) -> str | None:
    """The test, or the law, that kills a mutant; None if it survives."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        shutil.copytree(
            ROOT / "trioeval", home / "trioeval", ignore=shutil.ignore_patterns("__pycache__")
        )
        apply(mutant, home / "trioeval")
        for part in ("tests", "pyproject.toml"):
            (home / part).symlink_to(ROOT / part)
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "-p",
            "no:cacheprovider",
            "--tb=line",
            *TESTS,
        ]
        env = {
            **os.environ,
            "PYTHONPATH": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "TRIOEVAL_PROFILE": "mutants",
        }
        done = subprocess.run(
            [*command, "--rootdir", folder],
            cwd=home,
            env=env,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode == 0:
        return None
    law = re.search(r"AssertionError: ([A-Z_]+) is broken", done.stdout)
    test = re.search(r"FAILED \S+::(\S+)", done.stdout)
    named = [match.group(1) for match in (law, test) if match]
    return " in ".join(named) or done.stdout[-300:]


def report(chosen: Iterator[Mutant]) -> int:
    """Print a line for each mutant; returns how many survive."""
    survivors = 0
    for mutant in chosen:
        started = time.monotonic()
        by = killer(mutant)
        survivors += by is None
        verdict = "SURVIVES" if by is None else f"killed by {by}"
        print(f"{mutant.name:<50} {verdict} ({time.monotonic() - started:.0f} s)", flush=True)
    return survivors


if __name__ == "__main__":
    words = sys.argv[1:]
    chosen = (m for m in MUTANTS if not words or any(word in m.name for word in words))
    sys.exit(report(chosen))
