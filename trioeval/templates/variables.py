r"""Variables that contain templates themselves, before the prompt is rendered with them.

There are three steps; assertions see the first two. One line feed is removed from the end of each text;
`{{ name }}` in a text is replaced by that variable, one in each text and pass, in five passes; then texts
whose variables are all defined are rendered. The second step is not rendering but text replacement, which
explains its peculiarities: the first reference only, null as `null`, and `$&`, `` $` ``, `$'` and `$$` in
the inserted text have the meaning they have in `String.replace`. The third step does not look into `raw`
blocks.

Row data (see `verbatim`) is excluded from all of them. A reference to it remains until the text around it has
been rendered, or cannot be: see `placed`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from trioeval.templates.limits import Meter, check_size
from trioeval.templates.values import text_of
from trioeval.text import FromModel, Verbatim, from_model, verbatim

GLOBAL_NAMES = frozenset({"env", "range", "cycler", "joiner"})
"""Names that templates have besides variables; a variable of such a name has precedence."""

_PASSES = 5
_REFERENCE = re.compile(r"\{\{\s*([A-Za-z0-9_]+)\s*\}\}")
_RAW_TAG = re.compile(r"\{%-?\s*(end)?(raw|verbatim)\s*-?%\}")
_DOLLAR = re.compile(r"\$([$&`'])")
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_LINE_END = re.compile(r"[\n\r\u2028\u2029]")
_OPENED = re.compile(r"\{\{\s*(?P<print>[^{}\s|]+)\s*+|\{%\s*(?:if|for)\s+(?P<block>[^{}\s]+)\s*+")
_LOOP = re.compile(r"\{%\s*for\s+([A-Za-z0-9_]+)\s+in\s+([A-Za-z0-9_]+)\s*%\}")
_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def resolved(variables: Mapping[str, Any]) -> dict[str, Any]:
    r"""Return the variables as assertions see them.

    Raises:
        TooMuchError: One of them would grow too long, or all would together.

    Example:
        >>> resolved({"a": "<{{ b }}>", "b": "{{c}}!\n", "c": [1, None], "d": "{{ 1 + 1 }}"})
        {'a': '<1,!>', 'b': '1,!', 'c': [1, None], 'd': '{{ 1 + 1 }}'}
    """
    found, waiting = dict(variables), []
    for name, value in variables.items():
        if isinstance(value, str) and not isinstance(value, Verbatim):
            if value.endswith("\n"):
                found[name] = value[:-1]
            if "{{" in value:
                waiting.append(name)
    if not waiting:
        return found
    data = {name for name, value in found.items() if isinstance(value, Verbatim)}
    meter = Meter()
    for _ in range(_PASSES):
        changed = False
        for name in waiting:
            value = found[name]
            match = next((one for one in _REFERENCE.finditer(value) if one[1] not in data), None)
            if match is None or match[1] not in found:
                continue
            meter.walk(found[match[1]])
            found[name] = _put(value, match, text_of(found[match[1]]))
            meter.take_text(len(found[name]))
            changed = True
        if not changed:
            break
    return found


def names_data(value: Any, variables: Mapping[str, Any]) -> bool:
    """Return whether a variable is a text with a reference to row data."""
    return _refers(value) and any(
        isinstance(variables.get(one[1]), Verbatim) for one in _REFERENCE.finditer(value)
    )


def placed(value: str, variables: Mapping[str, Any]) -> str:
    """Return a text with its references to row data replaced; the result is row data itself.

    Raises:
        TooMuchError: It would grow too long.

    Example:
        >>> placed("{{ a }} {{ b }}", {"a": from_model("{{ b }}"), "b": 1})
        '{{ b }} {{ b }}'
    """
    meter = Meter()
    parts, begin, from_models = [], 0, False
    for match in _REFERENCE.finditer(value):
        data = variables.get(match[1])
        if not isinstance(data, Verbatim):
            continue
        meter.walk(data)
        parts += [value[begin : match.start()], text_of(data)]
        meter.take_text(len(parts[-1]))
        begin, from_models = match.end(), from_models or isinstance(data, FromModel)
    text = "".join((*parts, value[begin:]))
    check_size(len(text))
    made: str = from_model(text) if from_models else verbatim(text)
    return made


def _refers(value: Any) -> bool:
    return isinstance(value, str) and "{{" in value and not isinstance(value, Verbatim)


def _put(value: str, match: re.Match[str], text: str) -> str:
    before, after = value[: match.start()], value[match.end() :]
    size = len(before) + len(text) + len(after)
    if "$" in text:
        meanings = {"$": "$", "&": match[0], "`": before, "'": after}
        signs = Counter(_DOLLAR.findall(text))
        size += sum(times * (len(meanings[sign]) - 2) for sign, times in signs.items())
    check_size(size)
    if "$" in text:
        text = _DOLLAR.sub(lambda found: meanings[found[1]], text)
    return before + text + after


def uses_undefined(text: str, variables: Mapping[str, Any]) -> bool:
    """Return whether a text seems to name an undefined variable: in `{{ … }}`, `if` and `for`.

    Example:
        >>> uses_undefined("{{ a | upper }}", {}), uses_undefined("{{ env.HOME }}", {})
        (True, False)
    """
    text = _without_raw(text)
    end = text.rfind("#}") + 2 if "#}" in text else 0  # a comment that does not end is not one
    text = _COMMENT.sub("", text[:end]) + text[end:]
    used = set(_used(text))
    for member, source in _LOOP.findall(text):
        used.discard(member)
        used.add(source)
    roots = (found[0] for name in used if (found := _ROOT.match(name)))
    return any(root != "env" and root not in variables for root in roots)


def _without_raw(text: str) -> str:
    tags = list(_RAW_TAG.finditer(text)) if "%}" in text else []
    last_end = {tag[2]: tag.start() for tag in tags if tag[1]}
    parts, begin, word = [], 0, ""
    for tag in tags:
        if not word and not tag[1] and tag.start() < last_end.get(tag[2], 0):
            parts.append(text[begin : tag.start()])
            word = tag[2]
        elif tag[1] and tag[2] == word:
            begin, word = tag.end(), ""
    return "".join(parts) + text[begin:]


def _used(text: str) -> Iterator[str]:
    """Yield the first word of each `{{ … }}`, `if` and `for` that closes; reads a character at most twice."""
    braces, percents, line_ends = _Ahead("}", text), _Ahead("%}", text), _Ahead(_LINE_END, text)
    begin = 0
    while found := _OPENED.search(text, begin):
        begin = found.start() + 1
        here = found.end()
        if name := found["print"]:
            piped = text.startswith("|", here)
            close = braces.after(here) if piped else here
            if close - here != 1 and text.startswith(
                "}}", close
            ):  # 1 is a pipe with nothing after it
                yield name
                begin = close + 2
            continue
        close = percents.after(here)
        name, end = found["block"], found.end("block")
        if close < line_ends.after(here):
            yield name
            begin = close + 2
        elif len(name) > 1 and text.startswith("%}", end - 1):
            yield name[:-1]
            begin = end + 1


class _Ahead:
    """The next occurrence of a pattern; for positions that never decrease, no part is read twice."""

    def __init__(self, searched: str | re.Pattern[str], text: str) -> None:
        self._pattern = re.compile(re.escape(searched)) if isinstance(searched, str) else searched
        self._text = text
        self._found = -1

    def after(self, place: int) -> int:
        """Return the first occurrence at or after a position; a position after the text if there is none."""
        if self._found < place:
            found = self._pattern.search(self._text, place)
            self._found = found.start() if found else len(self._text) + 1
        return self._found
