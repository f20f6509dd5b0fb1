"""Secrets in command lines: found by the names before them, and hidden in place.

A name marks a value as secret: that of an option (`--token X`, `--api-key=X`), of a variable (`TOKEN=X cmd`),
of a header (`-H 'Authorization: X'`) or of a URL parameter. So does the place of a password: in a URL, and
after curl's `-u`. A value that is a template or a shell variable is not secret.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from trioeval.providers.secrets import BLANK, is_secret_name, secret_parts

_VALUE = r"""(?P<value>"(?:\\.|[^"\\])*"|'[^']*'|[^\s"';|&]+)"""
_OPTION = re.compile(rf"""(?<![\w-])--?(?P<name>[A-Za-z][\w-]*)(?:=|\s+(?!-)){_VALUE}""")
_VARIABLE = re.compile(rf"""(?<![\w$?&-])(?P<name>[A-Za-z_]\w*)={_VALUE}""")
_HEADER = re.compile(
    r"""(?<![\w-])(?:-H|--header)(?:=|\s*)(?:"\s*(?P<n1>[\w-]+)\s*:\s*(?P<v1>[^"]*)"|'\s*(?P<n2>[\w-]+)\s*:"""
    r"""\s*(?P<v2>[^']*)'|(?P<n3>[\w-]+):(?P<v3>\S+))"""
)
# Passwords with unescaped "/" and "@": up to the last "@", even if it belongs to the path. A number before a
# path is a port.
_IN_URL = re.compile(r"://[^\s/?#@'\":\[]*:(?P<value>(?!\d+[/?#])(?:(?!://)[^\s'\"])+)@")
_ALONE_IN_URL = re.compile(r"://(?P<value>[^\s/?#@'\":]+)@")
_PARAMETER = re.compile(r"[?&](?P<name>[\w.-]+)=(?P<value>[^\s&#'\"]+)")
_CURL_USER = re.compile(r"(?<![\w-])(?:-u|--user)(?:=|\s*)['\"]?[^\s:'\"]+:(?P<value>[^\s'\"]+)")
_MAY_HOLD = re.compile(r"[=@:]|--?[A-Za-z]")
_OPEN = ("$", "{{", "%")
_WORD = re.compile(r"--?(?P<name>[A-Za-z][\w-]*)")


def secrets_of_command(command: str | Sequence[str]) -> tuple[str, ...]:
    """Return the secret texts in a command line, and their parts.

    Example:
        >>> secrets_of_command(
        ...     "MY_TOKEN=hunter ask --api-key='s3 e' -H 'Authorization: Bearer abcd'"
        ... )
        ('hunter', 's3 e', 'e', 'Bearer abcd', 'abcd')
        >>> secrets_of_command(["ask", "--password", "abc", "--max-tokens", "5"])
        ('abc',)
    """
    if isinstance(command, str):
        found = [command[begin:end] for begin, end in _spans(command)]
    else:
        found = [word[begin:end] for word, spans in _words(command) for begin, end in spans]
    for word in (
        (command,) if isinstance(command, str) else command
    ):  # up to the first "@" of several
        found += [one["value"].partition("@")[0] for one in _IN_URL.finditer(word)]
    return tuple(
        dict.fromkeys(part for text in found for part in (text, *sorted(secret_parts(text))))
    )


def hide_in_command(command: Any, shown: Callable[[str], str] = lambda _: BLANK) -> Any:
    """Return a command line, or its words, with every secret replaced, however short it is.

    Args:
        command: A text or a list; anything else is returned unchanged.
        shown: Returns the replacement of a secret.

    Example:
        >>> hide_in_command("curl -u me:abc https://u:p@host/x?key=1 --password abc")
        'curl -u me:[hidden] https://u:[hidden]@host/x?key=[hidden] --password [hidden]'
        >>> hide_in_command(["ask", "--password", "abc", "--token=x", "abc"])
        ['ask', '--password', '[hidden]', '--token=[hidden]', 'abc']
    """
    match command:
        case str():
            return _without(command, _spans(command), shown)
        case [*words] if all(isinstance(word, str) for word in words):
            return [_without(word, spans, shown) for word, spans in _words(words)]
        case _:
            return command


def _without(text: str, spans: Sequence[tuple[int, int]], shown: Callable[[str], str]) -> str:
    for begin, end in reversed(spans):
        text = text[:begin] + shown(text[begin:end]) + text[end:]
    return text


def _words(words: Sequence[str]) -> Iterator[tuple[str, list[tuple[int, int]]]]:
    before = ""
    for word in words:
        named = _WORD.fullmatch(before)
        if named is not None and is_secret_name(named["name"]) and not word.startswith("-"):
            yield word, [] if not word or word.startswith(_OPEN) else [(0, len(word))]
        elif before in {"-H", "--header"}:
            name, _, value = word.partition(":")
            size = len(value.strip())
            is_secret = (
                size and is_secret_name(name.strip()) and not value.strip().startswith(_OPEN)
            )
            yield word, [(len(word) - len(value.lstrip()), len(word.rstrip()))] if is_secret else []
        else:
            yield word, _spans(word)
        before = word


def _spans(text: str) -> list[tuple[int, int]]:
    """Return the positions of secrets, in order and without overlaps."""
    if _MAY_HOLD.search(text) is None:
        return []
    found = []
    for pattern in (_OPTION, _VARIABLE, _PARAMETER):
        found += [
            one.span("value") for one in pattern.finditer(text) if is_secret_name(one["name"])
        ]
    for one in _HEADER.finditer(text):
        place = next(number for number in "123" if one[f"n{number}"] is not None)
        if is_secret_name(one[f"n{place}"]):
            found.append(one.span(f"v{place}"))
    patterns = [_IN_URL, _ALONE_IN_URL]
    if "curl" in text:
        patterns.append(_CURL_USER)
    for pattern in patterns:
        found += [one.span("value") for one in pattern.finditer(text)]
    spans: list[tuple[int, int]] = []
    for begin, end in sorted(
        (_bare(text, *span) for span in found), key=lambda one: (one[0], -one[1])
    ):
        is_within = spans and begin < spans[-1][1]
        if begin < end and not is_within and not text.startswith(_OPEN, begin):
            spans.append((begin, end))
    return spans


def _bare(text: str, begin: int, end: int) -> tuple[int, int]:
    """Return the position of a value without its quotes."""
    is_quoted = end - begin > 1 and text[begin] in "'\"" and text[end - 1] == text[begin]
    return (begin + 1, end - 1) if is_quoted else (begin, end)
