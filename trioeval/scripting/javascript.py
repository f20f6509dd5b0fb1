"""JavaScript code of a suite as a function of its arguments that an engine can run.

Needs the extra `js`. A script sees its arguments and has no access to the machine. It is run by
`trioeval.scripting.engine.program`, in another process. promptfoo makes functions of the same texts with `new
Function`, and so does this module, so the same texts are invalid.
"""

import importlib.util
import json
import re
from typing import Literal, TypeAlias

import attrs

from trioeval.scripting.engine import program

INSTALL = "pip install 'trioeval[js]'"
"""The command that installs the engine."""

Form: TypeAlias = Literal["value", "line", "body", "module"]
"""An expression or a function; the operand of `return`; statements; or a file that exports a function."""

_FUNCTION = re.compile(r"\s*(?:async\s+)?(?:function\b|\(?[\w\s,{}\[\]=.]*\)?\s*=>)")

_DECLARES = re.compile(r"(?:const|let|var)\s")
_TOKEN = re.compile(r"""(?s)"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|;""")
"""A string, or the end of a statement."""

_LITERAL = re.compile(
    r"""(?s)"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`|//[^\n]*|/\*.*?\*/"""
    r"""|(?:\A|\breturn\b|(?<=[(,=:\[!&|?{};>\n]))[ \t]*/(?![/*])"""
    r"""(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/"""
)
"""A string, a comment, or a regular expression."""

_TRY = re.compile(r"(?<![\w$.])try\s*\{")
_UNAVAILABLE = {
    "require": re.compile(r"(?<![\w$.])require\s*\("),
    "import": re.compile(r"(?m)^\s*import\b|(?<![\w$.])import\s*\("),
    "process": re.compile(r"(?<![\w$.])process\.\w"),
    "fetch": re.compile(r"(?<![\w$.])fetch\s*\("),
}
"""The parts of Node.js that the engine lacks."""

_SOURCE = """(function (written) {{
  const [{names}] = JSON.parse(written);
  const it = {it};
  const value = typeof it === "function" ? it({names}) : it;
  if (!(value instanceof Promise)) return JSON.stringify(value);
  const settled = {{}};
  value.then((made) => {{ settled.made = [made]; }}, (error) => {{ settled.error = [error]; }});
  return () => {{
    if (settled.error) throw settled.error[0];
    if (!settled.made) throw new TypeError("its promise is never settled");
    return JSON.stringify(settled.made[0]);
  }};
}})"""
"""Returns the result as JSON; for a promise, a function that does so when all jobs are done."""

_MODULE = """(function () {{
  const module = {{ exports: {{}} }};
  (function (module, exports) {{
{code}
  }})(module, module.exports);
  const exported = module.exports;
  const found = [{candidates}].find((it) => typeof it === "function");
  if (found === undefined) throw new TypeError({missing});
  return found;
}})()"""

_EXPORTS = (
    (re.compile(r"^export\s+default\s+", re.MULTILINE), r"module.exports.default = "),
    (
        re.compile(r"^export\s+((?:async\s+)?function\s*\*?\s*(\w+))", re.MULTILINE),
        r"module.exports.\2 = \2; \1",
    ),
    (
        re.compile(r"^export\s+(?:const|let|var)\s+(\w+)\s*=", re.MULTILINE),
        r"const \1 = module.exports.\1 =",
    ),
)
"""The simple exports of ECMAScript modules, translated to CommonJS."""


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
    """The names of the arguments, in order."""
    form: Form = "value"
    function: str | None = None
    """Of a module: the preferred export."""
    must_exist: bool = False
    """True if that export is required."""

    @property
    def source(self) -> str:
        """A function of the arguments, as a list in JSON, for `program.run`."""
        return _SOURCE.format(names=", ".join(self.names), it=self._it)

    def fault(self) -> str | None:
        """Return what is wrong with the code; None if nothing is detectable."""
        if importlib.util.find_spec("quickjs") is None:
            return f"is JavaScript, which requires an engine: {INSTALL}"
        if unavailable := _unavailable(self.code):
            return unavailable
        try:
            # Creating the function parses its body and runs none of it.
            made = self.form in {"line", "body"}
            program.engine().eval(f"({self._it})" if made else self.source)
        except Exception as error:  # noqa: BLE001 - the engine's own types, imported late
            return f"is not JavaScript: {program.first_line(error)}"
        return None

    @property
    def expression(self) -> str:
        """An expression of the engine whose value is the function, or what the code itself is."""
        return self._it

    @property
    def _it(self) -> str:
        match self.form:
            case "value":
                return f"(\n{self.code}\n  )"
            case "line":
                return _new_function(self.names, f"return {self.code}")
            case "body":
                return _new_function(self.names, self.code)
            case "module":
                code = self.code
                for exported, written in _EXPORTS:
                    code = exported.sub(written, code)
                candidates, missing = self._found
                return _MODULE.format(code=code, candidates=candidates, missing=missing)

    @property
    def _found(self) -> tuple[str, str]:
        """Return the candidates for a module's function, and the message if none exists."""
        missing = "it exports no function"
        if self.function is not None and self.must_exist:
            name = json.dumps(self.function)
            return (
                f"exported?.[{name}], exported?.default?.[{name}]",
                json.dumps(f"{missing} {name}"),
            )
        name = json.dumps(self.function or "default")
        return f"exported[{name}], exported, exported.default", json.dumps(missing)


