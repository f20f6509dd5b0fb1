r"""Variables that hold templates themselves, before the prompt is rendered with them.

Three steps, of which assertions see the first two: one line feed off the end of each text; `{{ name }}` in a
text replaced by that variable, one in each text and pass, in five passes; then texts whose variables are
all defined are rendered. The second is no rendering but a replacement in text, whence its habits: the first
reference only, null as `null`, and `$&`, `` $` ``, `$'` and `$$` in what is put in mean what they mean to
`String.replace`. The third does not look into `raw` blocks, which are there to be left alone.
"""

import re
from collections.abc import Mapping
from typing import Any

from trioeval.suite.templates.bounds import check_size
from trioeval.suite.templates.values import text_of

_PASSES = 5
_REFERENCE = re.compile(r"\{\{\s*([A-Za-z0-9_]+)\s*\}\}")
_RAW = re.compile(r"\{%-?\s*(raw|verbatim)\s*-?%\}.*?\{%-?\s*end\1\s*-?%\}", re.DOTALL)
_DOLLAR = re.compile(r"\$([$&`'])")
_COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
_LINE = r"[^\n\r\u2028\u2029]*?"
_USED = re.compile(
    r"\{\{\s*([^{}\s|]+)\s*(?:\|[^}]+)?\}\}"
    rf"|\{{%\s*(?:if|for)\s+([^{{}}\s]+)\s*{_LINE}%\}}"
)
_LOOP = re.compile(r"\{%\s*for\s+([A-Za-z0-9_]+)\s+in\s+([A-Za-z0-9_]+)\s*%\}")
_ROOT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def resolved(variables: Mapping[str, Any]) -> dict[str, Any]:
    r"""The variables as assertions see them.

    Raises:
        TooMuchError: One of them would grow very long.

    Example:
        >>> resolved({"a": "<{{ b }}>", "b": "{{c}}!\n", "c": [1, None], "d": "{{ 1 + 1 }}"})
        {'a': '<1,!>', 'b': '1,!', 'c': [1, None], 'd': '{{ 1 + 1 }}'}
    """
    found = {
        name: value.removesuffix("\n") if isinstance(value, str) else value
        for name, value in variables.items()
    }
    waiting = [name for name, value in found.items() if isinstance(value, str) and "{{" in value]
    for _ in range(_PASSES if waiting else 0):
        changed = False
        for name in waiting:
            value = found[name]
            match = _REFERENCE.search(value)
            if match is None or match[1] not in found:
                continue
            text = _put(value, match, text_of(found[match[1]]))
            check_size(len(text))
            found[name] = text
            changed = True
        if not changed:
            break
    return found


def _put(value: str, match: re.Match[str], text: str) -> str:
    before, after = value[: match.start()], value[match.end() :]
    if "$" in text:
        meanings = {"$": "$", "&": match[0], "`": before, "'": after}
        text = _DOLLAR.sub(lambda found: meanings[found[1]], text)
    return before + text + after


def uses_undefined(text: str, variables: Mapping[str, Any]) -> bool:
    """Whether a text names a variable that there is not, by its looks: in `{{ … }}`, `if` and `for`.

    Example:
        >>> uses_undefined("{{ a | upper }}", {}), uses_undefined("{{ env.HOME }}", {})
        (True, False)
    """
    text = _COMMENT.sub("", _RAW.sub("", text))
    used = {first or second for first, second in _USED.findall(text)}
    for member, source in _LOOP.findall(text):
        used.discard(member)
        used.add(source)
    roots = (found[0] for name in used if (found := _ROOT.match(name)))
    return any(root != "env" and root not in variables for root in roots)
