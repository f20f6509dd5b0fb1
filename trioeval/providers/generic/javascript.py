"""JavaScript of a suite: checked when the entry is read, and run in a worker process.

Needs the extra `js`. A script is an expression, or a function that is called; it sees its arguments and has
no access to the machine. What runs it is `trioeval.providers.generic.engine.program`.
"""

import importlib.util
import re
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs

from trioeval.providers.generic.engine import program
from trioeval.providers.programs.workers import WorkerSpec

WORKERS = 2
"""Scripts of one provider that run at once."""

INSTALL = "pip install 'trioeval[js]'"
"""What brings the engine."""

_FUNCTION = re.compile(r"\s*(?:async\s+)?(?:function\b|\(?[\w\s,{}\[\]=.]*\)?\s*=>)")

_SOURCE = """(function (written) {{
  const [{names}] = JSON.parse(written);
  const it = (
{code}
  );
  const value = typeof it === "function" ? it({names}) : it;
  if (value instanceof Promise) throw new TypeError("it is async; a result is needed at once");
  return JSON.stringify(value);
}})"""


@attrs.frozen
class Script:
    """An expression of JavaScript, or a function that is called.

    Example:
        >>> script = Script("(json) => json.answer", ("json", "text"))
        >>> program.run(script.source, [{"answer": 42}, "…"])
        {'value': 42}
    """

    code: str
    names: tuple[str, ...]
    """What the arguments are called, in their order."""

    @property
    def source(self) -> str:
        """A function of the arguments, as a list in JSON, that gives the result in JSON."""
        return _SOURCE.format(names=", ".join(self.names), code=self.code)

    def fault(self) -> str | None:
        """What is wrong with the code as it is written; None if nothing is, as far as can be seen."""
        if importlib.util.find_spec("quickjs") is None:
            return f"is JavaScript, for which an engine is needed: {INSTALL}"
        try:
            program.engine().eval(self.source)
        except Exception as error:  # noqa: BLE001 - the engine's own types, imported late
            return f"is not JavaScript: {program.first_line(error)}"
        return None


def is_function(code: str) -> bool:
    """Whether a text is written as a function, rather than as an expression or a template.

    Example:
        >>> is_function("(prompt) => prompt.trim()"), is_function("question => {{prompt}}")
        (True, False)
    """
    return "{{" not in code and _FUNCTION.match(code) is not None


def engine_workers(directory: Path, environ: Mapping[str, str]) -> WorkerSpec:
    """The workers that run scripts.

    Args:
        directory: Where they run; absolute.
        environ: What they inherit.
    """
    return WorkerSpec(
        name="JavaScript",
        executable=sys.executable,
        file=Path(program.__file__),
        function="run",
        cwd=directory,
        environ=environ,
        workers=WORKERS,
    )
