"""How a run begins in its store: anew, or where an earlier execution of it left off."""

import platform
import secrets
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from trioeval._version import __version__
from trioeval.providers.secrets import longest_first, surely_keys
from trioeval.report import Head, head_of
from trioeval.report.redact import keys_of
from trioeval.store import RunStart, Store, StoredRun
from trioeval.tasks import PreparedSuite, PreparedTask
from trioeval.tasks.reconcile import Reconciled
from trioeval.tasks.retries import Retry
from trioeval.tasks.suite_files import CodeFiles, file_digests, files_of


@attrs.frozen(kw_only=True)
class Continued:
    """A run that was begun before, and how it goes on."""

    id: str
    utc_created: str
    duration_ms: float
    """Of its earlier executions."""
    retry: Retry
    reconciled: Mapping[str | None, Reconciled]
    """What has become of the rows of each task."""


@attrs.frozen(kw_only=True)
class Beginning:
    """What is written down of a run before anything is called."""

    heads: Sequence[Head]
    keys: Mapping[str | None, Sequence[str]] = attrs.field(repr=False)
    """Of each task, texts that must not stand in what is told of it."""
    start: RunStart
    continued: Continued | None

    @property
    def duration_ms(self) -> float:
        """Of earlier executions."""
        return 0.0 if self.continued is None else self.continued.duration_ms

    async def begin(self, store: Store) -> StoredRun:
        """Begin the run, or go on with it: nothing is asked before the file says so.

        Raises:
            UsageError: It is under way elsewhere.
            StoreError: It cannot be written down.
        """
        if self.continued is None:
            run = store.begin(self.start)
            await run.durable()
            if store.error is not None:
                raise store.error
            return run
        return await store.resume(
            self.continued.id,
            self.start,
            retry=self.continued.retry,
            reconciled=self.continued.reconciled,
        )


def beginning_of(
    prepared: PreparedSuite, flags: Mapping[str, Any], continued: Continued | None
) -> Beginning:
    """The beginning of a run of a suite.

    Args:
        prepared: The suite.
        flags: What it was asked for with, as JSON data.
        continued: The run that goes on; None for a new one.
    """
    now = datetime.now(UTC)
    run = f"eval-{now:%Y%m%dT%H%M%S}-{secrets.token_hex(3)}" if continued is None else continued.id
    created = utc(now) if continued is None else continued.utc_created
    versions = {
        "trioevalVersion": __version__,
        "pythonVersion": platform.python_version(),
        "platform": sys.platform,
        "arch": platform.machine(),
    }
    keys = {part.id: _keys(part.prepared) for part in prepared.parts}
    heads = [
        head_of(
            part.prepared.suite,
            part.prepared.steps,
            eval_id=run,
            utc_created=created,
            versions=versions,
            task=part.id,
            depends_on=part.depends_on,
            keys=keys[part.id],
        )
        for part in prepared.parts
    ]
    suite = prepared.suite
    start = RunStart(
        id=run,
        suite=None if suite.file is None else str(suite.file.absolute()),
        description=suite.description,
        utc_created=created,
        versions=versions,
        flags=flags,
        files=file_digests(files_of(suite)),
        sources=CodeFiles(suite.directory),
        heads=[head.json() for head in heads],
        rows={part.id: rows for part in prepared.parts if (rows := judged_rows(part)) is not None},
        keys=keys,
    )
    return Beginning(heads=heads, keys=keys, start=start, continued=continued)


def judged_rows(part: PreparedTask) -> int | None:
    """How many rows a task has that are judged: none of a dataset; None where that is not known yet."""
    return 0 if part.prepared.suite.columns is not None else part.rows


def _keys(prepared: PreparedSuite) -> Sequence[str]:
    """Those in the environment of a task, and those that its providers are given."""
    own = (secret for spec in prepared.specs for secret in spec.secrets)
    return longest_first([*keys_of(prepared.around.environ), *surely_keys(own)])


def utc(instant: datetime) -> str:
    """An instant as JavaScript writes it."""
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
