"""Values of assertions that a program computes: `file://<file>[:<function>]`."""

import re
import shutil

from trioeval.grading import Computed, quote
from trioeval.scripting.javascript import Script
from trioeval.suite.anchors import FILE
from trioeval.suite.mistakes import Mistake, MistakenError
from trioeval.suite.sources.around import Around
from trioeval.suite.sources.prompt_files import read_python, read_text

JAVASCRIPT = frozenset({".cjs", ".js", ".mjs"})
RUBY = ".rb"

_PROGRAM = re.compile(r"(?i)(.+?\.(?:py|[cm]?[jt]s|rb))(?::([\w.]+[?!]?))?")


def names_program(text: str) -> bool:
    """Whether a reference names a file of code.

    Example:
        >>> names_program("file://check.py:judge"), names_program("file://check.txt")
        (True, False)
    """
    return _PROGRAM.fullmatch(text.removeprefix(FILE)) is not None


def read_computed(text: str, around: Around) -> Computed | None:
    """The program that a reference names, after a look at whether it can be run; None if it names none.

    Raises:
        MistakenError: It cannot: there is no such file, it is wrong as it is written, or what runs it is not
            installed.
    """
    parts = _PROGRAM.fullmatch(text.removeprefix(FILE))
    if parts is None:
        return None
    around.check_code(quote(text))
    file, function = around.file(parts[1]), parts[2]
    match file.suffix.lower():
        case ".py":
            read_python(file, parts[1], function)
        case ".rb":
            check_ruby(around)
            read_text(file)
        case suffix if suffix in JAVASCRIPT:
            script = Script(read_text(file), ("output", "context"), "module", function)
            if fault := script.fault():
                raise MistakenError(Mistake(f"{quote(parts[1])} {fault}"))
        case suffix:
            message = f"{quote(text)} is TypeScript, which cannot be run"
            hint = f"compile it, and name the {suffix.replace('t', 'j')} file"
            raise MistakenError(Mistake(message, hint))
    return Computed(file, function, text)


def ruby_command(around: Around) -> str:
    """What the interpreter of Ruby is called."""
    return around.variable("RUBY") or "ruby"


def check_ruby(around: Around) -> None:
    """See to it that Ruby can be run.

    Raises:
        MistakenError: There is no interpreter.
    """
    command = ruby_command(around)
    if shutil.which(command, path=around.environ.get("PATH")) is None:
        message = f"{quote(command)} is not there, which runs Ruby"
        raise MistakenError(Mistake(message, "install Ruby, or name it with TRIOEVAL_RUBY"))
