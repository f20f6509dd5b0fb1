"""JavaScript code of a suite as a function of its arguments that an engine can run.

A script that needs nothing of Node is run by `trioeval.scripting.engine.program`, in another process: it sees
its arguments, and has no access to the machine. Any other one is run by Node (`trioeval.scripting.node`).
Which of them runs a script depends on its text alone, so it is the same on every machine. promptfoo makes
functions of the same texts with `new Function`, and so does this module, so the same texts are invalid.
"""

import json
import os
import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias

import attrs

from trioeval.scripting import TYPESCRIPT
from trioeval.scripting.engine import program
from trioeval.scripting.node import node_fault

Form: TypeAlias = Literal["value", "line", "body", "module"]
"""An expression or a function; the operand of `return`; statements; or a file that exports a function."""

_FUNCTION = re.compile(r"\s*(?:async\s+)?(?:function\b|\(?[\w\s,{}\[\]=.]*\)?\s*=>)")

_STATEMENT = re.compile(r"\s*(?:return|throw)\b")
_DECLARES = re.compile(r"(?:const|let|var)\s")
_TOKEN = re.compile(r"""(?s)"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`(?:\\.|[^`\\])*`|;""")
"""A string, or the end of a statement."""

_LITERAL = re.compile(
    r"""(?s)"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`|//[^\n]*|/\*.*?\*/"""
    r"""|(?:\A|\breturn\b|(?<=[(,=:\[!&|?{};>\n]))[ \t]*/(?![/*])"""
    r"""(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/"""
)
"""A string, a comment, or a regular expression."""

_NAMES_OF_NODE = (
    *(
        "__dirname",
        "__filename",
        "AbortController",
        "AbortSignal",
        "Blob",
        "Buffer",
        "FormData",
        "Headers",
    ),
    *(
        "Intl",
        "Request",
        "Response",
        "TextDecoder",
        "TextEncoder",
        "URL",
        "URLSearchParams",
        "WebAssembly",
    ),
    *(
        "WebSocket",
        "clearInterval",
        "clearTimeout",
        "crypto",
        "fetch",
        "global",
        "process",
        "require",
    ),
    *("setImmediate", "setInterval", "setTimeout", "structuredClone"),
)
"""The global names of Node that the engine lacks."""

_OF_NODE = re.compile(
    rf"(?<![\w$.])(?:{'|'.join(_NAMES_OF_NODE)})(?![\w$])(?!\s*:(?!:))"
    r"|(?<=\.)(?:localeCompare|toLocale(?:Date|Time)?String)(?![\w$])"
)
"""Those names, and the methods whose results need the rules of a language, which the engine does not have."""

_MODULES = re.compile(r"(?m)^\s*(import|export)\b|(?<![\w$.])(import)\s*[(.]")
"""Statements of ECMAScript modules that are left after the simple ones were translated."""

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


_FOR_NODE = """(async function (written) {{
  const [{names}] = JSON.parse(written);
  const it = {it};
  return typeof it === "function" ? it({names}) : it;
}})"""


