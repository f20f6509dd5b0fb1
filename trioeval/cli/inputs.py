"""From the suite files and flags of a command line to a suite."""

import glob
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.cli.flags import WhatFlags
from trioeval.errors import UsageError
from trioeval.suite import MistakenError, Suite, load_suite, parse_suite
from trioeval.suite.documents import read_document, suite_files

_FILE = "file://"


def load_inputs(suite: Path | None, flags: WhatFlags, environ: Mapping[str, str]) -> Suite:
    """The suite of a command line.

    Raises:
        SuiteError: It is wrong.
        UsageError: A flag is, or nothing says what is to be run.
    """
    given = given_parts(flags)
    files = ([] if suite is None else [suite]) + _configs(flags.config)
    if files and given:
        return load_suite(*files, environ=environ, allow_outside=flags.allow_outside, given=given)
    if files:
        return load_suite(*files, environ=environ, allow_outside=flags.allow_outside)
    if not given:
        raise UsageError("name a suite file: trioeval run SUITE, or see --help")
    # All that there is was named on the command line, so it may lie anywhere.
    return parse_suite(given, environ=environ, allow_outside=True)


def _configs(patterns: Sequence[str]) -> list[Path]:
    try:
        return list(suite_files(patterns)) if patterns else []
    except MistakenError as error:
        raise UsageError("; ".join(f"--config: {part.message}" for part in error.parts)) from None


def given_parts(flags: WhatFlags) -> dict[str, Any]:
    """The parts of a suite that flags put in place of what its file says, as plain data.

    Raises:
        UsageError: A file of theirs cannot be used.
    """
    given: dict[str, Any] = {}
    if flags.prompts:
        given["prompts"] = [part for text in flags.prompts for part in _prompts(text)]
    if flags.providers:
        given["providers"] = list(flags.providers)
    if flags.extension:
        given["extensions"] = [_absolute(text) for text in flags.extension]
    if flags.tests is not None:
        given["tests"] = _absolute(flags.tests)
    if flags.assertions is None and flags.model_outputs is None:
        return given
    if flags.assertions is None or flags.model_outputs is None:
        raise UsageError("--assertions and --model-outputs need each other")
    return given | _of_outputs(flags.assertions, flags.model_outputs)


def _prompts(text: str) -> Iterable[str]:
    """The files that a text names; itself if it names none, for it may be a prompt."""
    plain = text.removeprefix(_FILE)
    if Path(plain).is_file():
        return [_absolute(text)]
    found = sorted(name for name in glob.iglob(plain, recursive=True) if Path(name).is_file())  # noqa: PTH207 - absolute too
    return [_absolute(name) for name in found] or [_absolute(text) if text != plain else text]


def _absolute(reference: str) -> str:
    """A path of the working directory as a suite elsewhere can say it; other schemes as they are."""
    plain = reference.removeprefix(_FILE)
    return reference if "://" in plain else f"{_FILE}{Path.cwd() / plain}"


def _of_outputs(assertions: Path, outputs: Path) -> dict[str, Any]:
    """A suite that judges outputs that are there already."""
    try:
        judged = read_document(assertions).data
    except MistakenError as error:
        lines = "; ".join(part.message for part in error.parts)
        raise UsageError(f"--assertions {assertions}: {lines}") from None
    if not isinstance(judged, list):
        raise UsageError(f"--assertions {assertions}: must be a list of assertions")
    return {
        "prompts": ["{{output}}"],
        "providers": ["echo"],
        "tests": [
            {
                "vars": _output_vars(entry, f"--model-outputs {outputs}: entry {place}"),
                "assert": judged,
            }
            for place, entry in enumerate(_read_outputs(outputs))
        ],
    }


def _read_outputs(path: Path) -> list[Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise UsageError(f"--model-outputs {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--model-outputs {path}: not JSON: {error}") from None
    if not isinstance(found, list):
        raise UsageError(f"--model-outputs {path}: must be a list of texts or objects")
    return found


def _output_vars(entry: Any, where: str) -> dict[str, Any]:
    match entry:
        case str():
            return {"output": entry}
        case {"output": str(output), "tags": list(tags)}:
            return {"output": output, "tags": ", ".join(map(str, tags))}
        case {"output": str(output)}:
            return {"output": output}
        case _:
            raise UsageError(f'{where} must be a text or {{"output": "…", "tags": ["…"]}}')


def environ_with(files: Iterable[Path]) -> Mapping[str, str]:
    """The environment, with what files say in place of what is not set, or empty; later files win.

    Raises:
        UsageError: One of them cannot be read, or has lines that say nothing.
    """
    named = list(files)
    if not named:
        return os.environ
    from trioeval.cli.env_file import read_env_file  # noqa: PLC0415 - its parser is rarely needed

    found: dict[str, str] = {}
    for file in named:
        found |= read_env_file(file)
    set_already = {name: value for name, value in os.environ.items() if value}
    return {**os.environ, **found, **set_already}
