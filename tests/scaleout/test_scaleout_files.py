"""The files of a suite reach workers that lack them, and the rows are those of one process."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from remote_cluster import RemoteCluster, remote_scheduler, remote_worker

from trioeval.cli import run_command_line

pytestmark = [pytest.mark.slow, pytest.mark.network]

Result = tuple[int, list[dict[str, Any]], str]


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteCluster]:
    with remote_scheduler(tmp_path_factory.mktemp("cluster")) as found:
        yield found


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Result]:
    """Run a command line in the folder of the suite; return its exit code, its rows and its messages."""
    (tmp_path / "evals").mkdir()
    monkeypatch.chdir(tmp_path / "evals")

    def started(*words: str) -> Result:
        output = tmp_path / "o.jsonl"
        output.unlink(missing_ok=True)
        code = run_command_line([*words, "--no-table", "--no-progress", "-o", str(output)])
        rows = output.read_text().splitlines() if output.exists() else []
        return code, [json.loads(one) for one in rows], capsys.readouterr().err

    return started


def write(files: Mapping[str, str]) -> None:
    """Write files by their paths in the working directory."""
    for name, text in files.items():
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row without its times and the id of its run, which differ between two runs."""
    own = {**row["metadata"]["trioeval"], "waitMs": 0, "waits": {}}
    return {**row, "id": "", "latencyMs": 0, "metadata": {**row["metadata"], "trioeval": own}}


SUITE = """
providers: [file://provider.py]
prompts: [file://prompts/*.txt, "plain {{word}}"]
tests: file://tests.csv
defaultTest:
  vars: {more: file://more.json}
  assert:
    - {type: python, value: file://checks/check.py}
    - {type: javascript, value: file://checks/check.mjs}
"""
FILES = {
    "suite.yaml": SUITE,
    "provider.py": """
import os
import shared

def call_api(prompt, options, context):
    return {"output": f"{prompt} {shared.WORD} {os.path.basename(os.getcwd())} {__file__}"}
""",
    "shared.py": "WORD = 'imported'\n",
    "prompts/a.txt": "a {{word}} {{more.key}}",
    "prompts/b.txt": "b {{word}}",
    "tests.csv": "word\n" + "".join(f"word {number}\n" for number in range(20)),
    "more.json": '{"key": "value"}',
    "checks/check.py": """
import rules

def get_assert(output, context):
    return rules.holds(output)
""",
    "checks/rules.py": """
from pathlib import Path

def holds(output):
    return all((Path("data") / f"{name}.txt").read_text() in output for name in ("word", "own"))
""",
    "data/word.txt": "imported",
    "data/own.txt": "evals",
    "checks/check.mjs": """
import { word } from "./word.mjs";
export default (output) => output.includes(word);
""",
    "checks/word.mjs": "export const word = 'evals';\n",
}


def test_a_worker_without_the_files_gets_them_and_its_rows_show_the_paths_of_the_run(
    cluster: RemoteCluster, run: Callable[..., Result]
) -> None:
    """The working directories differ too, and nothing remains on the workers."""
    write(FILES)
    here = Path.cwd()
    send = ("--send", "data/word.txt", "--send", "d*/own.*")
    code, local, text = run("suite.yaml", "--no-cache")
    assert code == 0, local[0]["error"]
    assert len(local) == 60
    with ExitStack() as stack:
        for name in ("one", "two"):
            stack.enter_context(remote_worker(cluster, name, hidden=[here.parent]))
        code, rows, text = run("suite.yaml", "--no-cache", "--on", cluster.address, *send)
        assert code == 0, rows[0]["error"]
        left = [*cluster.folder.glob("*/dask-scratch-space/*/trioeval-*")]
    for row, own in zip(rows, local, strict=True):
        assert plain(row) == plain(own)
    assert rows[0]["response"]["output"].endswith(f" evals {here / 'provider.py'}")
    assert "warning" not in text
    assert left == [], "the private folders are removed"
