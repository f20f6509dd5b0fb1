"""A case under way: what its agent is told of where it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from trioeval.tasks.agents.case_files import CaseFiles


@attrs.frozen(kw_only=True)
class CaseRoom:
    """What an agent is told of its case, whatever kind of agent it is."""

    project: str
    """The id of the run."""
    task: str | None
    """The id of the task of the suite."""
    name: str
    """Of the case, with its column where there are several: unique in its task."""
    files: CaseFiles
    suite: Path
    """The folder of the suite."""
    vars: Mapping[str, Any]
    """The variables of the test, rendered."""
