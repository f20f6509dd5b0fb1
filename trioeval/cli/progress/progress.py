"""The progress of a run: the interface of all modes, and the choice of a mode."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import trio

from trioeval.cli.flags import ProgressMode
from trioeval.cli.progress.streams import is_github
from trioeval.cli.terminal import say
from trioeval.report.records import RowRecord
from trioeval.report.run_state import RunSnapshot
from trioeval.report.strip import Strip

_DUMB = frozenset({"dumb", "unknown"})
"""Terminals that cannot draw."""


def choose_mode(
    chosen: ProgressMode | None, environ: Mapping[str, str], *, is_terminal: bool
) -> ProgressMode:
    """Return the mode of progress.

    Args:
        chosen: The mode that the user chose; None chooses one.
        environ: The environment.
        is_terminal: Whether stderr is a terminal.

    Example:
        >>> choose_mode(None, {"TERM": "xterm"}, is_terminal=True)
        'live'
        >>> choose_mode(None, {"TERM": "dumb"}, is_terminal=True)
        'plain'
    """
    if chosen is not None:
        return chosen
    if is_github(environ):
        return "github"
    is_dumb = environ.get("TERM", "").lower() in _DUMB
    return "live" if is_terminal and not is_dumb else "plain"


class RunProgress:
    """Progress on stderr. This base class prints the last line only."""

    def add(self, record: RowRecord) -> None:
        """Add an ended row; its record has all of its parts."""

    async def show(
        self, _state: Callable[[], RunSnapshot], _more: Callable[[], Sequence[str]], /
    ) -> None:
        """Show the state of the run until cancelled, or until it cannot be shown.

        Args:
            _state: Returns the present state.
            _more: Returns further lines, which are inert.
        """
        await trio.lowlevel.checkpoint()

    @contextmanager
    def results(self) -> Iterator[None]:
        """Enclose the output of the results."""
        yield

    def end(self, _code: int, line: str) -> None:
        """End the progress with the last line."""
        say(line)


def open_progress(
    chosen: ProgressMode | None,
    environ: Mapping[str, str],
    stream: TextIO | None,
    *,
    suite: Path | None,
    strip: Strip,
) -> RunProgress:
    """Return the progress of a run.

    Args:
        chosen: The mode that the user chose; None chooses one.
        environ: The environment.
        stream: The stderr of the process; None if it is closed.
        suite: The file of the suite.
        strip: The parts of rows that must not be shown.
    """
    if stream is None:
        return RunProgress()
    mode = choose_mode(chosen, environ, is_terminal=stream.isatty())
    # Each is imported on demand.
    if mode == "live" and stream.isatty():  # in a file it would be useless
        from trioeval.cli.progress.live import LiveProgress

        return LiveProgress()
    if mode == "github":
        from trioeval.cli.progress.github import GithubProgress

        root = Path(environ.get("GITHUB_WORKSPACE") or Path.cwd())
        return GithubProgress(suite, root.resolve(), strip)
    if mode == "json":
        from trioeval.cli.progress.json import JsonProgress

        return JsonProgress()
    from trioeval.cli.progress.plain import PlainProgress

    return PlainProgress()
