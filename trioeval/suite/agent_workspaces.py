"""Which folder, or file of `git bundle`, the workspace of a case is a copy of."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.agents.git_bundles import find_git, is_bundle
from trioeval.agents.workspace import check_not_done
from trioeval.errors import AgentError
from trioeval.grading import quote
from trioeval.suite.column_words import some_text
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.sources.around import Around
from trioeval.suite.strict import Hook
from trioeval.suite.templates import Templates, is_template


@attrs.frozen
class WorkspaceTemplates:
    """Finds what workspaces are copies of."""

    around: Around
    """What their paths are relative to."""
    templates: Templates
    """Render them."""

    @classmethod
    def of(cls, around: Around, templates: Templates) -> "WorkspaceTemplates":
        """The same with templates that do not leave a variable out that is missing.

        What is left of the path would be another folder.
        """
        return cls(around, attrs.evolve(templates, strict=True))

    def find(self, said: str, variables: Mapping[str, Any]) -> Path:
        """The folder, or the file of `git bundle`, that a text stands for.

        Args:
            said: What the suite says.
            variables: Those of the test.

        Raises:
            MistakenError: There is none, it is outside of the suite's folder, or a file of another kind.
            TemplateError: The text cannot be rendered with these variables.
        """
        named = self.templates.render(said, variables)
        if not named.strip():
            raise MistakenError(Mistake(f"the workspace {quote(said)} has no name"))
        path = self.around.file_or_folder(named)
        if path.is_dir():
            return path
        try:
            if not is_bundle(path):
                message = f"{quote(named)} is neither a folder nor a file of `git bundle`"
                raise MistakenError(Mistake(message))
        except OSError as error:
            message = f"{quote(named)} cannot be read: {error.strerror}"
            raise MistakenError(Mistake(message)) from None
        if find_git(self.around.environ) is None:
            message = f"git is not there, which opens {quote(named)}"
            raise MistakenError(Mistake(message, "install git"))
        return path

    def find_undone(self, said: str, variables: Mapping[str, Any], done_file: str) -> Path:
        """The same; what it holds of a folder does not say that the task is done.

        Raises:
            MistakenError: As `find`, or it does.
            TemplateError: As `find`.
        """
        path = self.find(said, variables)
        try:
            if path.is_dir():
                check_not_done(path, done_file)
        except AgentError as error:
            raise MistakenError(Mistake(str(error))) from None
        return path


def workspace_hook(workspaces: WorkspaceTemplates) -> Hook:
    """For the key `workspace`: a template, or else something that is there."""

    def hook(value: Any, _wanted: Any) -> str:
        said = some_text(value)
        if error := workspaces.templates.syntax_error(said):
            raise MistakenError(Mistake(error))
        if not is_template(said):
            workspaces.find(said, {})
        return said

    return hook
