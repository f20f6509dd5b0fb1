"""The folder that an agent works in: a copy of a template, or what a git bundle holds. Blocks on files."""

from pathlib import Path


def make_workspace(target: Path, template: Path | None) -> None:
    """Make a workspace, whole or not at all.

    Args:
        target: What it will be; nothing is there yet, but its parent is.
        template: A folder that is copied, or a file of `git bundle`, which is checked out; None is empty.

    Raises:
        AgentError: It cannot be made: the template is not there, leads out of itself by a link, is no
            bundle, git is not there, or the disk is full.
    """
    raise NotImplementedError
