"""Results of `transformVars` follow the same rules as written variables."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite
from trioeval.run import Row, run_suite
from trioeval.suite.expand import expand

pytestmark = pytest.mark.slow  # processes


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create a suite's folder, with files in it and next to it."""
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "evil.py").write_text("open(__file__ + '.ran', 'w')")
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "link.txt").symlink_to(tmp_path / "secret.txt")
    for name in ("a.txt", "b.txt"):
        (suite / name).write_text(name)
    return suite


def suite(folder: Path, *codes: str, default: str | None = None) -> Path:
    """Create a suite file with a test for each code."""
    document: dict[str, Any] = {
        "providers": ["echo"],
        "prompts": ["{{x}}"],
        "tests": [{"vars": {"q": "1"}, "options": {"transformVars": code}} for code in codes],
    }
    if default is not None:
        document["defaultTest"] = {"options": {"transformVars": default}}
        document["tests"] = [{"vars": {"q": "1"}}, {"vars": {"q": "2"}}]
    file = folder / "s.json"
    file.write_text(json.dumps(document))
    return file


def giving(value: Any) -> str:
    return f"({{...vars, x: {json.dumps(value)}}})"


@pytest.mark.parametrize("shape", [lambda name: name, lambda name: ["a", name]])
@pytest.mark.parametrize("name", ["secret.txt", "evil.py", "*.txt"])
@pytest.mark.parametrize("way", ["file://../{}", "file://{folder}/{}"])
def test_files_outside_of_the_folder_are_refused(
    folder: Path, shape: Any, name: str, way: str
) -> None:
    """This holds for any notation; their code does not run."""
    named = way.format(name, folder=folder.parent)
    with pytest.raises(SuiteError) as caught:
        load_suite(suite(folder, "({...vars})", giving(shape(named))))
    (problem,) = caught.value.problems
    assert problem.path == "$.tests[1].options.transformVars"
    assert problem.line == 1
    assert "is outside of the suite's folder" in problem.message
    assert not (folder.parent / "evil.py.ran").exists()


def test_links_outside_and_missing_files_are_refused(folder: Path) -> None:
    """All mistakes are reported at once."""
    with pytest.raises(SuiteError) as caught:
        load_suite(suite(folder, giving("file://link.txt"), giving("file://c.txt"), "({env: 1})"))
    assert [problem.message for problem in caught.value.problems] == [
        f'in variables of transformVars: "file://link.txt" is outside of the suite\'s folder {folder}',
        'in variables of transformVars: file not found: "file://c.txt"',
    ]


@pytest.mark.parametrize("name", ["_conversation", "__evalId"])
def test_reserved_names_are_refused(folder: Path, name: str) -> None:
    """This includes those of the default test."""
    code = f"({{{name}: 'x'}})"
    for file in (suite(folder, code), suite(folder, default=code)):
        with pytest.raises(SuiteError, match="shadows a reserved name"):
            load_suite(file)


def test_patterns_are_expanded_to_rows(folder: Path) -> None:
    """Files in the folder are read when a row runs."""
    (folder / "link.txt").unlink()
    (folder / "v.py").write_text("def get_var(name, prompt, others):\n    return {'output': 'v'}\n")
    file = suite(folder, giving("file://*.txt"), giving(["file://v.py", "w"]))
    assert len(expand(load_suite(file))) == 4
    rows: list[Row] = []

    async def emit(row: Row) -> None:
        await trio.lowlevel.checkpoint()
        rows.append(row)

    async def main() -> None:
        with trio.fail_after(60):
            await run_suite(file, emit=emit)

    trio.run(main)
    assert [row.output for row in rows] == ["a.txt", "b.txt", "v", "w"]
