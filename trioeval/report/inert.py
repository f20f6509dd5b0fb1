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
    plain = "".join(" " if unicodedata.category(char) in _UNSAFE else char for char in seen)
    plain = " ".join(plain.split())
    if width is None or (len(plain) <= width and len(seen) == len(whole)):
        return plain
    return plain[: width - 1].rstrip() + "…"


_UNSAFE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