@attrs.frozen
class Script:
    """An expression of JavaScript, or a function that is called.

    Example:
        >>> script = Script("(json) => json.answer", ("json", "text"))
        >>> program.run(script.source, [{"answer": 42}, "…"])
        {'value': 42}
        >>> script.needs_node, Script("(json) => new URL(json).host", ("json",)).needs_node
        (None, 'uses URL in line 1')
    """

    code: str
    names: tuple[str, ...]
    """The names of the arguments, in order."""
    form: Form = "value"
    function: str | None = None
    """Of a module: the preferred export."""
    must_exist: bool = False
    """True if that export is required."""
    file: Path | None = None
    """The file of a module, which Node loads itself; absolute."""

    @property
    def source(self) -> str:
        """A function of the arguments, as a list in JSON, for `program.run`, or for the worker of Node."""
        names = ", ".join(self.names)
        if self.needs_node is None:
            return _SOURCE.format(names=names, it=self._it)
        if self.file is None:
            return _FOR_NODE.format(names=names, it=self._it)
        found = f"await trioevalFind({json.dumps(str(self.file))}, {json.dumps(self.target)})"
        return _FOR_NODE.format(names=names, it=found)

    @property
    def needs_node(self) -> str | None:
        """The reason why Node must run it, such as "uses fetch in line 3"; None if the engine can."""
        if self.file is not None and self.file.suffix.lower() in TYPESCRIPT:
            return "is TypeScript"
        if self.file is not None and self.function is not None and "." in self.function:
            return "names a function inside of an object"
        return _need(self.code, is_module=self.form == "module")

    @property
    def target(self) -> str:
        """The function for the worker of Node."""
        if self.file is None:
            return "script:"
        return f"{'exact' if self.function and self.must_exist else 'prefer'}:{self.function or ''}"

    def fault(self, environ: Mapping[str, str] | None = None) -> str | None:
        """Return what is wrong with the code; None if nothing is detectable.

        Args:
            environ: The environment in which Node is looked for; the process environment if None.
        """
        if need := self.needs_node:
            return node_fault(need, os.environ if environ is None else environ, self.file)
        if self.form == "line" and is_one_statement(self.code):
            return None
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
                candidates, missing = self._found
                return _MODULE.format(
                    code=_translated(self.code), candidates=candidates, missing=missing
                )

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


@lru_cache(512)
def _need(code: str, *, is_module: bool) -> str | None:
    """Return the first use of Node, which the engine lacks; None if there is none."""
    plain = _LITERAL.sub(lambda found: _without_text(found[0]), code)
    if is_module:
        plain = _translated(plain)
    uses = [
        (found.start(1 + (found[1] is None)), found[1] or found[2])
        for found in _MODULES.finditer(plain)
    ]
    uses += [
        (found.start(), found[0])
        for found in _OF_NODE.finditer(plain)
        if not _is_bound(found[0], plain)
    ]
    if not uses:
        return None
    place, name = min(uses)
    use = f"uses {name} in line {plain.count(chr(10), 0, place) + 1}"
    is_statement = name in ("export", "import") and not plain.startswith("(", place + len(name))
    return f"is an ES module: it {use}" if is_module and is_statement else use


def _is_bound(name: str, plain: str) -> bool:
    """Return whether code binds a name itself, as a variable, a function or a parameter."""
    word = rf"(?<![\w$.]){name}(?![\w$])"
    own = (
        rf"\b(?:const|let|var|function|class)\s+(?:{word}|[\[{{][^\]}}=]*{word})"
        rf"|\([^()]*{word}(?!\s*[(.])[^()]*\)\s*(?:=>|\{{)|{word}\s*(?:=>|\([^()]*\)\s*\{{)"
    )
    return re.search(own, plain) is not None


def _translated(code: str) -> str:
    for exported, written in _EXPORTS:
        code = exported.sub(written, code)
    return code


def _without_text(literal: str) -> str:
    """Return blanks for a literal, except for the expressions in a template."""
    if not literal.startswith("`"):
        return _blank(literal)
    parts = re.split(r"(\$\{[^{}]*\})", literal)
    return "".join(part if place % 2 else _blank(part) for place, part in enumerate(parts))


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


def is_one_statement(code: str) -> bool:
    """Return whether code on one line is a statement, which makes every call fail as it does in promptfoo.

    Example:
        >>> is_one_statement("return output.length > 3"), is_one_statement("output.length > 3")
        (True, False)
    """
    return "\n" not in code.rstrip() and _STATEMENT.match(code) is not None


def is_function(code: str) -> bool:
    """Return whether a text is written as a function, rather than as an expression or a template.

    Example:
        >>> is_function("(prompt) => prompt.trim()"), is_function("question => {{prompt}}")
        (True, False)
    """
    return "{{" not in code and _FUNCTION.match(code) is not None
