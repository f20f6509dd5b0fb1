"""What of a reply is the output: `transformResponse`, read once into something that can be applied.

The form tells the language, and no form has two meanings:

* a member path from `json`, `text` or `context` (`json.choices[0].message.content`);
* JSONPath, which begins with `$`; a path that can find one value gives that, any other the list of all;
* JMESPath, which begins with `jmespath:`;
* anything else is JavaScript, an expression or a function of `(json, text, context)`, and runs elsewhere.

Queries that are not cheap run elsewhere as well: see `trioeval.scripting.queries.program`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, TypeAlias

import attrs

from trioeval.errors import TrioevalError
from trioeval.providers.config import show
from trioeval.scripting.javascript import Script
from trioeval.scripting.queries import program

NOTHING = object()
"""Stands for a value that there is not."""

_MEMBER = r"""\??\.([A-Za-z_$][\w$]*)|(?:\?\.)?\[(?:(\d+)|'([^'\\]*)'|"([^"\\]*)")\]"""
_STEP = re.compile(_MEMBER)
_PATH = re.compile(rf"(json|text|context)((?:{_MEMBER})*)")
_JMESPATH = "jmespath:"
_FILE = "file://"


class TransformError(TrioevalError):
    """A transform that gives nothing for this reply; the message says why."""


@attrs.frozen(kw_only=True)
class Answer:
    """What a transform sees of a reply."""

    json: Any
    """The parsed body; `NOTHING` if it is not JSON."""
    text: str
    context: Mapping[str, Any]
    """`response` (status and headers) and `vars`."""

    def arguments(self) -> list[Any]:
        """The three as data of JSON, for code; what is not JSON is null, or its text."""
        data = None if self.json is NOTHING else self.json
        return [data, self.text, plain(self.context)]


def plain(data: Any) -> Any:
    """Data of a suite, such as variables, as data of JSON: a date is its text."""
    return json.loads(json.dumps(data, default=str))


@attrs.frozen
class MemberPath:
    """Members of members, as JavaScript and Python write them."""

    written: str
    root: str
    steps: tuple[str | int, ...] = ()

    def apply(self, answer: Answer, /) -> Any:
        """The value at the end of the path.

        Raises:
            TransformError: There is none, or it is null.
        """
        value = getattr(answer, self.root)
        for step in self.steps:
            value = _member(value, step)
        return _found(value, answer, self.written, needs_json=self.root == "json")


@attrs.frozen
class Query:
    """A query of RFC 9535, or in the language of jmespath.org."""

    written: str
    language: program.Language

    def is_quick(self, size: int) -> bool:
        """Whether it finds what it finds in so little time that others can wait for it.

        Args:
            size: Bytes or characters of the document, as JSON.
        """
        return size <= program.CHEAP and program.is_cheap(self.language, self.written)

    def arguments(self, answer: Answer) -> list[Any]:
        """What `program.run` is called with.

        Raises:
            TransformError: There is no JSON to look into.
        """
        _found(answer.json, answer, self.written, needs_json=True)
        return [self.language, self.written, answer.json]

    def output(self, told: Mapping[str, Any]) -> Any:
        """The value that the query found; of a JSONPath that may find several, the list of all.

        Args:
            told: What `program.run` gave.

        Raises:
            TransformError: It found none, or failed.
        """
        if "error" in told:
            raise self.failure(told["error"])
        values = told["values"]
        if not values or (told["singular"] and values[0] is None):
            raise TransformError(f"{self.written} finds nothing in the reply")
        return values[0] if told["singular"] else values

    def failure(self, why: str) -> TransformError:
        """What is raised where it fails."""
        return TransformError(f"{self.written} fails: {why}")

    def apply(self, answer: Answer, /) -> Any:
        """The output, found in this process: for queries that are quick.

        Raises:
            TransformError: There is none.
        """
        return self.output(program.run(*self.arguments(answer)))


Transform: TypeAlias = MemberPath | Query
"""Finds the output in a reply."""


def read_transform(text: str) -> Transform | Script | str:
    """The transform that a text is, or what is wrong with it, for the sentence "it …"."""
    code = text.strip()
    if found := _PATH.fullmatch(code):
        steps = tuple(
            int(index) if index else name or single or double
            for name, index, single, double in _STEP.findall(found[2])
        )
        return MemberPath(code, found[1], steps)
    if code.startswith("$"):
        return _read_query("jsonpath", code, "JSONPath")
    if code.startswith(_JMESPATH):
        return _read_query("jmespath", code.removeprefix(_JMESPATH).strip(), "JMESPath")
    if code.startswith(_FILE):
        return "names a file that is not a Python file; write file://<file.py>, or the code itself"
    script = Script(code, ("json", "text", "context"))
    return script.fault() or script


def script_output(script: Script, told: Mapping[str, Any]) -> Any:
    """The output that a script found, from what its engine told.

    Raises:
        TransformError: It failed, or gave nothing.
    """
    shown = show(script.code)
    if "error" in told:
        raise TransformError(f"{shown} fails: {told['error']}")
    if told["value"] is None:
        raise TransformError(f"{shown} finds nothing in the reply")
    return told["value"]


def _found(value: Any, answer: Answer, written: str, *, needs_json: bool = False) -> Any:
    if needs_json and answer.json is NOTHING:
        raise TransformError(f"the reply is not JSON, and {written} looks into JSON")
    if value is NOTHING or value is None:
        raise TransformError(f"{written} finds nothing in the reply")
    return value


def _member(value: Any, step: str | int) -> Any:
    match value, step:
        case Mapping(), str() if step in value:
            return value[step]
        case list(), int() if step < len(value):
            return value[step]
        case list(), "length":
            return len(value)
        case _:
            return NOTHING


def _read_query(language: program.Language, query: str, name: str) -> Query | str:
    fault = program.fault(language, query)
    return Query(query, language) if fault is None else f"is not a {name}: {fault}"
