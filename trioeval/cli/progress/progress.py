"""How a run is told of while it goes on: what a way of telling has to do, and which one is taken."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import trio

from trioeval.cli.flags import ProgressMode
from trioeval.cli.progress.streams import is_github
from trioeval.cli.terminal import say
from trioeval.report.records import RowRecord
from trioeval.report.run_state import RunState
from trioeval.suite.tests import Strip

_DUMB = frozenset({"dumb", "unknown"})
"""Terminals on which nothing can be drawn."""


def choose_mode(
    asked: ProgressMode | None, environ: Mapping[str, str], *, is_terminal: bool
) -> ProgressMode:
    """How the progress of a run is shown.

    Args:
        asked: What was asked for; None if nothing was.
        environ: The variables of the process.
        is_terminal: Whether stderr is one.

    Example:
        >>> choose_mode(None, {"TERM": "xterm"}, is_terminal=True)
        'live'
        >>> choose_mode(None, {"TERM": "dumb"}, is_terminal=True)
        'plain'
    """
    if asked is not None:
        return asked
    if is_github(environ):
        return "github"
    is_dumb = environ.get("TERM", "").lower() in _DUMB
    return "live" if is_terminal and not is_dumb else "plain"


class Progress:
    """Tells of a run on stderr. This one tells nothing but the last line; others do more of it."""

    def add(self, record: RowRecord) -> None:
        """Take note of a row that is there, by its record with nothing left out."""

    async def show(
        self, _state: Callable[[], RunState], _more: Callable[[], Sequence[str]], /
    ) -> None:
        """Show how it stands until cancelled, or until nobody can see it.

        Args:
            _state: Gives the picture of the moment.
            _more: Gives further lines, which are inert.
        """
        await trio.lowlevel.checkpoint()

    @contextmanager
    def results(self) -> Iterator[None]:
        """Around what is shown of its results."""
        yield

    def end(self, _code: int, line: str) -> None:
        """The run is over."""
        say(line)


def open_progress(
    asked: ProgressMode | None,
    environ: Mapping[str, str],
    stream: TextIO | None,
    *,
    suite: Path | None,
    strip: Strip,
) -> Progress:
    """What tells of a run that begins.

    Args:
        asked: The way that was asked for; None if none was.
        environ: The variables of the process.
        stream: Its stderr; None where nobody can read that.
        suite: The file of the suite.
        strip: What must not be shown of rows.
    """
    if stream is None:
        return Progress()
    mode = choose_mode(asked, environ, is_terminal=stream.isatty())
    # Each is imported where it is used.
    if mode == "live" and stream.isatty():  # elsewhere it would only fill a file
        from trioeval.cli.progress.live import LiveProgress  # noqa: PLC0415

        return LiveProgress()
    if mode == "github":
        from trioeval.cli.progress.github import GithubProgress  # noqa: PLC0415

        root = Path(environ.get("GITHUB_WORKSPACE") or Path.cwd())
        return GithubProgress(suite, root.resolve(), strip)
    if mode == "json":
        from trioeval.cli.progress.json import JsonProgress  # noqa: PLC0415

        return JsonProgress()
    from trioeval.cli.progress.plain import PlainProgress  # noqa: PLC0415

    return PlainProgress()
