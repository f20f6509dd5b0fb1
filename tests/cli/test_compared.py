"""`trioeval compare`: changes beyond chance, for people, programs and CI."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from trioeval.cli import run_command_line

ROWS = 12


def suite(*bad: int, stderr: str = "say") -> dict[str, object]:
    """Tests of which some fail; two rows each share a book."""
    tests = [
        {
            "vars": {"n": str(n), "book": str(n // 6)},
            "metadata": {"all": "one"},
            "assert": [{"type": "contains", "value": "never" if n in bad else "say"}],
        }
        for n in range(ROWS)
    ]
    return {"providers": ["echo"], "prompts": [stderr + " {{n}}"], "tests": tests}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs: one that passes, one with seven failures, and one that shares no row with the others."""
    folder = tmp_path_factory.mktemp("compared")
    suites = (suite(), suite(*range(7)), suite(stderr="other"))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        for place, found in enumerate(suites):
            Path(f"{place}.json").write_text(json.dumps(found))
            run_command_line([f"{place}.json", "--no-table", "--no-progress"])
    return folder


def compare(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: Sequence[str],
) -> tuple[int, str, str]:
    monkeypatch.chdir(folder)
    code = run_command_line(["compare", *arguments])
    stdout = capsys.readouterr()
    return code, stdout.out, stdout.err.rpartition("\n")[0].rpartition("\n")[2]


@pytest.mark.parametrize(
    "case",
    [
        ("latest~2 latest~1", 0, ""),
        (
            "latest~2 latest~1 --fail-if worse",
            100,
            "exit 100: the later run is worse beyond chance",
        ),
        (
            "latest~1 latest~2 --fail-if worse",
            0,
            "exit 0: the later run is not worse beyond chance",
        ),
        (
            "latest~1 latest~2 --fail-if different",
            100,
            "exit 100: the later run is better beyond chance",
        ),
        (
            "latest~2 latest~1 --fail-if worse --confidence 0.999",
            0,
            "exit 0: the later run is not worse beyond chance",
        ),
        (
            "latest~2 latest~1 --fail-if worse --cluster book",
            0,
            "exit 0: the later run is not worse beyond chance",
        ),
        (
            "latest~1 latest --fail-if worse",
            100,
            "exit 100: no comparison is possible: no row exists in both runs",
        ),
        ("latest~1 latest --by test --fail-if worse", 0, "exit 0: the later run is not worse"),
        (
            "latest~2 latest~1 --fail-if worse --cluster all",
            100,
            "exit 100: no comparison is possible: all rows of a column belong to one test or cluster",
        ),
        (
            "latest~2 latest~1 --cluster books",
            2,
            "--cluster 'books': no row of the runs has this metadata key or variable; the rows have ",
        ),
        (
            "latest~2 latest~1 --bootstrap 99",
            2,
            'Invalid value "99" for --bootstrap. Must be >= 100.',
        ),
        ("latest~1 latest -o x.csv", 2, "-o x.csv: a comparison is written as .html, got '.csv'"),
        ("latest~1 nothing", 2, ".trioeval/results.db: run 'nothing' not found"),
    ],
)
def test_the_exit_code_reports_differences_beyond_chance(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    case: tuple[str, int, str],
) -> None:
    """With `--fail-if` the exit code reports it, and stderr gives the reason."""
    arguments, code, line = case
    ended, _, stderr = compare(folder, monkeypatch, capsys, arguments.split())
    assert (ended, stderr[: len(line)]) == (code, line)


