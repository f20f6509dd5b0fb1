"""Which commands of assertions nobody can start here, found before an agent has worked for them."""

import os
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioeval.errors import Problem
from trioeval.grading import Assertion
from trioeval.grading.algebra import leaves
from trioeval.grading.kinds import split_type
from trioeval.grading.text import is_template, quote
from trioeval.suite import Expansion


def missing_commands(steps: Expansion, environ: Mapping[str, str]) -> Iterator[Problem]:
    """Assertions whose command names a program that is not in PATH.

    One with a slash may be what an agent is to make, and one with variables is known when it is run.

    Args:
        steps: Everything that is run.
        environ: That of the suite's code.
    """
    default = steps.suite.default_test
    if default is not None:
        yield from _missing("$.defaultTest", default.assertions, environ)
    for place, test in enumerate(steps.suite.tests):
        yield from _missing(steps.path_of(place), test.assertions, environ)


def _missing(
    path: str, assertions: Sequence[Assertion], environ: Mapping[str, str]
) -> Iterator[Problem]:
    for place, assertion in leaves(assertions):
        if split_type(assertion.type)[0] != "command":
            continue
        own = assertion.value.get("env", {}) if isinstance(assertion.value, Mapping) else {}
        program = _program(assertion.value)
        if program is None or "PATH" in own or is_template(program) or os.sep in program:
            continue
        if shutil.which(program, path=environ.get("PATH", os.defpath)) is None:
            below = "".join(f".assert[{number}]" for number in place)
            message = f"{quote(program)} is not a program in PATH"
            yield Problem(f"{path}{below}.value", message)


def _program(value: Any) -> str | None:
    """The first word of a command; None of one that is known later."""
    said = value.get("command") if isinstance(value, Mapping) else value
    if isinstance(said, str):
        # Words of a template are those of what it gives.
        words = said.split(maxsplit=1)[:1] if is_template(said) else shlex.split(said)
    else:
        words = list(said) if isinstance(said, list | tuple) else []
    return words[0] if words and not set(words[0]) & set("{}'\"") else None
