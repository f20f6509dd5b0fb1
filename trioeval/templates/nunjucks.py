"""The engine: nunjucks in QuickJS, with bounds.

Theory. Each thread has one context, created when the first text needs it, in which `rules.js` surrounds
nunjucks: nothing of the machine is reachable, the intrinsics are frozen, and a template has no way to the
functions that compile code. So all templates of a process share the context. One that exceeds a bound may
leave it without memory, or in the middle of something: the context is discarded, and the next text gets a new
one. Values go in and out as JSON of ASCII characters, because the binding changes some texts.
"""

import difflib
import functools
import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

from trioeval.errors import TemplateError
from trioeval.templates.faults import RefusedError
from trioeval.templates.limits import MEMORY, TimeLeft, TooMuchError, too_big, too_long
from trioeval.templates.values import AsJson, brought, carried
from trioeval.text import quote

_KEPT = 1024  # texts
_COMPILED = 256  # texts; one takes up to some 100 kB of the engine's memory
_HERE = Path(__file__).parent
_STACK_BYTES = 1024 * 1024
_OUT_OF_MEMORY = ("InternalError: out of memory", "null")
"""The second is thrown if there is not enough memory for an error."""
_SELF = "globalThis.self = globalThis;"

Strictness: TypeAlias = Literal[0, 1, 2]
"""The uses of an undefined variable that are errors: none, those outside of conditions, all."""

Kept: TypeAlias = Literal["", "value", "condition"]
"""Empty for the text that is printed; or the value of the only expression; or whether it holds."""


@attrs.frozen
class Words:
    """The nouns and verbs of messages."""

    text: str
    fails: str
    owner: str


TEMPLATE = Words("the template", "cannot be rendered", "the test")
EXPRESSION = Words("the expression", "cannot be evaluated", "the row")
CELL = Words("the template", "cannot be rendered", "the row")


@attrs.frozen
class JavaScriptFilter:
    """A filter that is JavaScript: an expression whose value is a function."""

    expression: str


Filter: TypeAlias = Callable[..., Any] | JavaScriptFilter


@attrs.frozen
class Description:
    """The variables that a text may use, or its mistake."""

    names: frozenset[str] = frozenset()
    line: int | None = None
    fault: str | None = None


class SeveralError(Exception):
    """A text is not one expression."""


class _Context:
    """The context of one thread."""

    def __init__(self) -> None:
        import _quickjs

        self.quickjs = _quickjs.Context()
        self.quickjs.set_memory_limit(MEMORY * 1024 * 1024)
        self.quickjs.set_max_stack_size(_STACK_BYTES)
        self.quickjs.eval(_SELF)
        self.quickjs.eval((_HERE / "vendor" / "nunjucks.js").read_text("utf-8"))
        self.open = self.quickjs.eval((_HERE / "rules.js").read_text("utf-8"))
        self.failure = _quickjs.JSException


_of_thread = threading.local()


def _context() -> _Context:
    found: _Context | None = getattr(_of_thread, "context", None)
    if found is None:
        found = _of_thread.context = _Context()
    return found


@attrs.frozen(eq=False, repr=False)
class _Opened:
    """The functions of an environment in one context."""

    context: _Context
    describe: Callable[[str, Kept], str]
    compile: Callable[[str, Kept], Callable[..., str]]


