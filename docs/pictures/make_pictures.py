"""Make the pictures of README and the site from real runs: `python docs/pictures/make_pictures.py`.

It runs the example suite, renders its terminal output as `run.svg`, and takes screenshots of its HTML report
with Chromium. Run it when the output of a run or the report changes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
SUITE = HERE.parent / "examples" / "planets.yaml"
COLUMNS = 122
COMMAND = "trioeval planets.yaml -o report.html"


def run_example(folder: Path) -> str:
    """Run the example in a folder and return what a terminal shows, with colours."""
    for source in SUITE.parent.glob("planets*"):
        shutil.copy(source, folder)
    done = subprocess.run(
        [sys.executable, "-m", *COMMAND.split(), "--no-progress"],
        cwd=folder,
        env=os.environ | {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.stdout


def write_terminal(output: str, path: Path) -> None:
    """Write terminal output as an SVG picture of a terminal window."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True)
        console.print(f"[bold green]$[/] {COMMAND}", highlight=False)
        console.print(Text.from_ansi(output.rstrip()))
        path.write_text(console.export_svg(title="trioeval", unique_id="run"), encoding="utf-8")


def write_report(report: Path, path: Path) -> None:
    """Write a screenshot of the top of an HTML report."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome") or "chromium"
    subprocess.run(
        [
            chromium,
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
            "--window-size=1200,860",
            f"--screenshot={path}",
            report.as_uri(),
        ],
        check=True,
        capture_output=True,
    )


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_terminal(run_example(folder), HERE / "run.svg")
        write_report(folder / "report.html", HERE / "report.png")


if __name__ == "__main__":
    main()
