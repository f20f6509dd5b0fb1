"""The record of a suite's run before any request."""

from __future__ import annotations

import platform
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trioeval._version import __version__
from trioeval.columns import is_columns
from trioeval.errors import UsageError
from trioeval.grading import KINDS
from trioeval.providers.secrets import longest_first, surely_keys
from trioeval.report.head import head_of
from trioeval.report.redact import keys_of
from trioeval.report.stored import RunStart, StoredRunFacts
from trioeval.run import PreparedSuite, PreparedTask
from trioeval.run.same_rows import task_digest
from trioeval.store.run_list import LATEST
from trioeval.text import quote

if TYPE_CHECKING:
    from trioeval.evaluation.reconcile import Reconciled
    from trioeval.evaluation.suite_files import CodeFiles
    from trioeval.store.reader import StoreReader

_LONGEST_ID = 200

PROGRAM = "program"
"""The key of the flags that name the program of a suite without a file."""

SETTINGS = "settings"
"""The key of the flags with the settings digest of each task."""


def new_run_id(now: datetime) -> str:
    """Return a new id for a run that starts now, different from all others."""
    return f"eval-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}"


def check_run_id(run_id: str) -> None:
    """Raise unless a text can be the id of a run, which commands name, and which names a folder of agents.

    Raises:
        UsageError: It cannot.

    Example:
        >>> check_run_id("nightly 2026-03-01, model-a")
        >>> check_run_id("nightly/model-a")
        Traceback (most recent call last):
        ...
        trioeval.errors.UsageError: "nightly/model-a" is not a valid id of a run: it contains "/"
    """
    fault = _fault_of_id(run_id)
    if fault is not None:
        raise UsageError(f"{quote(str(run_id))} is not a valid id of a run: {fault}")


def _fault_of_id(run_id: object) -> str | None:
    if not isinstance(run_id, str):
        return f"it must be text, got {type(run_id).__name__}"
    if not run_id.strip():
        return "it is empty; None makes a new id"
    if len(run_id) > _LONGEST_ID:
        return f"it has {len(run_id)} characters; use at most {_LONGEST_ID}"
    wrong = next((one for one in run_id if one in "/\\" or not one.isprintable()), None)
    if wrong is not None:
        return f"it contains {quote(wrong)}"
    if run_id in {".", ".."}:
        return "it is the name of a folder"
    if LATEST.fullmatch(run_id):
        return "commands read it as the latest run"
    return None


def run_start(
    prepared: PreparedSuite, *, run: str, utc_created: str, flags: Mapping[str, Any] | None = None
) -> RunStart:
    """Return the start record of a run of a suite.

    Reads the files of the suite, for their digests.

    Args:
        prepared: The suite.
        run: The id of the run.
        utc_created: The time in ISO 8601.
        flags: The flags of the command, as JSON data; None if a program runs it.
    """
    from trioeval.evaluation.suite_files import CodeFiles, file_digests, files_of

    keys = {part.id: keys_of_task(part) for part in prepared.parts}
    versions = {
        "trioevalVersion": __version__,
        "pythonVersion": platform.python_version(),
        "platform": sys.platform,
        "arch": platform.machine(),
    }
    suite = prepared.suite
    sources = CodeFiles(suite.directory)
    return RunStart(
        id=run,
        suite=None if suite.file is None else str(suite.file.absolute()),
        description=suite.description,
        utc_created=utc_created,
        versions=versions,
        flags=_program_flags(prepared, sources) if flags is None else flags,
        files=file_digests(files_of(suite)),
        sources=sources,
        heads=[
            head_of(
                part.prepared.suite,
                part.prepared.steps,
                eval_id=run,
                utc_created=utc_created,
                versions=versions,
                task=part.id,
                depends_on=part.depends_on,
                keys=keys[part.id],
            ).json()
            for part in prepared.parts
        ],
        rows={part.id: rows for part in prepared.parts if (rows := judged_rows(part)) is not None},
        keys=keys,
    )


def judged_rows(part: PreparedTask) -> int | None:
    """Return how many rows of a task get a verdict: none of a dataset; None if that is not known yet."""
    return 0 if is_columns(part.prepared.suite.settings) else part.rows


def keys_of_task(part: PreparedTask) -> Sequence[str]:
    """Return the keys in the environment of a task, and those passed to its providers; longest first."""
    own = (secret for spec in part.prepared.specs for secret in spec.secrets)
    return longest_first([*keys_of(part.prepared.context.environ), *surely_keys(own)])


def _program_flags(prepared: PreparedSuite, sources: CodeFiles) -> Mapping[str, Any]:
    """Return the flags with which the command line can resume a program's run, or why it cannot."""
    suite = prepared.suite
    settings = {part.id or "": task_digest(part, sources) for part in prepared.parts}
    if suite.file is None or suite.kinds is not KINDS or prepared.has_own_providers:
        program = str(Path(sys.argv[0] or sys.executable).absolute())
        return {PROGRAM: program, SETTINGS: settings}
    return {"directory": str(Path.cwd()), "suite": str(suite.file), SETTINGS: settings}


def reconcile_tasks(
    reader: StoreReader,
    facts: StoredRunFacts,
    prepared: PreparedSuite,
    digests: Mapping[str, str],
    stored_digests: Mapping[str, str],
) -> Mapping[str | None, Reconciled]:
    """Return how the rows of each task of a stored run match those that its suite has now.

    Tasks whose rows are only known later are left out, unless all of their rows have changed: such a task
    compares its rows when it knows them.

    Args:
        reader: The store.
        facts: The run.
        prepared: The suite.
        digests: The digest of the settings of each task, see `task_digest`; "" is a suite without tasks.
        stored_digests: Those of the stored run.
    """
    from trioeval.evaluation.reconcile import reconcile
    from trioeval.evaluation.suite_files import CodeFiles

    before = dict(zip(facts.tasks, facts.sizes, strict=True))
    found = {}
    for part in prepared.parts:
        is_same = digests.get(part.id or "") == stored_digests.get(part.id or "")
        if part.rows is not None or not is_same:
            found[part.id] = reconcile(
                reader.identities(facts, part.id) if part.id in before else (),
                part.prepared.steps,
                started_rows=reader.started_rows(facts, part.id),
                expected=before.get(part.id),
                same_settings=is_same,
                sources=CodeFiles(prepared.suite.directory),
            )
    return found


def reconcile_stored(
    path: Path, prepared: PreparedSuite, start: RunStart
) -> Mapping[str | None, Reconciled]:
    """Return how the rows of a stored run match those of a suite. Reads the store.

    Args:
        path: The store.
        prepared: The suite.
        start: The start of a new execution of the run.
    """
    from trioeval.store.reader import read_store

    with read_store(path) as reader:
        facts = reader.find(start.id)
        if facts is None or facts.state == "running":  # the store refuses it
            return {}
        before = facts.flags.get(SETTINGS, {})
        return reconcile_tasks(reader, facts, prepared, start.flags[SETTINGS], before)
