"""How a text is spelt where it was quoted: escaped for JSON, HTML or URLs, wholly or in part."""

import functools
import html.entities
import re
from collections import defaultdict

import attrs

_RUNS = re.compile(r"[A-Za-z0-9]+")


@attrs.frozen(repr=False)
class Spelt:
    """A text, found in each of its spellings."""

    core: str
    """The longest part of it that is the same in all of them; they are not looked for without it."""
    _pattern: re.Pattern[str]

    def replace(self, text: str, other: str) -> str:
        r"""A text with something else in its place, wherever it stands.

        Example:
            >>> spelt("a/b").replace(r"a/b a\/b a%2Fb a&#x2F;b a-b", "?")
            '? ? ? ? a-b'
        """
        return self._pattern.sub(lambda _: other, text) if self.core in text else text


@functools.lru_cache(1024)  # a run has few keys, and looks for each of them in every reply
def spelt(text: str) -> Spelt:
    """The spellings of a text."""
    core = max(_RUNS.findall(text), key=len, default="")
    # However many backslashes there are, each time that a text is quoted there are more of them.
    return Spelt(core, re.compile("".join(map(_ways, re.sub(r"\\+", r"\\", text)))))


def _ways(char: str) -> str:
    """A pattern for all spellings of a character."""
    if _RUNS.fullmatch(char):
        return char
    ways = [
        rf"&\#(?:0*{ord(char)}|[xX]0*(?i:{ord(char):x}));",
        "".join(f"%(?:25)*(?i:{byte:02x})" for byte in char.encode("utf-8", "surrogatepass")),
        "".join(rf"\\++u(?i:{unit})" for unit in _utf16(char)),
        *map(re.escape, _entities().get(char, ())),
    ]
    if char in _LETTERS:
        ways.append(rf"\\++{_LETTERS[char]}")
    if char == " ":
        ways.append(r"\+")
    ways.append(r"\\++" if char == "\\" else rf"\\*+{re.escape(char)}")
    return f"(?:{'|'.join(ways)})"


_LETTERS = {"\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
"""Characters that are a letter after a backslash."""


def _utf16(char: str) -> list[str]:
    """What JSON writes of a character where it keeps to ASCII: one code, or two."""
    coded = char.encode("utf-16-be", "surrogatepass").hex()
    return [coded[at : at + 4] for at in range(0, len(coded), 4)]


@functools.cache
def _entities() -> dict[str, list[str]]:
    """The names of characters in HTML."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, char in html.entities.html5.items():
        if name.endswith(";"):
            names[char].append(f"&{name}")
    return dict(names)
