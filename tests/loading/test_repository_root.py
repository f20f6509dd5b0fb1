"""The root of a suite's files: its repository, or without one its folder."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from trioeval.errors import SuiteError
from trioeval.loading.load import load_suite, parse_suite
from trioeval.loading.own_files import checked_path
from trioeval.paths import suite_root
from trioeval.run import prepare

PROVIDER = """
def call_api(prompt, options, context):
    return {"output": prompt}
"""


def git_folder(root: Path) -> None:
    (root / ".git").mkdir()


def git_file(root: Path) -> None:
    (root / ".git").write_text("gitdir: /elsewhere/.git/worktrees/w\n")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with files beside the folder of its suites, and files beside the repository."""
    root = tmp_path / "repo"
    (root / "evals").mkdir(parents=True)
    (root / "shared").mkdir()
    for folder in (root / "shared", tmp_path):
        (folder / "ask.txt").write_text("Say {{x}}")
        (folder / "tests.csv").write_text("x\nhi\n")
        (folder / "lib.py").write_text(PROVIDER)
    return root


def suite_in(folder: Path, above: str) -> Path:
    file = folder / "suite.json"
    suite = {
        "prompts": [f"file://{above}/ask.txt"],
        "providers": [f"file://{above}/lib.py"],
        "tests": f"{above}/tests.csv",
        "outputPath": f"{above}/out.json",
        "defaultTest": {"assert": [{"type": "equals", "value": f"file://{above}/ask.txt"}]},
    }
    file.write_text(json.dumps(suite))
    return file


@pytest.mark.parametrize("marked", [git_folder, git_file])
def test_a_suite_may_use_all_files_of_its_repository(
    repository: Path, marked: Callable[[Path], None]
) -> None:
    """They are read and written, and the check before a run allows them as well."""
    file = suite_in(repository / "evals", "../shared")
    with pytest.raises(SuiteError, match="is outside of the suite's folder"):
        load_suite(file, environ={})
    marked(repository)
    suite = load_suite(file, environ={})
    assert (suite.prompts[0].raw, suite.tests[0].vars) == ("Say {{x}}", {"x": "hi"})
    assert suite.roots == (repository,)
    out = checked_path(suite, suite.output_path[0], "outputPath")
    assert out == repository / "shared" / "out.json"
    assert len(prepare(suite, environ={}).steps) == 1
    assert parse_suite(json.loads(file.read_text()), directory=file.parent, environ={}).tests


def test_files_beside_the_repository_are_refused(repository: Path) -> None:
    """The message names the repository; a link in it opens nothing outside, whatever its form."""
    git_folder(repository)
    (repository / "shared" / "link.txt").symlink_to(repository.parent / "ask.txt")
    (repository / "up").symlink_to(repository.parent)
    for above in ("../..", "../up", str(repository.parent)):
        with pytest.raises(SuiteError) as refused:
            load_suite(suite_in(repository / "evals", above), environ={})
        assert len(refused.value.problems) == 4  # providers are checked before a run
        for problem in refused.value.problems:
            assert problem.message.endswith(f" is outside of the repository {repository}")
            assert problem.hint == "allow it with --allow-outside"
    with pytest.raises(SuiteError, match=r"link\.txt\" is outside of the repository"):
        parse_suite(
            {"providers": ["echo"], "prompts": ["file://shared/link.txt"]}, directory=repository
        )


def test_the_nearest_repository_counts(repository: Path) -> None:
    """A submodule, or a repository in another one, is a root of its own."""
    git_folder(repository)
    assert suite_root(repository / "evals") == repository
    git_file(repository / "evals")
    assert suite_root(repository / "evals") == repository / "evals"


def test_the_home_folder_is_no_repository(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who keeps settings in one does not open all files to every suite; one below it counts."""
    git_folder(repository)
    git_folder(repository.parent)
    for home in (repository, repository / "evals"):
        monkeypatch.setenv("HOME", str(home))
        assert suite_root(repository / "evals") == repository / "evals"
    monkeypatch.setenv("HOME", str(repository.parent))
    assert suite_root(repository / "evals") == repository


def test_the_folder_itself_counts_and_not_the_link_to_it(repository: Path, tmp_path: Path) -> None:
    """A suite that is reached through a link from another repository has its own."""
    git_folder(repository)
    other = tmp_path / "other"
    other.mkdir()
    git_folder(other)
    (other / "evals").symlink_to(repository / "evals")
    assert suite_root(other / "evals") == repository
    file = suite_in(repository / "evals", "../shared")
    assert load_suite(other / "evals" / file.name, environ={}).tests[0].vars == {"x": "hi"}


def test_an_untrusted_suite_stays_in_its_folder(repository: Path) -> None:
    """Its repository may hold files that are not meant for its providers."""
    git_folder(repository)
    document = {"providers": ["echo"], "prompts": ["file://../shared/ask.txt"]}
    with pytest.raises(SuiteError, match="is outside of the suite's folder"):
        parse_suite(document, directory=repository / "evals", trusted=False)


def test_files_of_several_repositories_stay_in_theirs(repository: Path, tmp_path: Path) -> None:
    """Each of the combined suite files opens the files of its repository."""
    git_folder(repository)
    other = tmp_path / "other"
    (other / "evals").mkdir(parents=True)
    git_file(other)
    (other / "p.txt").write_text("other {{x}}")
    (other / "evals" / "more.json").write_text('{"prompts": ["file://../p.txt"]}')
    file = suite_in(repository / "evals", "../shared")
    suite = load_suite(file, other / "evals" / "more.json", environ={})
    assert [prompt.raw for prompt in suite.prompts] == ["Say {{x}}", "other {{x}}"]
    assert suite.roots == (repository, other)
