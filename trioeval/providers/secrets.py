"""Keeping secrets out of what is written: texts, values and errors with every secret blanked.

There are two strengths. What tells of a call, such as errors, headers and names, is cleaned of every
secret that is known. What was answered is graded, so only what is surely a key is blanked there: a server
of one's own is asked with the key "test" or "none", and answers may hold those words. Which of the two
it is follows from the secrets that are passed: all of them, or `surely_keys`.
"""

import marshal
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import attrs

from trioeval.errors import Problem, ProviderError
from trioeval.providers.spellings import spelt

BLANK = "[hidden]"
SHORTEST = 4
"""Shorter texts are no secrets: blanking "1" would blank half of the results."""

_SHORTEST_KEY = 12
_SHORTEST_PHRASE = 16
_LONGEST_WORD = 20
_CASES = re.compile(r"[a-z][A-Z]")
_PLACE = re.compile(r"(?:[A-Za-z][\w+.-]*://[^@?]*|(?:~|\.{1,2})?/.*)")
_SCHEME = re.compile(r"\s*[A-Za-z][\w-]*\s+(?=\S)")


def is_surely_key(secret: str) -> bool:
    """Whether a secret is no word or number that an answer may hold by chance.

    At least 12 characters, a letter and a digit among them, without a word in front such as "Bearer"; or 16
    with letters that are more than one word: with a sign or a capital inside; or more than 20. A path, or a
    URL without a user or parameters, is none unless it has a digit: agents talk about files and addresses.

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
    """Those of the secrets that are blanked in what was answered, in their order."""
    return tuple(secret for secret in secrets if is_surely_key(secret))


def without_scheme(credential: str) -> str:
    """A credential without the word in front that says how it is meant.

    Example:
        >>> without_scheme("Bearer sk-1"), without_scheme("sk-1")
        ('sk-1', 'sk-1')
    """
    return _SCHEME.sub("", credential, count=1).strip()


def secret_parts(credential: str) -> set[str]:
    """The texts that are secret in the value of a header or a variable.

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
    """Each once, in the order in which they are blanked: none leaves the rest of a longer one."""
    return tuple(sorted({*secrets}, key=lambda secret: (-len(secret), secret)))


def hide(text: str, secrets: Iterable[str]) -> str:
    r"""The text with every secret blanked, in whatever spelling it stands there.

    Args:
        text: Any text.
        secrets: Longest first; those of less than 4 characters are left alone.

    Example:
        >>> hide(r'{"message": "the key ab\/cd is wrong"}', ["ab/cd"])
        '{"message": "the key [hidden] is wrong"}'
    """
    for secret in secrets:
        if len(secret) >= SHORTEST:
            text = spelt(secret).replace(text, BLANK)
    return text


def hide_in(value: Any, secrets: Sequence[str]) -> Any:
    """A value with every secret in its texts and keys blanked; the same object if there is none.

    What is no JSON is written as its text, and becomes that text where it holds a secret.

    Raises:
        RecursionError: It may hold a secret, and is nested too deeply to be looked through.
    """
    return _hide_in(value, secrets) if _may_hold(value, secrets) else value


def hide_in_error(error: ProviderError, secrets: Sequence[str]) -> ProviderError:
    """An error without secrets, and without the causes that tell them; the same one if it has none."""
    if not any(hide(text, secrets) != text for text in _told(error)):
        return error
    excerpt = error.body_excerpt
    return ProviderError(
        error.kind,
        hide(error.message, secrets),
        status=error.status,
        retry_after=error.retry_after,
        body_excerpt=None if excerpt is None else hide(excerpt, secrets),
        fault=error.fault,
        retries=error.retries,
        usage=error.usage,
        money=error.money,
        hint=error.hint,
    )


def hide_in_problem(problem: Problem, secrets: Sequence[str]) -> Problem:
    """A problem that shows no secret, not even the beginning of one that was cut short.

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
    """A cheap look that finds no secret in nearly every reply, however many numbers it is made of."""
    try:
        texts = marshal.dumps(value)  # the quickest way to all texts of a value, each as it is
    except ValueError:
        return True  # not JSON, or very deep
    return any(
        core.encode() in texts
        for secret in secrets
        if len(secret) >= SHORTEST
        for core in spelt(secret).cores
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
    except Exception:  # noqa: BLE001 - what cannot be shown tells nothing
        return value
    clean = hide(text, secrets)
    return value if clean == text and hide(shown, secrets) == shown else clean


def _told(error: ProviderError) -> Iterator[str]:
    """All that a log or a traceback of an error could show."""
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
