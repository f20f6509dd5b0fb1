"""Progress in the log of GitHub Actions: groups, and annotations of the rows that did not pass."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import attrs

from trioeval.cli.progress.plain import PlainProgress
from trioeval.cli.progress.progress import RunProgress
from trioeval.cli.progress.streams import say_beneath
from trioeval.report.formats.markdown import workflow_command
from trioeval.report.records import RowRecord, shown_output
from trioeval.report.run_state import RunSnapshot
from trioeval.report.strip import Strip
from trioeval.run import Status
from trioeval.text import counted
from trioeval.text_safety import escape_control_characters

_MOST = 10  # the most annotations of a kind that GitHub shows for a step
_EVERY = 10.0  # seconds between two lines of the log
_NAME = 80  # characters of a name in the title of an annotation
_REASON = 500  # characters of its message


@attrs.define
class GithubProgress(RunProgress):
    """Progress with annotations of the first rows that did not pass, which follow the results."""

    suite: Path | None
    """The suite file that annotations refer to."""
    root: Path
    """The folder that GitHub's file names are relative to."""
    strip: Strip
    """The parts of rows that must not be shown."""
    _annotations: list[str] = attrs.field(factory=list)
    _bad: int = 0
    """Rows that did not pass; rows that were not run are not counted."""

    def add(self, record: RowRecord) -> None:
        """Count a row, and keep an annotation if it is one of the first that did not pass."""
        if record.status in {Status.FAIL, Status.ERROR}:
            self._bad += 1
            if self._bad <= _MOST:
                self._annotations.append(self._annotation(record.stripped(self.strip)))

    async def show(
        self, state: Callable[[], RunSnapshot], more: Callable[[], Sequence[str]], /
    ) -> None:
        """Print the state of the run now and then, in a group, until cancelled."""
        with _group("progress"):
            await PlainProgress(_EVERY).show(state, more)

    @contextmanager
    def results(self) -> Iterator[None]:
        """Put the results into a group; annotations follow."""
        with _group("results"):
            yield
        for annotation in self._annotations:
            say_beneath(annotation)
        if (hidden := self._bad - len(self._annotations)) > 0:
            rows = counted(hidden, "more row", "more rows")
            notice = f"{rows} did not pass; see the summary of the job, or write them with -o"
            say_beneath(workflow_command("notice", notice, {"title": "trioeval"}))

    def _annotation(self, record: RowRecord) -> str:
        named, test = (
            escape_control_characters(record.provider, _NAME),
            escape_control_characters(record.name, _NAME),
        )
        of = f" ({test})" if test else ""
        title = f"{record.status.name} {named}, row {record.number}{of}"
        reason = escape_control_characters(record.error or "no reason given", _REASON)
        if (excerpt := record.output_excerpt) is not None:
            reason += shown_output(excerpt)
        return workflow_command("error", reason, {"file": self._file(), "title": title})

    def _file(self) -> str | None:
        """Return the suite file relative to the root; None if it is elsewhere."""
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
