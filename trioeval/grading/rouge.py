"""ROUGE-1: how many words a text and its reference have in common, whatever their order.

    ROUGE-1 = 2PR / (P + R)     P = m / c, R = m / r: m clipped matches, c and r words

Lin: ROUGE, a package for automatic evaluation of summaries (2004), with the F measure of equal weights.

Words are those of the Penn Treebank: punctuation stands alone, "don't" is "do" and "n't". The rules are
those that promptfoo splits by, which differ from the original script in how they tell opening quotes
from closing ones.
"""

import re
import unicodedata

from trioeval.grading.ngrams import SPACE, clipped_matches

_GAP = re.compile(f"[{SPACE}\x85]+")
_QUOTE = re.compile("``|''|\"")
_APART: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\.{3}"), " ... "),
    (re.compile(r"[:,](?!\d)"), r" \g<0> "),
    (re.compile(r"[;@#$%&]"), r" \g<0> "),
    # The dot at the end of the text, unless it belongs to letters such as "u.s".
    (re.compile(r"([^.])(?<!(?a:\b)[A-Za-z]\.[A-Za-z])(\.)([\])}>' ]*)\Z"), r"\1 \2\3 "),
    (re.compile(r"[?!\][(){}<>]|--"), r" \g<0> "),
)
_ENDINGS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"([^'])' "), r"\1 ' "),
    (re.compile(r"'([sSmMdD]) "), r" '\1 "),
    (re.compile(r"('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) "), r" \1 "),
)
_CONTRACTION = re.compile(
    "(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n)|(wan)(na)(?= )"
    "|('t)(is)|('t)(was)",
    re.IGNORECASE,
)
_JOINERS = "\u200c\u200d"


def rouge_1(candidate: str, reference: str) -> float:
    """How many words two texts have in common, from 0 to 1; a text without words has 0.

    Example:
        >>> round(rouge_1("the cat sat on a mat", "the cat is on the mat"), 4)
        0.6667
    """
    ours, theirs = treebank_words(candidate.lower()), treebank_words(reference.lower())
    if not ours or not theirs:
        return 0.0
    matches = clipped_matches(ours, theirs, 1)
    low, high = sorted((matches / len(ours), matches / len(theirs)))
    # Calculated like this, a score is on the same side of a threshold that it meets as in promptfoo.
    return min(high, low * (2 / (1 + low / high))) if matches else 0.0


def treebank_words(text: str) -> list[str]:
    """The words of a sentence in the manner of the Penn Treebank.

    Example:
        >>> treebank_words('He said, "I cannot."')
        ['He', 'said', ',', '``', 'I', 'can', 'not', '.', "''"]
    """
    text = f" {_mark_quotes(_GAP.sub(' ', text).strip(' '))} "
    for pattern, apart in _APART:
        text = pattern.sub(apart, text)
    text = f" {text} "
    for pattern, apart in _ENDINGS:
        text = pattern.sub(apart, text)
    return [word for word in _CONTRACTION.sub(_contraction, text).split(" ") if word]


def _mark_quotes(text: str) -> str:
    """The text with each double quote, however it is written, as an opening or a closing one."""
    inside = False

    def mark(quote: re.Match[str]) -> str:
        nonlocal inside
        inside = quote[0] == "``" or (not inside and _opens(text, quote))
        return " `` " if inside else " '' "

    return _QUOTE.sub(mark, text)


def _opens(text: str, quote: re.Match[str]) -> bool:
    at = quote.start()
    before = text[at - 1 : at]
    kind = unicodedata.category(before) if before else ""
    if quote.end() == len(text) and not (before in {"", " ", "<"} or kind == "Ps"):
        return False
    if before in {".", "!", "?"}:
        return False
    if not (
        before in {"", " ", "<"} or kind.startswith("P") or text.startswith("``", max(0, at - 2))
    ):
        return False
    return quote[0] == '"' or _opens_in_apostrophes(text, at)


def _opens_in_apostrophes(text: str, at: int) -> bool:
    after = text[at + 2 : at + 3]
    kind = unicodedata.category(after) if after else ""
    if at == 0 or not (kind.startswith(("L", "N")) or kind in {"Sc", "Ps"}):
        return False
    following = _QUOTE.search(text, at + 2)
    return following is not None and following[0] == "''"


def _contraction(found: re.Match[str]) -> str:
    around = (found.string[found.start() - 1], found.string[found.end() : found.end() + 1])
    if any(_continues_a_word(character) for character in around):
        return found[0]
    last = found.lastindex or 0
    return f" {found[last - 1]} {found[last]} "


def _continues_a_word(character: str) -> bool:
    return character != "" and (character in _JOINERS or f"a{character}".isidentifier())