def _unavailable(code: str) -> str | None:
    """Return a message about the first use of a missing feature; None if the code handles its absence."""
    plain = _LITERAL.sub(lambda found: _blank(found[0]), code)
    outside = _without_tries(plain)
    for name, used in _UNAVAILABLE.items():
        found = used.search(outside)
        if found is not None and (name == "import" or not _is_own(name, plain)):
            line = plain.count("\n", 0, found.start() + len(found[0]) - len(found[0].lstrip())) + 1
            return (
                f"uses {name} in line {line}, which is not available: JavaScript runs without Node.js "
                "and without modules; write it in one file of plain JavaScript, or in Python"
            )
    return None


def _is_own(name: str, plain: str) -> bool:
    """Return whether a name occurs other than before a call or a member, as where it is bound or tested."""
    own = rf"(?<![\w$.]){name}(?![\w$])(?!\s*[.(])|\bfunction\s+{name}\b|(?<![\w$.]){name}\s*\([^()]*\)\s*\{{"
    return re.search(own, plain) is not None


def _without_tries(plain: str) -> str:
    """Return the code with its `try` blocks blanked out."""
    parts: list[str] = []
    done = 0
    while found := _TRY.search(plain, done):
        end, depth = found.end(), 1
        while depth and end < len(plain):
            depth += {"{": 1, "}": -1}.get(plain[end], 0)
            end += 1
        parts += plain[done : found.end()], _blank(plain[found.end() : end])
        done = end
    return "".join([*parts, plain[done:]])


def _blank(text: str) -> str:
    return re.sub(r"[^\n]", " ", text)


def _new_function(names: tuple[str, ...], body: str) -> str:
    return f"new Function({', '.join(map(json.dumps, (*names, body)))})"


def transform_script(code: str, names: tuple[str, ...]) -> Script:
    r"""Return a transform as promptfoo reads it: an expression if on one line, else a body that returns.

    A function is called, which promptfoo does not do.

    Example:
        >>> for code in ("output.trim();", "const x = 1\nreturn x", "(output) => output.length"):
        ...     program.run(transform_script(code, ("output",)).source, [" a "])
        {'value': 'a'}
        {'value': 1}
        {'value': 3}
    """
    if is_function(code):
        script = Script(code.strip().rstrip(";"), names)
        if script.fault() is None:  # a body may begin with its own function
            return script
    return Script(code, names, "body" if "\n" in code else "line")


def assertion_script(code: str, names: tuple[str, ...]) -> Script:
    r"""Return an assertion as promptfoo reads it: an expression if on one line, else a body that returns.

    A line that begins with a declaration returns the expression after its last semicolon.

    Example:
        >>> for code in (
        ...     "output.length > 3;",
        ...     "const n = output.length; n / 10",
        ...     "if (output)\n return 1",
        ... ):
        ...     program.run(assertion_script(code, ("output",)).source, ["abc"])
        {'value': False}
        {'value': 0.3}
        {'value': 1}
    """
    code = code.rstrip()
    return Script(code if "\n" in code else _returning(code), names, "body")


def _returning(line: str) -> str:
    line = line.strip().rstrip("; \t")
    if not _DECLARES.match(line):
        return f"return {line}"
    last = max((found.start() for found in _TOKEN.finditer(line) if found[0] == ";"), default=None)
    if last is None:
        return line
    return f"{line[: last + 1]} return {line[last + 1 :]}"


def is_function(code: str) -> bool:
    """Return whether a text is written as a function, rather than as an expression or a template.

    Example:
        >>> is_function("(prompt) => prompt.trim()"), is_function("question => {{prompt}}")
        (True, False)
    """
    return "{{" not in code and _FUNCTION.match(code) is not None
