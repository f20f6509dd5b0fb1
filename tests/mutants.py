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
from collections.abc import Iterable
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
        "nobody leads where another run has the lane",
        "kernel/crew.py",
        "contended = self.lane.in_line or len(self.lane.followers) > 1",
        "contended = self.lane.in_line",
    ),
    Mutant(
        "nobody leads where others stand in line",
        "kernel/crew.py",
        "contended = self.lane.in_line or len(self.lane.followers) > 1",
        "contended = len(self.lane.followers) > 1",
    ),
    Mutant(
        "nobody hears of admissions",
        "kernel/work.py",
        "            running.observe(Admitted(calls.started_at, job.index, job.lane))",
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
        "        if self._over or now >= self._deadline:\n            await",
        "        if self._over or now > self._deadline:\n            await",
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
        "if self._paused_at is None and not self._in_flight and",
        "if self._paused_at is None and",
    ),
    Mutant(
        "clock goes on while another branch waits",
        "kernel/calls.py",
        "            if not self._waiting:\n",
        "            if True:\n",
    ),
    Mutant(
        "grace counted from the cancellation",
        "kernel/run.py",
        "if self._caller_gone and self._jobs_gone:",
        "if self._caller_gone:",
    ),
    Mutant(
        "a call waits past the deadline",
        "kernel/calls.py",
        "self.job.index, self._refuse_if_late, self._observe",
        "self.job.index, lambda _now: None, self._observe",
    ),
    Mutant(
        "a handle works after its job",
        "kernel/calls.py",
        "        self._over = True\n",
        "        pass\n",
    ),
    Mutant(
        "an error in cleanup passes with the cancellation",
        "kernel/work.py",
        "            raise cancelled from None\n",
        "            raise\n",
    ),
    Mutant(
        "spent scope used again",
        "kernel/work.py",
        "while (now := trio.current_time()) < scope.deadline:",
        "while (now := trio.current_time()) < math.inf:",
    ),
    Mutant(
        "interrupted jobs not recorded",
        "kernel/work.py",
        "            running.finish(calls, Interrupted(*times, running.cut(now, started=True)))\n",
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
        "        self.scope.shield = True\n",
        "        pass\n",
    ),
    Mutant(
        "shield without an end",
        "kernel/run.py",
        "            self.scope.deadline = trio.current_time() + self.grace",
        "            pass",
    ),
    Mutant(
        "sink inside the deadline",
        "kernel/run.py",
        "        with flush.scope:\n",
        "        with flush.scope, trio.move_on_at(deadline):\n",
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


def run_tests(mutant: Mutant | None) -> subprocess.CompletedProcess[str]:
    """The tests against a copy of the package, changed by a mutant or as it is."""
    with tempfile.TemporaryDirectory() as folder:
        home, leave = Path(folder), shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "trioeval", home / "trioeval", ignore=leave)
        shutil.copytree(ROOT / "tests", home / "tests", ignore=leave)
        shutil.copy(ROOT / "pyproject.toml", home)
        if mutant is not None:
            apply(mutant, home / "trioeval")
        options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "--timeout=60"]
        options += ["--rootdir", folder]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, *TESTS],
            cwd=home,
            env={
                **os.environ,
                "PYTHONPATH": folder,
                "PYTHONDONTWRITEBYTECODE": "1",
                "TRIOEVAL_PROFILE": "mutants",
            },
            capture_output=True,
            text=True,
            check=False,
        )


def killer(mutant: Mutant) -> str | None:
    """The test, and the law, that kills a mutant; None if it survives.

    Raises:
        RuntimeError: The tests could not be run, which kills nobody.
    """
    done = run_tests(mutant)
    if done.returncode == 0:
        return None
    if "Timeout" in done.stdout + done.stderr:  # the whole process was ended, without a summary
        hung = re.search(r"in (test_\w+)", done.stdout + done.stderr)
        return f"a hang in {hung[1]}" if hung else "a hang"
    test = re.search(r"FAILED \S+::(\S+)", done.stdout)
    if done.returncode != 1 or test is None:
        raise RuntimeError(done.stdout[-2000:])
    law = re.search(r"AssertionError: ([A-Z_]+) is broken", done.stdout)
    return f"{law[1]} in {test[1]}" if law else test[1]


def report(chosen: Iterable[Mutant]) -> int:
    """Print a line for each mutant; returns how many survive.

    Raises:
        RuntimeError: The tests fail without any mutant.
    """
    baseline = run_tests(None)
    if baseline.returncode != 0:
        raise RuntimeError(baseline.stdout[-2000:])
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
