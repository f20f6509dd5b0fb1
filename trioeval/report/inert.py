"""Foreign text made harmless for a terminal: no escape sequences, no line breaks, no odd controls."""

import unicodedata


def inert(text: object, width: int | None = None) -> str:
    r"""Text on one line without control or direction characters, cut to `width` characters.

    Example:
        >>> inert("two\nlines \x1b[31mred", 12)
        'two lines […'
    """
    # What is beyond a few times the width can never be seen; replies may be megabytes.
    whole = str(text)
    seen = whole if width is None else whole[: 4 * width + 64]
    plain = " ".join((seen if seen.isprintable() else _blanked(seen)).split())
    if width is None or (len(plain) <= width and len(seen) == len(whole)):
        return plain
    return plain[: width - 1].rstrip() + "…"


def inert_lines(text: object, most: int) -> str:
    r"""Text on as many lines as it has, without control or direction characters.

    Args:
        text: Anything.
        most: Characters that are shown.

    Example:
        >>> inert_lines("a:\r\n\tb \x1b[31m", 99)
        'a:\n    b  [31m'
        >>> inert_lines("abcdef", 2)
        'ab… (4 more characters)'
    """
    whole = str(text)
    lines = whole[:most].replace("\r\n", "\n").replace("\t", "    ")
    plain = "\n".join(map(_blanked, lines.split("\n")))
    return plain if len(whole) <= most else f"{plain}… ({len(whole) - most} more characters)"


def _blanked(text: str) -> str:
    return "".join(" " if unicodedata.category(char) in _UNSAFE else char for char in text)


_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
