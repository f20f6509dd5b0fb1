"""Removal of secrets from output: texts, values and errors with every secret hidden.

There are two strengths. Texts about a call, such as errors, headers and names, are cleaned of every known
secret. Replies are graded, so only texts that are surely keys are hidden in them: the key of a private server
may be "test" or "none", and replies may contain these words. The secrets that are passed select the strength:
all of them, or `surely_keys`.
"""

import base64
import functools
import html.entities
import marshal
import re
import string
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError

# Names of headers, variables and config keys whose values are secret.
#
# Names are read word by word: `x-api-key`, `OPENAI_API_KEY` and `clientSecret` name secrets, `AUTHOR` and
# `maxTokens` do not.


_WORDS = frozenset(
    {
        *("apikey", "auth", "authorization", "bearer", "cookie", "cookies", "credential"),
        *("credentials", "jwt", "key", "keys", "pass", "passcode", "passphrase", "passwd"),
        *("password", "pw", "passwords", "pat", "secret", "secrets", "session", "token"),
    }
)
_ENDS = ("accesskey", "apikey", "cookie", "oauth", "passwd", "password", "secret", "token")
"""Endings of secret words that are written without a separator: `x-authtoken`."""

_ABOUT = frozenset(
    {"count", "envar", "length", "limit", "remaining", "reset", "size", "type", "usage"}
)
"""Last words of names of facts about a secret, or of things that are only called like one."""

_PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@functools.lru_cache(1024)  # most replies have the same few headers
def is_secret_name(name: str) -> bool:
    """Return whether the value of a header, variable or key with this name must not be shown.

    Example:
        >>> [is_secret_name(name) for name in ("HF_TOKEN", "clientSecret", "x-authtoken", "KEY2")]
        [True, True, True, True]
        >>> [is_secret_name(name) for name in ("AUTHOR", "MAX_TOKENS", "keyboard", "token-count")]
        [False, False, False, False]
    """
    words = _words(name)
    if not words or words[-1] in _ABOUT:
        return False
    return any(word in _WORDS or word.endswith(_ENDS) for word in words)


def _words(name: str) -> list[str]:
    """Return the words of a name in lower case, and those that are joined in camelCase."""
    return [
        word.lower()
        for grown in re.split(r"[^A-Za-z]+", name)
        if grown
        for word in (grown, *_PARTS.findall(grown))
    ]


# The spellings of a text where it was quoted: escaped for JSON, HTML or URLs, wholly or in part; or base64.
#
# Base64 turns three characters into four, so a text has three forms, depending on the text before it: a name
# and a colon, as in HTTP basic authentication. The whole base64 word is replaced, so no part of it is shown.


_RUNS = re.compile(r"[A-Za-z0-9]+")


@attrs.frozen(repr=False)
class Spellings:
    """A text that can be found in each of its spellings."""

    core: str
    """The longest part that is the same in all spellings; a text without it is not searched further."""
    coded: tuple[str, ...]
    """Parts that every base64 text containing this one has; empty for short texts."""
    _pattern: re.Pattern[str]

    @property
    def cores(self) -> tuple[str, ...]:
        """Substrings one of which every text that contains this one has, in any spelling."""
        return (self.core, *self.coded)

    def replace(self, text: str, other: str) -> str:
        r"""Return a text with every occurrence replaced.

        Example:
            >>> spellings("a/b").replace(r"a/b a\/b a%2Fb a&#x2F;b a-b", "?")
            '? ? ? ? a-b'
            >>> spellings("hunter-two").replace("Basic bWU6aHVudGVyLXR3bw==; aHVudGVyLXR3bw", "?")
            'Basic ?; ?'
        """
        if self.core in text:
            text = self._pattern.sub(lambda _: other, text)
        for core in self.coded:
            if core in text:
                text = _without_words(text, core, other)
        return text


@functools.lru_cache(1024)  # a run has few keys, and searches every reply for each of them
def spellings(text: str) -> Spellings:
    """Return the spellings of a text."""
    core = max(_RUNS.findall(text), key=len, default="")
    # The number of backslashes is not fixed: each time that a text is quoted it grows.
    pattern = re.compile("".join(map(_ways, re.sub(r"\\+", r"\\", text))))
    return Spellings(core, _coded(text), pattern)


