"""Run the one-line mutants of `rates.toml` and `kernel.toml`, each of which some test must kill.

    python tests/mutants/run_mutants.py              all of them
    python tests/mutants/run_mutants.py width pace   those whose name contains a word
    python tests/mutants/run_mutants.py --report     all of them, and the result as docs/reference/mutants.md
    python tests/mutants/run_mutants.py --at-once 1  one after another, on a busy machine

Each mutant is applied to a copy of the package in a temporary folder, and tests run against that copy
until the first failure: those nearest to the mutant first, then all. Laws come before named
examples, unless the mutant breaks no law. A mutant that survives is a hole in the laws; the exit code counts
them.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import attrs

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
REPORT = ROOT / "docs" / "reference" / "mutants.md"

_PROPERTY = "tests/property"
_KERNEL_LAWS = f"{_PROPERTY}/test_kernel_laws.py"
_LEASE_LAW = f"{_PROPERTY}/test_lease_law.py"
_NAMED = "tests/kernel"
ALL_TESTS = (_NAMED, _PROPERTY)
NEAR_LAW = {
    "EAGER": (f"{_KERNEL_LAWS}::test_eager", _NAMED),
    "ISOLATION": (f"{_KERNEL_LAWS}::test_isolation", _NAMED),
    "LEASE": (_LEASE_LAW, _NAMED),
    "example": (_NAMED,),
}
"""The tests nearest to a mutant of kernel/, by its law; those of `NEAR_KERNEL` for all other laws."""
NEAR_KERNEL = (
    f"{_KERNEL_LAWS}::test_every_law_holds_with_faulty_providers_dependencies_and_budgets",
    _NAMED,
)
NEAR_RATES = {
    "adaptive_limit": ("test_aimd", "test_gradient", "test_server_shapes"),
    "backoff": ("test_backoff", "test_breaker"),
    "budget": ("test_budget", "test_estimate"),
    "pace": ("test_pace", "test_token_pace"),
    "throttle": ("test_throttle", "test_measured_rate"),
}
"""The tests nearest to a mutant of rates/, by its module."""


@attrs.frozen
class Mutant:
    """A change of one place in the source."""

    name: str
    """The description of the violated behaviour."""
    law: str
    """The law that forbids it; `example` where only named examples do."""
    file: str
    """Below `trioeval/`."""
    old: str
    """Occurs exactly once in the file."""
    new: str


def read(path: Path) -> Sequence[Mutant]:
    """Return the mutants of one file."""
    return [Mutant(**entry) for entry in tomllib.loads(path.read_text())["mutant"]]


MUTANTS = (*read(HERE / "rates.toml"), *read(HERE / "kernel.toml"))


def apply(mutant: Mutant, package: Path) -> None:
    """Change one place of a copy of the package.

    Raises:
        ValueError: The place does not exist, or is not unique: the list is outdated.
    """
    path = package / mutant.file
    text = path.read_text()
    if (count := text.count(mutant.old)) != 1:
        msg = f"{mutant.name}: {mutant.old!r} occurs {count} times in {mutant.file}"
        raise ValueError(msg)
    path.write_text(text.replace(mutant.old, mutant.new))


def nearest(mutant: Mutant) -> Sequence[str]:
    """Return the tests that should kill a mutant."""
    folder, module = mutant.file.removesuffix(".py").split("/")
    if folder == "rates":
        return [f"{_PROPERTY}/{name}.py" for name in NEAR_RATES[module]]
    return NEAR_LAW.get(mutant.law, NEAR_KERNEL)


def run_tests(mutant: Mutant | None, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run tests on a copy of the package, changed by a mutant or unchanged."""
    with tempfile.TemporaryDirectory() as folder:
        home, leave = Path(folder), shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "trioeval", home / "trioeval", ignore=leave)
        shutil.copytree(ROOT / "tests", home / "tests", ignore=leave)
        shutil.copy(ROOT / "pyproject.toml", home)
        if mutant is not None:
            apply(mutant, home / "trioeval")
        options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "--timeout=120"]
        options += ["-m", "not local_llm and not datasette"]  # the slow ones too
        options += ["--timeout-method=thread"]  # a hang inside hypothesis would be tried again
        options += ["--rootdir", folder]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
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
    """Return the test, and the law, that kills a mutant; None if it survives.

    Raises:
        RuntimeError: The tests could not be run, which kills nothing.
    """
    done = run_tests(mutant, nearest(mutant))
    if done.returncode == 0:
        done = run_tests(mutant, ALL_TESTS)
    if done.returncode == 0:
        return None
    output = done.stdout + done.stderr
    if "Timeout" in output and "FAILED" not in output:  # the process ended without a summary
        hung = re.search(r"in (test_\w+)", output)
        return f"a hang in {hung[1]}" if hung else "a hang"
    test = re.search(r"FAILED \S+::(\w+)", done.stdout)
    if done.returncode != 1 or test is None:
        raise RuntimeError(done.stdout[-2000:])
    law = re.search(r"AssertionError: ([A-Z_]+) is broken", done.stdout)
    return f"{law[1]} in {test[1]}" if law else test[1]


def try_all(chosen: Sequence[Mutant], *, at_once: int) -> dict[Mutant, str | None]:
    """Print a line for each mutant; returns what killed it, None if nothing did.

    Raises:
        RuntimeError: The tests fail without any mutant.
    """
    tests = sorted({test for mutant in chosen for test in nearest(mutant)})
    baseline = run_tests(None, tests)
    if baseline.returncode != 0:
        raise RuntimeError(baseline.stdout[-2000:])
    longest = max(len(mutant.name) for mutant in chosen)
    with ThreadPoolExecutor(at_once) as pool:
        return dict(zip(chosen, pool.map(partial(_try_one, width=longest), chosen), strict=True))


def _try_one(mutant: Mutant, width: int) -> str | None:
    by = killer(mutant)
    print(f"{mutant.name:<{width}} {by or 'SURVIVES'}", flush=True)
    return by


def page(found: Mapping[Mutant, str | None]) -> str:
    """Return the result as a page."""
    lines = [
        "# Mutants",
        "",
        "Each line is a change of one place of the kernel or of the arithmetic of rates.",
        "Each of them makes a test fail.",
        "The changes are in `tests/mutants/*.toml`.",
        "`python tests/mutants/run_mutants.py --report` writes this page.",
        "The law is the one that the change violates; `example` means that only named examples detect it.",
        "The last column is the first test that failed; others may fail as well.",
        "",
        "| mutant | place | law | killed by |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {mutant.name} | `{mutant.file}` | {mutant.law} | `{by or 'nothing'}` |"
        for mutant, by in found.items()
    ]
    return "\n".join([*lines, ""])


def main() -> int:
    """Run the mutants that the command line names; returns how many survive."""
    parser = argparse.ArgumentParser(description="Run the one-line mutants of kernel and rates.")
    parser.add_argument("words", nargs="*", help="only mutants whose name contains one of them")
    parser.add_argument("--report", action="store_true", help="all mutants, and write the page")
    parser.add_argument("--at-once", type=int, default=2, help="mutants side by side (2)")
    args = parser.parse_args()
    if args.report and args.words:
        parser.error("--report takes no words: the page lists every mutant")
    words = args.words or [""]
    chosen = [mutant for mutant in MUTANTS if any(word in mutant.name for word in words)]
    if not chosen:
        parser.error(f"no mutant has a name with {' or '.join(words)}")
    found = try_all(chosen, at_once=args.at_once)
    if args.report:
        REPORT.write_text(page(found))
    return sum(by is None for by in found.values())


if __name__ == "__main__":
    sys.exit(main())