def test_text_and_json_have_the_same_numbers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Intervals, differences and p-values use the given confidence and clusters."""
    flags = ["latest~2", "latest~1", "--confidence", "0.9"]
    _, stdout, _ = compare(folder, monkeypatch, capsys, flags)
    lines = stdout.splitlines()
    assert [line.split(" of ")[1].split(", started")[0] for line in lines[:2]] == [
        "0.json: finished",
        "1.json: finished",
    ]
    assert [line.split(":")[0] for line in lines[:2]] == ["before", "after"]
    assert lines[-1] == "12 rows: 5 same, 7 worse"
    code, stdout, stderr = compare(
        folder, monkeypatch, capsys, [*flags, "--json", "--cluster", "book", "--fail-if", "worse"]
    )
    assert (code, stderr) == (0, "exit 0: the later run is not worse beyond chance")
    (column,) = json.loads(stdout)["columns"]
    passed = column["statistics"]["passRate"]
    assert passed["difference"] | {"low": 0, "high": 0, "standardError": 0} == {
        "mean": pytest.approx(-7 / 12),
        "standardError": 0,
        "low": 0,
        "high": 0,
        "n": 12,
        "clusters": 2,
        "confidence": 0.9,
    }
    assert (passed["pValue"], passed["answer"]) == (0.5, "no difference")
    assert [*passed["neededRows"]] == ["0.01", "0.02", "0.05", "0.1"]


def test_bootstrap_intervals_are_computed_on_request(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are the same each time, and both text and JSON name the method."""

    def stdout(*flags: str) -> str:
        return compare(folder, monkeypatch, capsys, ["latest~2", "latest~1", *flags])[1]

    plain, drawn = stdout("--json"), stdout("--json", "--bootstrap", "300")
    assert stdout("--json", "--bootstrap", "300") == drawn
    found = [json.loads(text) for text in (plain, drawn)]
    assert [one["bootstrap"] for one in found] == [None, {"resamples": 300, "seed": 0}]
    own, other = (one["columns"][0]["statistics"] for one in found)
    assert own["passRate"] == other["passRate"]
    assert own["score"]["difference"]["low"] != other["score"]["difference"]["low"]
    assert "BCa bootstrap, 300 resamples" in stdout("--bootstrap", "300")


def test_a_comparison_is_written_as_a_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page has the findings; a database cannot be the page."""
    flags = ["latest~2", "latest~1", "-o", "pages/x.html"]
    code, _, stderr = compare(folder, monkeypatch, capsys, flags)
    assert (code, stderr.startswith("wrote pages/x.html: eval-")) == (0, True)
    assert "worse beyond chance" in (folder / "pages/x.html").read_text()


def test_a_stopped_run_is_not_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows that were not run are not compared; without other rows no comparison is possible."""
    monkeypatch.chdir(tmp_path)
    stopped = suite(10) | {"evaluateOptions": {"maxConcurrency": 1}}
    flags = ["--no-table", "--no-progress"]
    for name, found in (("whole", suite()), ("stopped", stopped)):
        Path(f"{name}.json").write_text(json.dumps(found))
        run_command_line([f"{name}.json", *flags, *["--fail-fast"] * (name == "stopped")])
    capsys.readouterr()
    ended, stdout, stderr = compare(
        tmp_path, monkeypatch, capsys, ["latest~1", "latest", "--fail-if", "worse"]
    )
    assert ended == 0
    assert stderr == (
        "exit 0: the later run is not worse beyond chance (it is unfinished: interrupted); "
        "unfinished rows, not compared: 1"
    )
    assert stdout.splitlines()[1].endswith("12 rows: 10 passed, 1 failed, 0 errors, 1 not run")
    assert stdout.splitlines()[-2:] == [
        "1 row of the later run did not end; the comparison leaves them out",
        "12 rows: 10 same, 1 worse, 1 unfinished",
    ]


def test_runs_that_share_no_row_are_reported_as_such(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both suites are named, and no table is shown."""
    _, stdout, _ = compare(folder, monkeypatch, capsys, ["latest~1", "latest"])
    before, after, *rest = stdout.splitlines()
    assert (" of 1.json" in before, " of 2.json" in after) == (True, True)
    assert rest == [
        "no row is in both runs: the runs cannot be compared",
        "24 rows: 12 new, 12 gone",
    ]
