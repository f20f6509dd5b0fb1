"""Loading 10,000 tests from YAML against PyYAML's C loader on the same file; ratios of processor time.

python tests/bench/load_suite.py
"""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import yaml

from trioeval.documents import read_document
from trioeval.loading.load import load_suite
from trioeval.suite.expand import expand

TESTS = 10_000
ROUNDS = 5

HEAD = """\
providers: [echo]
prompts: ['Answer {{question}} in {{language}}.']
tests:
"""
TEST = """\
- vars:
    question: What is {0} plus {1}?
    language: {2}
    number: {0}
  assert:
  - type: contains
    value: '{1}'
"""


def suite_text() -> str:
    """A suite as people write it."""
    languages = ("English", "French")
    return HEAD + "".join(TEST.format(n, n + 1, languages[n % 2]) for n in range(TESTS))


def seconds(work: Callable[[], object]) -> float:
    """Processor time of the fastest of several rounds."""

    def once() -> float:
        started = time.process_time()
        work()
        return time.process_time() - started

    return min(once() for _ in range(ROUNDS))


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "suite.yaml"
        text = suite_text()
        file.write_text(text)
        base = seconds(lambda: yaml.load(text, Loader=yaml.CSafeLoader))
        print(f"{TESTS} tests, {len(text) / 1e6:.1f} MB; yaml.load: {base:.2f} s")
        for name, work in {
            "the document": lambda: read_document(file),
            "load_suite": lambda: load_suite(file),
            "load, expand, first step": lambda: expand(load_suite(file))[0],
        }.items():
            print(f"{name}: {seconds(work) / base:.2f} ×")


if __name__ == "__main__":
    main()
