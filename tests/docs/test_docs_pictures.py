"""The picture of a run in README shows the current output of the program."""

import html
import re
from pathlib import Path

import pytest
from snippets import DOCS
from workbench import load

PICTURES = DOCS / "pictures"


@pytest.mark.slow
def test_the_picture_of_a_run_shows_the_current_output(tmp_path: Path) -> None:
    """Every word that the example prints is in the picture; times and ids are not compared."""
    output = load(PICTURES / "make_pictures.py").run_example(tmp_path)
    printed = set(re.findall(r"[A-Za-z]{3,}", re.sub(r"\x1b\[[0-9;]*m|eval-\w+-\w+", "", output)))
    svg = html.unescape((PICTURES / "run.svg").read_text(encoding="utf-8"))
    shown = set(re.findall(r"[A-Za-z]{3,}", " ".join(re.findall(r">([^<>]*)</text>", svg))))
    assert printed <= shown, "run `python docs/pictures/make_pictures.py`"
