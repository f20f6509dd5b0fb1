"""Output with a closed stderr, or in a locale with few characters, in real processes."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ENV = {
    name: value
    for name, value in os.environ.items()
    if name not in {"GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "PYTHONIOENCODING", "PYTHONUTF8"}
}
SUITE = """
providers: [{id: echo, label: Spur Ä 試験}]
prompts: ["{{word}} – 試験"]
tests: [{vars: {word: ä}, assert: [{type: contains, value: x}]}]
"""


def run(folder: Path, line: str, env: Mapping[str, str]) -> tuple[bytes, bytes]:
    """The stdout and stderr of a run with a failing row, started by a shell."""
    (folder / "suite.yaml").write_text(SUITE, encoding="utf-8")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {line}', "sh", sys.executable, "-m", "trioeval", "suite.yaml"],
        cwd=folder,
        env={**ENV, **env},
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 100
    return done.stdout, done.stderr


def test_nothing_for_a_closed_stderr_goes_to_stdout(tmp_path: Path) -> None:
    """Results and exit code are unchanged."""
    stdout, _ = run(tmp_path, "2>&-", {})
    assert b"did not pass" in stdout
    assert b"exit 100" not in stdout
    assert b"pass rate" not in stdout


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "cp1252"},
    ],
    ids=["C", "Windows-1252"],
)
def test_a_locale_with_few_characters_does_not_end_a_run(
    tmp_path: Path, env: Mapping[str, str]
) -> None:
    """Missing characters become question marks, also in tables on stderr, which stay aligned."""
    stdout, more = run(tmp_path, "", env)
    encoding = env.get("PYTHONIOENCODING", "ascii")
    assert "??" in stdout.decode(encoding)
    text = more.decode(encoding)
    assert "\\u" not in text
    assert "exit 100" in text
    widths = {len(line) for line in text.splitlines() if line[:1] in "+|"}
    assert max(widths) - min(widths) <= 2  # two wide characters became narrow ones