def _coded(text: str) -> tuple[str, ...]:
    """Return the characters of the three base64 forms that depend on the text alone, in both alphabets."""
    data = text.encode("utf-8", "surrogatepass")
    found = set()
    for before in range(3):
        plain = base64.b64encode(bytes(before) + data).decode()
        first = (0, 2, 3)[before]
        core = plain[first : 4 * ((before + len(data)) // 3)]
        # Forms of short texts may occur in any text.
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
    """Return a pattern for all spellings of a character."""
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
"""Characters that are escaped as a backslash and a letter."""


def _utf16(char: str) -> list[str]:
    """Return the one or two UTF-16 codes of a character in ASCII-only JSON."""
    coded = char.encode("utf-16-be", "surrogatepass").hex()
    return [coded[at : at + 4] for at in range(0, len(coded), 4)]


@functools.cache
def _entities() -> dict[str, list[str]]:
    """Return the HTML entity names of characters."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name, char in html.entities.html5.items():
        if name.endswith(";"):
            names[char].append(f"&{name}")
    return dict(names)


BLANK = "[hidden]"
SHORTEST = 4
"""Minimum length of a secret: hiding "1" would hide half of the results."""

_SHORTEST_KEY = 12
_SHORTEST_PHRASE = 16
_LONGEST_WORD = 20
_CASES = re.compile(r"[a-z][A-Z]")
_PLACE = re.compile(r"(?:[A-Za-z][\w+.-]*://[^@?]*|(?:~|\.{1,2})?/.*)")
_SCHEME = re.compile(r"\s*[A-Za-z][\w-]*\s+(?=\S)")


def is_surely_key(secret: str) -> bool:
    """Return whether a secret is too unusual to occur in a reply by chance.

    It has at least 12 characters, with a letter and a digit, not counting a word before it such as "Bearer";
    or 16 letters that are more than one word (with a punctuation mark or a capital inside); or more than 20.
    A path, or a URL without user or parameters, must have a digit: agents talk about files and addresses.

    Example:
        >>> [is_surely_key(text) for text in ("sk-0123456789", "Bearer sk-0123456789")]
        [True, True]
        >>> [is_surely_key(text) for text in ("ollama", "Bearer test1", "misunderstood", "0" * 20)]
        [False, False, False, False]
    """
    bare = without_scheme(secret)
    if len(bare) < _SHORTEST_KEY or not any(map(str.isalpha, bare)):
        return False
    if any(map(str.isdigit, bare)):
        return True
    if _PLACE.fullmatch(bare):
        return False
    if len(bare) > _LONGEST_WORD:
        return True
    is_several = not bare.isalpha() or _CASES.search(bare) is not None
    return len(bare) >= _SHORTEST_PHRASE and is_several


def surely_keys(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the secrets that are hidden in replies, in their order."""
    return tuple(secret for secret in secrets if is_surely_key(secret))


def without_scheme(credential: str) -> str:
    """Return a credential without its scheme.

    Example:
        >>> without_scheme("Bearer sk-1"), without_scheme("sk-1")
        ('sk-1', 'sk-1')
    """
    return _SCHEME.sub("", credential, count=1).strip()


def secret_parts(credential: str) -> set[str]:
    """Return the secret texts in the value of a header or a variable.

    Example:
        >>> sorted(secret_parts("Bearer sk-1234"))
        ['sk-1234']
        >>> sorted(secret_parts("sid=abcdef; theme=dark"))
        ['abcdef', 'dark', 'sid=abcdef; theme=dark']
    """
    bare = without_scheme(credential)
    parts = (part.partition("=") for part in re.split("[;,]", bare))
    found = {(value if equals else name).strip(' "') for name, equals, value in parts}
    return {part for part in found if len(part) >= SHORTEST} | ({bare} - {""})


def longest_first(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return each secret once, longest first, so that hiding one leaves no rest of a longer one."""
    return tuple(sorted({*secrets}, key=lambda secret: (-len(secret), secret)))


def hide(text: str, secrets: Iterable[str]) -> str:
    r"""Return a text with every secret hidden, in any spelling.

    Args:
        text: Any text.
        secrets: Longest first; those of less than 4 characters are ignored.

    Example:
        >>> hide(r'{"message": "the key ab\/cd is wrong"}', ["ab/cd"])
        '{"message": "the key [hidden] is wrong"}'
    """
    for secret in secrets:
        if len(secret) >= SHORTEST:
            text = spellings(secret).replace(text, BLANK)
    return text


def hide_in(value: Any, secrets: Sequence[str]) -> Any:
    """Return a value with every secret in its texts and keys hidden; the same object if there is none.

    A part that is not JSON is replaced by its text if that contains a secret.

    Raises:
        RecursionError: It may contain a secret, and is nested too deeply to be searched.
    """
    return _hide_in(value, secrets) if _may_hold(value, secrets) else value


def hide_in_error(error: ProviderError, secrets: Sequence[str]) -> ProviderError:
    """Return an error without secrets and without causes that show them; the same one if it has none."""
    if not any(hide(text, secrets) != text for text in _texts_of_error(error)):
        return error
    excerpt = error.body_excerpt
    hidden = None if excerpt is None else hide(excerpt, secrets)
    return error.restated(hide(error.message, secrets), body_excerpt=hidden)


def hide_in_problem(problem: Problem, secrets: Sequence[str]) -> Problem:
    """Return a problem without secrets, including beginnings of secrets that were cut short.

    Example:
        >>> long = Problem(".config.seed", 'must be a whole number, got "sk-01234…')
        >>> hide_in_problem(long, ["sk-0123456789"]).message
        'must be a whole number, got "[hidden]…'
    """
    hint = problem.hint
    return attrs.evolve(
        problem,
        path=_hide_cut(problem.path, secrets),
        message=_hide_cut(problem.message, secrets),
        hint=None if hint is None else _hide_cut(hint, secrets),
    )


def _hide_cut(text: str, secrets: Sequence[str]) -> str:
    text = hide(text, secrets)
    if "…" in text:
        for secret in secrets:
            for size in range(len(secret), SHORTEST - 1, -1):
                text = text.replace(f"{secret[:size]}…", f"{BLANK}…")
    return text


def _may_hold(value: Any, secrets: Iterable[str]) -> bool:
    """Return False, quickly, for nearly every value without secrets, however many numbers it has."""
    try:
        texts = marshal.dumps(value)  # the fastest way to all texts of a value, unchanged
    except ValueError:
        return True  # not JSON, or nested deeply
    return any(
        core.encode() in texts
        for secret in secrets
        if len(secret) >= SHORTEST
        for core in spellings(secret).cores
    )


def _hide_in(value: Any, secrets: Sequence[str]) -> Any:
    match value:
        case None | bool() | int() | float():
            return value
        case str():
            clean = hide(value, secrets)
            return value if clean == value else clean
        case Mapping():
            pairs = [
                (_hide_in(key, secrets), _hide_in(part, secrets)) for key, part in value.items()
            ]
            same = all(
                key is old_key and part is old
                for (key, part), (old_key, old) in zip(pairs, value.items(), strict=True)
            )
            return value if same else dict(pairs)
        case list() | tuple() | set() | frozenset():
            parts = [_hide_in(part, secrets) for part in value]
            if all(part is old for part, old in zip(parts, value, strict=True)):
                return value
            kind = next(one for one in (list, tuple, set, frozenset) if isinstance(value, one))
            return kind(parts)
        case bytes() | bytearray():
            clean = hide(value.decode("utf-8", "surrogateescape"), secrets)
            coded = clean.encode("utf-8", "surrogateescape")
            return value if coded == value else coded
        case _:
            return _hide_in_other(value, secrets)


def _hide_in_other(value: Any, secrets: Sequence[str]) -> Any:
    try:
        text, shown = str(value), repr(value)
    except Exception:  # noqa: BLE001 - a value without a text shows nothing
        return value
    clean = hide(text, secrets)
    return value if clean == text and hide(shown, secrets) == shown else clean


def _texts_of_error(error: ProviderError) -> Iterator[str]:
    """Yield all texts that a log or a traceback of an error may show."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        yield from (str(one), repr(one), *getattr(one, "__notes__", ()))
        if isinstance(one, ProviderError) and one.body_excerpt is not None:
            yield one.body_excerpt
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
        waiting += [before for before in (one.__cause__, one.__context__) if before is not None]
