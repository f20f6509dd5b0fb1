# Apart from `cli.progress.progress`: loaded when it is used.
"""Progress in the log of GitHub Actions: groups that open and close, and annotations of what went wrong."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from trioeval.cli.progress.plain import PlainProgress
from trioeval.cli.progress.progress import Progress
from trioeval.cli.progress.streams import say_beneath
from trioeval.inert import inert
from trioeval.report.counts import counted
from trioeval.report.formats.markdown import workflow_command
from trioeval.report.records import RowRecord
from trioeval.report.run_state import RunState
from trioeval.run import Status
from trioeval.suite.tests import Strip

_MOST = 10  # annotations of a kind that GitHub shows of a step
_EVERY = 10.0  # seconds between two lines, which stay in the log
_NAME = 80  # characters of what an annotation is of
_REASON = 500  # of what it says


@attrs.define
class GithubProgress(Progress):
    """Tells of the first rows that did not pass once the results are there."""

    suite: Path | None
    """Its file, which annotations are of."""
    root: Path
    """The folder from which GitHub names files."""
    strip: Strip
    """What must not be shown of rows."""
    _annotations: list[str] = attrs.field(factory=list)
    _bad: int = 0
    """Rows that did not pass; those that were not run to their end say nothing of anybody."""

    def add(self, record: RowRecord) -> None:
        """Take note of a row, and keep what is told of it if it is one of the first that did not pass."""
        if record.status not in {Status.PASS, Status.NOT_RUN}:
            self._bad += 1
            if self._bad <= _MOST:
                self._annotations.append(self._annotation(record.stripped(self.strip)))

    async def show(
        self, state: Callable[[], RunState], more: Callable[[], Sequence[str]], /
    ) -> None:
        """Tell how it stands now and then, in a group, until cancelled."""
        with _group("progress"):
            await PlainProgress(_EVERY).show(state, more)

    @contextmanager
    def results(self) -> Iterator[None]:
        """Put them into a group; annotations follow."""
        with _group("results"):
            yield
        for annotation in self._annotations:
            say_beneath(annotation)
        if (hidden := self._bad - len(self._annotations)) > 0:
            rows = counted(hidden, "more row", "more rows")
            told = f"{rows} did not pass; see the summary of the job, or write them with -o"
            say_beneath(workflow_command("notice", told, {"title": "trioeval"}))

    def _annotation(self, record: RowRecord) -> str:
        named, test = inert(record.provider, _NAME), inert(record.name, _NAME)
        of = f" ({test})" if test else ""
        title = f"{record.status.name} {named}, row {record.number}{of}"
        reason = inert(record.error or "no reason given", _REASON)
        return workflow_command("error", reason, {"file": self._file(), "title": title})

    def _file(self) -> str | None:
        """The suite from the root; None where it is elsewhere."""
        try:
            return None if self.suite is None else str(self.suite.resolve().relative_to(self.root))
        except ValueError:
            return None


@contextmanager
def _group(name: str) -> Iterator[None]:
    say_beneath(workflow_command("group", f"trioeval: {name}"))
    try:
        yield
    finally:
        say_beneath(workflow_command("endgroup"))
