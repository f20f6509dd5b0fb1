"""What is written down of the run of a suite before anything is asked."""

import platform
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trioeval._version import __version__
from trioeval.providers.secrets import longest_first, surely_keys
from trioeval.report import head_of
from trioeval.report.redact import keys_of
from trioeval.store import RunStart
from trioeval.tasks import PreparedSuite, PreparedTask
from trioeval.tasks.suite_files import CodeFiles, file_digests, files_of


def start_of(prepared: PreparedSuite, run: str, now: datetime) -> RunStart:
    """The beginning of a run.

    Args:
        prepared: What is run.
        run: Its id.
        now: When, in UTC.
    """
    created = now.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    versions = {
        "trioevalVersion": __version__,
        "pythonVersion": platform.python_version(),
        "platform": sys.platform,
        "arch": platform.machine(),
    }
    keys = keys_by_task(prepared)
    suite = prepared.suite
    return RunStart(
        id=run,
        suite=None if suite.file is None else str(suite.file.absolute()),
        description=suite.description,
        utc_created=created,
        versions=versions,
        files=file_digests(files_of(suite)),
        sources=CodeFiles(suite.directory),
        heads=[
            head_of(
                part.prepared.suite,
                part.prepared.steps,
                eval_id=run,
                utc_created=created,
                versions=versions,
                task=part.id,
                depends_on=part.depends_on,
                keys=keys[part.id],
            ).json()
            for part in prepared.parts
        ],
        rows={part.id: rows for part in prepared.parts if (rows := _rows(part)) is not None},
        keys=keys,
    )


def keys_by_task(prepared: PreparedSuite) -> Mapping[str | None, Sequence[str]]:
    """Of each task, texts that must not stand in what is told of it."""
    return {
        part.id: longest_first(
            [
                *keys_of(part.prepared.around.environ),
                *surely_keys(secret for spec in part.prepared.specs for secret in spec.secrets),
            ]
        )
        for part in prepared.parts
    }


def _rows(part: PreparedTask) -> int | None:
    """Rows that are judged: none of a dataset; None where that is not known yet."""
    return 0 if part.prepared.suite.columns is not None else part.rows
