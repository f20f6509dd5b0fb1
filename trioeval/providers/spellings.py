"""How a text is spelt where it was quoted: escaped for JSON, HTML or URLs, wholly or in part; or in base64.

In base64 three characters become four, so a text has three forms there, by what stands before it: a name
and a colon, as servers get passwords. The whole word of base64 is replaced, which tells of no part of it.
"""

import base64
import functools
import html.entities
import re
import string
from collections import defaultdict

import attrs

_RUNS = re.compile(r"[A-Za-z0-9]+")


@attrs.frozen(repr=False)
class Spelt:
    """A text, found in each of its spellings."""

    core: str
    """The longest part of it that is the same in all of them; they are not looked for without it."""
    coded: tuple[str, ...]
    """What all texts in base64 have in them that it is a part of; none of a short text."""
    _pattern: re.Pattern[str]

    @property
    def cores(self) -> tuple[str, ...]:
        """A text without any of these does not have it in any spelling."""
        return (self.core, *self.coded)

    def replace(self, text: str, other: str) -> str:
        r"""A text with something else in its place, wherever it stands.

        Example:
            >>> spelt("a/b").replace(r"a/b a\/b a%2Fb a&#x2F;b a-b", "?")
            '? ? ? ? a-b'
            >>> spelt("hunter-two").replace("Basic bWU6aHVudGVyLXR3bw==; aHVudGVyLXR3bw", "?")
            'Basic ?; ?'
        """
        if self.core in text:
            text = self._pattern.sub(lambda _: other, text)
        for core in self.coded:
            if core in text:
                text = _without_words(text, core, other)
        return text


@functools.lru_cache(1024)  # a run has few keys, and looks for each of them in every reply
def spelt(text: str) -> Spelt:
    """The spellings of a text."""
    core = max(_RUNS.findall(text), key=len, default="")
    # However many backslashes there are, each time that a text is quoted there are more of them.
    pattern = re.compile("".join(map(_ways, re.sub(r"\\+", r"\\", text))))
    return Spelt(core, _coded(text), pattern)


def _coded(text: str) -> tuple[str, ...]:
    """The characters of its three forms in base64 that depend on nothing around it, in both alphabets."""
    data = text.encode("utf-8", "surrogatepass")
    found = set()
    for before in range(3):
        plain = base64.b64encode(bytes(before) + data).decode()
        first = (0, 2, 3)[before]
        core = plain[first : 4 * ((before + len(data)) // 3)]
        # Those of short texts may stand in any text.
        if len(core) >= _SHORTEST_CODED:
            found |= {core, core.translate(_URL_ALPHABET)}
    return tuple(sorted(found))


def _without_words(text: str, core: str, other: str) -> str:
    parts, begin = [], 0
    while (place := text.find(core, begin)) >= 0:
        left, right = place, place + len(core)
        while left > begin and text[left - 1] in _ALPHABET:
            left -= 1
        while right < len(text) and text[right] in _ALPHABET:
            right += 1
        while right < len(text) and text[right] == "=":
            right += 1
        parts += [text[begin:left], other]
        begin = right
    return "".join((*parts, text[begin:]))


_SHORTEST_CODED = 8
_ALPHABET = frozenset(string.ascii_letters + string.digits + "+/-_")
_URL_ALPHABET = str.maketrans("+/", "-_")


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
        ways += [r"\+", "%(?:25)*2[bB]"]
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
