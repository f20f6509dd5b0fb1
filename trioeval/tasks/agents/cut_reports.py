"""Reports of attempts that were cut off: what they used counts, although the attempt is begun again.

The report of such an attempt is set aside before the next program may write its own. Blocks on files.
"""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import attrs

from trioeval.agents.attempts import AttemptEnd, AttemptFailure
from trioeval.providers import Usage
from trioeval.tasks.agents.case_files import CaseFiles
from trioeval.tasks.agents.report_file import AttemptReport, read_report_file

CUT_OFF = "cutOff"
"""In the metadata of an attempt: how often it was begun before, cut off, and told what it had used."""


def set_aside(files: CaseFiles, number: int) -> None:
    """See that there is no report of an attempt that begins; one that was cut off may have left it."""
    report = files.report(number)
    # What is no file is told when it is read.
    with suppress(FileNotFoundError, IsADirectoryError, PermissionError):
        if report.is_symlink() or not report.is_file():
            report.unlink()
            return
        aside = next(path for path in _asides(files, number) if not path.exists())
        report.rename(aside)


def with_cut_off(end: AttemptEnd, files: CaseFiles, number: int) -> AttemptEnd:
    """How an attempt ended, with what it had used whenever it was cut off before."""
    found: list[AttemptReport] = []
    for path in _asides(files, number):
        if not path.exists():
            break
        found.append(read_report_file(path))
    if not found:
        return end
    costs = [cost for cost in (end.cost, *(one.cost for one in found)) if cost is not None]
    return attrs.evolve(
        end,
        usage=Usage.sum((end.usage, *(one.usage for one in found))),
        cost=sum(costs) if costs else None,
        metadata={**end.metadata, CUT_OFF: len(found)},
    )


def cut_off_attempt(files: CaseFiles, number: int) -> AttemptEnd | None:
    """What an attempt used that was begun and has not come to its end; None where nothing tells of it."""
    report = files.report(number)
    found = AttemptEnd(failure=AttemptFailure("killed", "cut off"))
    if report.exists():
        own = read_report_file(report)
        found = attrs.evolve(found, usage=own.usage, cost=own.cost)
    elif not next(_asides(files, number)).exists():
        return None
    return with_cut_off(found, files, number)


def _asides(files: CaseFiles, number: int) -> Iterator[Path]:
    """Where such reports are, in their order."""
    report = files.report(number)
    return (report.with_suffix(f".cut-{count}.json") for count in itertools.count(1))
