"""Tells mistakes in what a flag says as that flag's, and not as those of a suite that says something else."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import attrs

from trioeval.cli.flags import WhatFlags
from trioeval.errors import Problem, SuiteError


@contextmanager
def blaming_flags(flags: WhatFlags) -> Iterator[None]:
    """Problems at keys that flags give name the flag in place of file, line and path.

    Raises:
        SuiteError: The one that the block raised, told so.
    """
    try:
        yield
    except SuiteError as error:
        named = _named(flags)
        told = [_told(problem, named) for problem in error.problems]
        raise SuiteError(told, files=error.files) from None


def _named(flags: WhatFlags) -> Mapping[str, str]:
    """What is given, by the key that it stands for."""
    given = {
        "prompts": ("-p", flags.prompts),
        "providers": ("-r", flags.providers),
        "extensions": ("-x", flags.extension),
        "tests": ("-t", () if flags.tests is None else (flags.tests,)),
    }
    return {
        f"$.{key}": f"{flag} {values[0]}" if len(values) == 1 else flag
        for key, (flag, values) in given.items()
        if values
    }


def _told(problem: Problem, named: Mapping[str, str]) -> Problem:
    for path, flag in named.items():
        rest = problem.path.removeprefix(path)
        if rest != problem.path and (not rest or rest[0] in "[."):
            return attrs.evolve(problem, path=flag, file=None, line=None, column=None)
    return problem
