"""Patterns of files that lead through huge folders, or through cycles."""

import glob
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trioeval.documents import files as around
from trioeval.documents.patterns import TooFarError, files_matching
from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite

pytestmark = pytest.mark.attack("plan")

BOUND = 300


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a suite's folder next to one with many files, a deep one, and one with cyclic links."""
    root = tmp_path_factory.mktemp("tree")
    (root / "suite").mkdir()
    (root / "wide").mkdir()
    for number in range(2 * BOUND):
        (root / "wide" / f"f{number}").touch()
    Path(root, "deep", *("d" * BOUND)).mkdir(parents=True)
    circle = root / "circle"
    circle.mkdir()
    for name in "abc":
        (circle / name).symlink_to(circle)
    return root


SUITES: dict[str, dict[str, Any]] = {
    "prompts": {"prompts": ["file://{}"]},
    "text": {"prompts": ["{}"]},
    "tests": {"prompts": ["a"], "tests": "file://{}"},
    "vars": {"prompts": ["{{x}}"], "tests": [{"vars": {"x": "file://{}"}}]},
}


def filled(message: Any, pattern: str) -> Any:
    if isinstance(message, dict):
        return {key: filled(value, pattern) for key, value in message.items()}
    if isinstance(message, list):
        return [filled(value, pattern) for value in message]
    return message.replace("{}", pattern)


@pytest.mark.parametrize("form", SUITES)
@pytest.mark.parametrize(
    "pattern", ["../wide/*.none", "../**/*.none", "../deep/**/x*.txt", "../circle/**/*.none"]
)
def test_a_pattern_that_matches_nothing_ends(
    tree: Path, monkeypatch: pytest.MonkeyPatch, form: str, pattern: str
) -> None:
    """This holds for any folders; the message names it."""
    monkeypatch.setattr(around, "files_matching", bounded)
    suite = tree / "suite" / "suite.json"
    suite.write_text(json.dumps({"providers": ["echo"], **filled(SUITES[form], pattern)}))
    with pytest.raises(SuiteError) as caught:
        load_suite(suite, allow_outside=True)
    message = str(caught.value)
    assert pattern in message
    assert "was compared with 1,000,000 files and folders" in message
    assert "write a narrower pattern" in message


def bounded(directory: Path, pattern: str) -> Iterator[Path]:
    return files_matching(directory, pattern, most=BOUND)


def test_the_walk_counts_all_entries_that_it_passes(tree: Path) -> None:
    """Exactly the allowed number of entries is compared."""
    assert len(list(files_matching(tree / "wide", "*", most=2 * BOUND))) == 2 * BOUND
    with pytest.raises(TooFarError):
        list(files_matching(tree / "wide", "*", most=2 * BOUND - 1))


@pytest.mark.parametrize(
    "pattern",
    [
        *("*", "*.txt", "**", "**/*.txt", "**/*", "a/**", "a/**/b.txt", "**/**/b.txt", "a/*/*.txt"),
        *("?/b.txt", "[ab]/*.txt", "[!a]/*", ".*", ".h/*", "**/.*", "a/../*.txt", "./a/*.txt"),
        *("*/b.txt/*", "none/*", "link/*", "**/x.txt", "*[", "a/b.txt", "A/*", "*.TXT"),
    ],
)
@pytest.mark.parametrize("is_absolute", [False, True])
def test_a_pattern_matches_the_same_files_as_glob(
    tmp_path: Path,
    pattern: str,
    is_absolute: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    """The files equal those of the standard library."""
    for name in (
        "a/b.txt",
        "a/c/x.txt",
        "a/c/b.txt",
        "b/z.txt",
        "top.txt",
        ".h/s.txt",
        "a/.k",
        "a[",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to(tmp_path / "a" / "c")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    whole = str(tmp_path / pattern)
    there = glob.glob(whole, recursive=True)  # noqa: PTH207 - the module for comparison
    right = {Path(found) for found in there if Path(found).is_file()}
    found = list(files_matching(tmp_path, whole if is_absolute else pattern))
    assert set(found) == right
    assert len(found) == len(right)