@attrs.define(eq=False, repr=False)
class Nunjucks:
    """Templates and expressions in one environment: its filters, its `env`, its strictness."""

    env: Mapping[str, str]
    filters: Mapping[str, Filter]
    """They extend or replace those of nunjucks."""
    strict: Strictness
    words: Words = TEMPLATE
    describe: Callable[[str, Kept], Description] = attrs.field(init=False)
    """Returns the variables of a text, or its mistake."""
    _opened: threading.local = attrs.field(init=False, factory=threading.local)

    @functools.cached_property
    def _reads_all(self) -> bool:
        """True if a filter can read all variables."""
        return any(isinstance(one, JavaScriptFilter) for one in self.filters.values())

    def __attrs_post_init__(self) -> None:
        self.describe = functools.lru_cache(_KEPT)(self._described)

    def render(
        self, text: str, variables: Mapping[str, Any], budget: TimeLeft, kept: Kept = ""
    ) -> Any:
        """Return the result of a text.

        Args:
            text: A text without mistakes.
            variables: The variables.
            budget: The time that is left.
            kept: The kind of result.

        Raises:
            TemplateError: It cannot be rendered with these variables.
            TooMuchError: It exceeds a bound.
        """
        if self._reads_all:
            used = variables  # such a filter can read all of them
        else:
            names = self.describe(text, kept).names
            used = {name: variables[name] for name in names if name in variables}
        written, is_special = carried(used)
        as_json = [name for name, value in used.items() if isinstance(value, AsJson)]
        shown = json.dumps(as_json) if as_json else ""
        answers: dict[str, Any] = {}
        while True:
            known = json.dumps(list(answers.items())) if answers else ""
            given = (written, is_special, shown, budget.is_new, known)
            head, body = brought(self._call(_rendering(text, kept, given), budget))
            if head == "=":
                return body
            if head == "!":
                raise self._error(body, variables)
            answers |= {key: self._answer(key) for key in body}

    def _described(self, text: str, kept: Kept) -> Description:
        written = json.dumps(text)
        try:
            result = self._call(lambda opened: opened.describe(written, kept), TimeLeft())
        except (RefusedError, TooMuchError) as error:
            return Description(fault=str(error))
        found = json.loads(result)
        if fault := found.get("error"):
            if fault["kind"] == "several":
                raise SeveralError
            message = "nested too deeply" if fault["kind"] == "deep" else fault["message"]
            return Description(line=fault.get("line"), fault=message)
        return Description(frozenset(found["names"]))

    def _call(self, function: Callable[["_Opened"], str], budget: TimeLeft) -> str:
        context = _context()
        opened: _Opened | None = getattr(self._opened, "value", None)
        budget.enter()
        try:
            context.quickjs.set_time_limit(budget.seconds)
            if opened is None or opened.context is not context:
                opened = self._opened.value = self._open(context)
            return function(opened)
        except (context.failure, MemoryError) as error:
            _of_thread.context = None
            raise self._limit(error) from None
        finally:
            budget.leave()

    def _open(self, context: _Context) -> "_Opened":
        named = [name for name, one in self.filters.items() if callable(one)]
        settings = {"env": dict(self.env), "filters": named, "strict": self.strict}
        scripts = ",".join(
            f"[{json.dumps(name)}]: ({one.expression})"
            for name, one in self.filters.items()
            if isinstance(one, JavaScriptFilter)
        )
        made = context.open(json.dumps(settings), context.quickjs.eval(f"({{{scripts}}})"))
        compile_ = made("compile")

        @functools.lru_cache(_COMPILED)
        def compiled(text: str, kept: Kept) -> Callable[..., str]:
            return compile_(json.dumps(text), kept)  # type: ignore[no-any-return]

        return _Opened(context, made("describe"), compiled)

    def _limit(self, error: Exception) -> Exception:
        line = str(error).partition("\n")[0]
        if line == "InternalError: interrupted":
            return too_long()
        if "call stack" in line:
            return RefusedError(f"{self.words.text} or its values are nested too deeply")
        if isinstance(error, MemoryError) or line in _OUT_OF_MEMORY:
            return too_big()
        return TemplateError(f"{self.words.text} {self.words.fails}: {line}")

    def _answer(self, key: str) -> Mapping[str, Any]:
        """Return the result of a filter in Python, as the engine takes it."""
        name, arguments = brought(key)
        named: Mapping[str, Any] = {}
        if arguments and isinstance(arguments[-1], dict) and "__keywords" in arguments[-1]:
            named = {key: one for key, one in arguments.pop().items() if key != "__keywords"}
        function = self.filters[name]
        assert callable(function)  # noqa: S101 - the others are not asked for
        try:
            made = function(*arguments, **named)
        except Exception as error:  # noqa: BLE001 - any error of the suite's own function
            return {"error": f"{type(error).__name__}: {error}"}
        written, _ = carried({"value": made})
        return dict(json.loads(written))

    def _error(self, fault: Mapping[str, Any], variables: Mapping[str, Any]) -> Exception:
        """Return the error for one that occurred in a text."""
        message, words = fault["message"], self.words
        match fault["kind"]:
            case "limit":
                return TooMuchError(message)
            case "memory":
                _of_thread.context = None
                return too_big()
            case "deep":
                return RefusedError(f"{words.text} or its values are nested too deeply")
            case "undefined":
                return TemplateError(_undefined(message, _of_the_test(variables), words.owner))
            case "member":
                return TemplateError(_no_member(json.loads(message), json.loads(fault["more"])))
            case "filter":
                message = f"the filter {quote(fault['more'])}: {message}"
        return TemplateError(f"{words.text} {words.fails}: line {fault['line']}: {message}")


def _rendering(text: str, kept: Kept, given: tuple[Any, ...]) -> Callable[["_Opened"], str]:
    return lambda opened: opened.compile(text, kept)(*given)


def _of_the_test(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the variables without those that the run adds."""
    return {name: value for name, value in variables.items() if not name.startswith("__")}


def _undefined(name: str, variables: Mapping[str, Any], owner: str) -> str:
    known = sorted(variables)
    if not known:
        return f"{{{{ {name} }}}} is not defined; {owner} has no variables"
    if close := difflib.get_close_matches(name, known, n=1):
        return f'{{{{ {name} }}}} is not defined; did you mean "{close[0]}"?'
    return f"{{{{ {name} }}}} is not defined; {owner} has {', '.join(known)}"


def _no_member(name: Any, owner: Any) -> str:
    is_name = isinstance(owner, dict) and isinstance(name, str)
    close = difflib.get_close_matches(name, owner, n=1) if is_name else ()
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{quote(name)} is not defined in {quote(owner)}{hint}"
