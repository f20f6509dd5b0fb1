"""The results of file actions for a model."""

from pathlib import Path

from trioeval.agent.workspace_tools import list_files


def test_every_entry_of_a_folder_is_one_line(tmp_path: Path) -> None:
    """Unprintable characters in its name are escaped: two files never look the same."""
    (tmp_path / "a\nDONE").touch()
    (tmp_path / "b\x1b[2J").mkdir()
    (tmp_path / "ä b").symlink_to("nowhere")
    assert list_files(tmp_path) == "a\\nDONE\nb\\x1b[2J/\nä b (a link)"
