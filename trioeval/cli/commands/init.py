# Apart from `cli.app`: loaded when it is used.
"""`trioeval init`: a starter suite that runs at once, without a key."""

from pathlib import Path

from trioeval.cli.terminal import Exit, say, show
from trioeval.errors import UsageError

_SUITE = """\
# A suite: every test is asked with every prompt of every provider, and each answer is judged.
# Run it:   {command}
description: My first suite

providers:
  # `echo` answers with the question: it costs nothing and needs no key.
  - echo
  # `sequence` gives these answers, one after another.
  - id: sequence
    label: made up
    config:
      inputs:
        - The capital of France is Paris.
        - The capital of Peru is Lima.
  # A real one; its key is taken from the environment variable OPENAI_API_KEY.
  # - id: openai:chat:gpt-4.1-mini
  #   config:
  #     temperature: 0
  #   lane:                   # what its account allows
  #     maxConcurrency: 8
  #     rpm: 500

prompts:
  # {{{{country}}}} in the text of this file is replaced by the variable of each test.
  - file://prompt.txt

# What every answer must do.
defaultTest:
  assert:
    - type: icontains
      value: capital

# A line a test: columns are variables, and `__expected` says what its answer must do as well.
tests: file://tests.csv

# The most that a run may use.
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


def write_starter(folder: Path) -> int:
    """Write the files of a starter suite, and say how it is run.

    Raises:
        UsageError: One of them is there already, or the folder cannot be written to.
    """
    suite = folder / "suite.yaml"
    command = f"trioeval {suite}"
    files = {
        suite: _SUITE.format(command=command),
        folder / "prompt.txt": _PROMPT,
        folder / "tests.csv": _TESTS,
    }
    if there := [str(path) for path in files if path.exists() or path.is_symlink()]:
        raise UsageError(f"{', '.join(there)}: there already, and not overwritten")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written to: {error.strerror or error}") from None
    for path in files:
        say(f"wrote {path}")
    show(command)
    return Exit.OK
