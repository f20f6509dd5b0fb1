"""The time to find the rows of a stored run in a changed suite.

    python tests/bench/reconcile_rows.py [ROWS]

Each case inserts a test before the others, so that every row moves. Wanted of 100,000 rows of one
column: 1 s at most for tests that are variables, at most 3 times what it takes to make the steps and a digest
of each. Of the lines of a file nothing is held but 9 bytes a row and those without a match.
"""

import hashlib
import json
import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.evaluation.identity import Identities
from trioeval.evaluation.reconcile import StoredIdentity, reconcile
from trioeval.loading.load import load_suite, parse_suite
from trioeval.suite.expand import Expansion, expand
from trioeval.suite.model import Suite, Test

ROWS = 100_000

CASES: Mapping[str, Mapping[str, Any]] = {
    "variables": {},
    "default test": {"defaultTest": {"assert": [{"type": "contains", "value": "{{x}}"}]}},
    "own assertions": {},
}


def suite_of(name: str, rows: int) -> Suite:
    """Tests without the one in front."""
    own = name == "own assertions"
    tests = [
        {
            "vars": {"x": f"word {n}", "n": n},
            **({"assert": [{"type": "contains", "value": str(n)}]} if own else {}),
        }
        for n in range(rows)
    ]
    return parse_suite({"providers": ["echo"], "prompts": ["{{x}}"], "tests": tests, **CASES[name]})


def stored(steps: Expansion) -> Iterator[StoredIdentity]:
    """Yield the identities as a store returns them."""
    identities, entry = Identities(), steps.providers[0]
    for step in steps:
        found = identities.of(step, entry)
        yield StoredIdentity(step.index, found.id, found.content)


def measure(name: str, rows: int) -> None:
    """Measure one case and print its figures."""
    suite = suite_of(name, rows)
    known = list(stored(expand(suite)))
    steps = expand(attrs.evolve(suite, tests=(Test(vars={"x": "new"}), *suite.tests)))
    began = time.process_time()
    for step in steps:
        hashlib.sha256(json.dumps(step.vars, sort_keys=True).encode()).hexdigest()
    bare = time.process_time()
    found = reconcile(known, steps)
    ended = time.process_time()
    assert found.count("kept") == rows
    assert list(found.indices("new")) == [0]
    ratio = (ended - bare) / (bare - began)
    print(f"{name:15} {rows:>8,} rows {ended - bare:5.2f} s, {ratio:4.1f} x the baseline")


def measure_file(rows: int) -> None:
    """The lines of a file, which are read on both sides."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, first in (("before", 1), ("now", 0)):
            with (folder / f"{name}.jsonl").open("w") as out:
                for n in range(first, rows + 1):
                    out.write(json.dumps({"vars": {"x": f"word {n}"}}) + "\n")
            document = {"providers": ["echo"], "prompts": ["{{x}}"], "tests": f"{name}.jsonl"}
            (folder / f"{name}.json").write_text(json.dumps(document))
        before, now = (expand(load_suite(folder / f"{name}.json")) for name in ("before", "now"))
        high = megabytes()
        began = time.process_time()
        found = reconcile(stored(before), now)
        seconds = time.process_time() - began
        assert found.count("kept") == rows
        print(
            f"a file          {rows:>8,} rows {seconds:5.2f} s, {megabytes() - high:4.1f} MB more"
        )


def megabytes() -> float:
    """Return the peak memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    count = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    measure_file(count)
    for case in CASES:
        measure(case, count)
