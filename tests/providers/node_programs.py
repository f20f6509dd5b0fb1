"""Node for the tests of JavaScript: the marks of those that need it, and the files that they write."""

import os
from pathlib import Path

import pytest

from trioeval.scripting.node import find_node, node_fault


def _lacks(file_name: str) -> bool:
    return node_fault("is a test", os.environ, Path(__file__).with_name(file_name)) is not None


NEEDS_NODE = pytest.mark.skipif(find_node(os.environ) is None, reason="needs Node in PATH")
NEEDS_TYPES = pytest.mark.skipif(_lacks("node_types.ts"), reason="needs Node 22.6 or later in PATH")
WITHOUT_NODE = {"PATH": "/nowhere"}


def write(folder: Path, **files: str) -> None:
    """Write files; `_` in a name is a dot."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
