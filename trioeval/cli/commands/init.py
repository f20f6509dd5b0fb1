"""`trioeval init`: a starter suite that runs at once, without a key."""

import os
import shlex
from pathlib import Path

from trioeval.cli.flags import InitFlags
from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import UsageError

_SUITE = """\
# A suite: every test runs with every prompt on every provider, and assertions check each output.
# Run it:   {command}
description: My first suite

providers:
  # `echo` replies with the prompt: it costs nothing and needs no key.
  - echo
  # `sequence` replies with these texts in order.
  - id: sequence
    label: made up
    config:
      inputs:
        - The capital of France is Paris.
        - The capital of Peru is Lima.
  # A real model. Its key is read from the environment variable OPENAI_API_KEY.
  # - id: openai:chat:gpt-4.1-mini
  #   config:
  #     temperature: 0
  #   lane:                   # the limits of the account
  #     maxConcurrency: 8
  #     rpm: 500

prompts:
  # {{{{country}}}} in this file is replaced by the variable of each test.
  - file://prompt.txt

# Assertions of every output.
defaultTest:
  assert:
    - type: icontains
      value: capital

# One test a line. Columns are variables; `__expected` is a further assertion.
tests: file://tests.csv

# Limits of a run.
# evaluateOptions:
#   timeoutMs: 60000
#   budget:
#     usd: 1
"""

_PROMPT = """\
What is the capital of {{country}}?
"""

_TESTS = """\
country,__expected
France,icontains:France
Peru,icontains:Peru
"""


def write_suite(folder: Path | None, flags: InitFlags) -> int:
    """Write a starter suite, or a suite for a table if the flags name one.

    Raises:
        UsageError: A flag cannot be used, or a file exists or cannot be written.
    """
    if flags.csv is not None:
        from trioeval.cli.commands.init_csv import write_table_suite

        return write_table_suite(folder, flags.csv, flags, os.environ)
    given = {
        "--model": flags.model,
        "--base-url": flags.base_url,
        "--answer-column": flags.answer_column,
        "--question-column": flags.question_column,
        "-o": flags.output,
    }
    if names := [name for name, value in given.items() if value]:
        raise UsageError(f"{', '.join(names)}: only with --csv FILE")
    return write_starter(folder or Path())


def write_starter(folder: Path) -> int:
    """Write the files of a starter suite, and print the command that runs it.

    Raises:
        UsageError: A file exists, or the folder cannot be written to.
    """
    suite = folder / "suite.yaml"
    command = shlex.join(["trioeval", str(suite)])
    files = {
        suite: _SUITE.format(command=command),
        folder / "prompt.txt": _PROMPT,
        folder / "tests.csv": _TESTS,
    }
    if existing := [str(path) for path in files if path.exists() or path.is_symlink()]:
        raise UsageError(f"{', '.join(existing)}: already exists; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror or error}") from None
    for path in files:
        say(f"wrote {path}")
    show(command)
    return Exit.OK
