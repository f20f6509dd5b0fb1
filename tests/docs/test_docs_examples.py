"""Every example prints the documented output on a virtual clock, and examples in docstrings hold."""

import doctest
import importlib
import pkgutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio.testing
from snippets import DOCS
from workbench import load

import trioeval
from trioeval import kernel
from trioeval.testing import run_virtual

EXAMPLES = DOCS / "examples"
MODULES = [
    module.name
    for module in pkgutil.walk_packages(trioeval.__path__, "trioeval.")
    if not module.name.endswith("__main__")
]


def main_of(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = load(EXAMPLES / name).main
    return found


def test_own_provider(capsys: pytest.CaptureFixture[str]) -> None:
    """It returns a right answer, a wrong one, and an error."""
    run_virtual(main_of("own_provider.py"))
    assert capsys.readouterr().out.splitlines() == [
        "0 pass 4 None",
        "1 fail 5 the output does not equal 6",
        "2 error None bad_request: an abacus cannot read '2 + x'",
    ]


def test_embedding_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cancelled run is continued, and the other one does not notice."""
    main = main_of("embedding/service.py")
    trio.run(main, tmp_path)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "nightly: finished, 9 rows, the last one RIVER 9",
        "on demand: ['HILL 1', 'HILL 2', 'HILL 3']",
        "requests of recorded rows: [1, 1, 1, 1]",
    ]
    assert len((tmp_path / "nightly.jsonl").read_text().splitlines()) == 9


def test_build_dataset(capsys: pytest.CaptureFixture[str]) -> None:
    """Events are reported in any order; the dataset is the same in every run."""
    trio.run(main_of("build_dataset.py"))
    printed = capsys.readouterr().out.splitlines()
    assert sorted(printed[:5]) == [
        "group 0 complete: 2 rows",
        "group 1 complete: 0 rows",
        "group 2 complete: 2 rows",
        "row 2 dropped: filtered by question",
        "row 3 dropped: filtered by question",
    ]
    assert printed[5:] == [
        "complete: 4 of 6 rows, {'filtered': 2}",
        "What is 6 times 4? 24",
        "What is 6 times 5? 30",
        "What is 5 times 4? 20",
        "What is 8 times 9? 72",
    ]


def test_a_timeout_around_the_queue_fails_jobs_without_a_fault() -> None:
    """The broken and the fixed program differ only in the place of the timeout."""
    broken = run_virtual(main_of("limit_around_queue_broken.py"))
    assert [(type(outcome).__name__, outcome.finished_at) for outcome in broken] == [
        ("Done", 3.0),
        ("Failed", 4.0),
        ("Failed", 4.0),
        ("Failed", 4.0),
    ]
    fixed = run_virtual(main_of("limit_around_queue_fixed.py"))
    assert [(type(outcome).__name__, outcome.finished_at) for outcome in fixed] == [
        ("Done", 3.0),
        ("Done", 5.0),
        ("Done", 7.0),
        ("Done", 9.0),
    ]


@pytest.mark.slow
@pytest.mark.network
def test_crawler(capsys: pytest.CaptureFixture[str]) -> None:
    """It finds all hosts, fetches the flaky page again, and reports the missing one."""
    trio.run(main_of("embedding/crawler.py"))
    assert capsys.readouterr().out.splitlines() == [
        "home/: 2 links",
        "home/about: 1 links",
        "home/old: 0 links",
        "news/: 3 links",
        "news/flaky: 1 links",
        "news/today: 1 links",
        "shop/: 2 links",
        "shop/gone: HTTP/1.0 404 Not Found",
    ]


@pytest.mark.parametrize(
    "path", sorted((EXAMPLES / "embedding").glob("*.py")), ids=lambda path: path.name
)
def test_an_example_of_embedding_has_at_most_eighty_lines(path: Path) -> None:
    """It is a whole program, of what an application needs."""
    assert len(path.read_text().splitlines()) <= 80


@pytest.mark.slow
@pytest.mark.parametrize("name", ["limit_around_queue_broken.py", "limit_around_queue_fixed.py"])
def test_an_example_runs_as_a_program(name: str) -> None:
    """It prints one outcome per line."""
    done = subprocess.run(
        [sys.executable, EXAMPLES / name], capture_output=True, text=True, check=True
    )
    assert [line.partition("(")[0] for line in done.stdout.splitlines()] == [
        type(outcome).__name__ for outcome in run_virtual(main_of(name))
    ]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_an_example_has_less_than_sixty_lines(path: Path) -> None:
    """It can be read at a glance."""
    assert len(path.read_text().splitlines()) < 60


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_print_the_documented_output(name: str) -> None:
    """The names of the kernel and of Trio are defined, as for its readers."""
    public = {name: getattr(kernel, name) for name in dir(kernel) if name[0] != "_"}
    names = {"trio": trio, **public}
    module = importlib.import_module(name)
    assert doctest.testmod(module, extraglobs=names).failed == 0
