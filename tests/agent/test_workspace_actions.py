"""What a model is told of the files of its workspace."""

from pathlib import Path

from trioeval.agent.workspace_tools import list_files


def test_every_entry_of_a_folder_is_one_line(tmp_path: Path) -> None:
    """What cannot be printed in its name is escaped: nobody takes one file for two."""
    (tmp_path / "a\nDONE").touch()
    (tmp_path / "b\x1b[2J").mkdir()
    (tmp_path / "ä b").symlink_to("nowhere")
    assert list_files(tmp_path) == "a\\nDONE\nb\\x1b[2J/\nä b (a link)"
