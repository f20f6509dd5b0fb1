"""What of a reply is the output: `transformResponse`, read once into something that can be applied.

The form tells the language, and no form has two meanings:

* a member path from `json`, `text` or `context` (`json.choices[0].message.content`);
* JSONPath, which begins with `$`; a path that can find one value gives that, any other the list of all;
* JMESPath, which begins with `jmespath:`;
* anything else is JavaScript, an expression or a function of `(json, text, context)`, and runs elsewhere.
"""

import functools
import json
import math
import re
from collections.abc import Mapping
from typing import Any, Protocol

import attrs

from trioeval.errors import TrioevalError
from trioeval.providers.config import show
from trioeval.scripting.javascript import Script

NOTHING = object()
"""Stands for a value that there is not."""

_QUERY = 8 * 1024
"""Bytes that a query may take some milliseconds for: it may look at everything, more than once."""

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


class Transform(Protocol):
    """Finds the output in a reply."""

    @property
    def large(self) -> float:
        """Bytes of a reply from which on it may take long, and must not run where others wait for it."""
        ...

    def apply(self, answer: Answer, /) -> Any:
        """The output, or an object with it and more.

        Raises:
            TransformError: There is none.
        """
        ...


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
        return _read_json_path(code)
    if code.startswith(_JMESPATH):
        return _read_jmes_path(code.removeprefix(_JMESPATH).strip())
    if code.startswith(_FILE):
        return "names a file that is no Python file; write file://<file.py>, or the code itself"
    script = Script(code, ("json", "text", "context"))
    return script.fault() or script


@attrs.frozen
class MemberPath:
    """Members of members, as JavaScript and Python write them."""

    written: str
    root: str
    steps: tuple[str | int, ...] = ()
    large: float = math.inf

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
class JsonPath:
    """A query of RFC 9535."""

    written: str
    _query: Any = attrs.field(repr=False, eq=False)
    large: float = _QUERY

    def apply(self, answer: Answer, /) -> Any:
        """The value that the query finds; a list of all where it may find several.

        Raises:
            TransformError: It finds none.
        """
        _found(answer.json, answer, self.written, needs_json=True)
        try:
            values = [match.value for match in self._query.finditer(answer.json)]
        except Exception as error:  # the library's own types, imported late
            raise TransformError(f"{self.written} fails: {_first_line(error)}") from error
        if self._query.singular_query():
            return _found(values[0] if values else NOTHING, answer, self.written)
        return _found(values or NOTHING, answer, self.written)


@attrs.frozen
class JmesPath:
    """A query in the language of jmespath.org."""

    written: str
    _query: Any = attrs.field(repr=False, eq=False)
    large: float = _QUERY

    def apply(self, answer: Answer, /) -> Any:
        """What the query finds.

        Raises:
            TransformError: It finds nothing, or a function in it fails.
        """
        _found(answer.json, answer, self.written, needs_json=True)
        try:
            value = self._query.search(answer.json)
        except Exception as error:  # the library's own types, imported late
            raise TransformError(f"{self.written} fails: {_first_line(error)}") from error
        return _found(value, answer, self.written)


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


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _read_json_path(code: str) -> Transform | str:
    try:
        return JsonPath(code, _json_path_environment().compile(code))
    except Exception as error:  # noqa: BLE001 - the library's own types, imported late
        return f"is not a JSONPath: {_first_line(error)}"


def _read_jmes_path(code: str) -> Transform | str:
    import jmespath  # noqa: PLC0415 - few suites need it

    try:
        return JmesPath(code, jmespath.compile(code))
    except (jmespath.exceptions.JMESPathError, RecursionError) as error:
        return f"is not a JMESPath: {_first_line(error)}"


@functools.cache
def _json_path_environment() -> Any:
    import jsonpath  # noqa: PLC0415 - few suites need it

    return jsonpath.JSONPathEnvironment(strict=True)
