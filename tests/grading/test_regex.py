"""Patterns have the meaning that they have in JavaScript."""

import re
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.grading.patterns import LONGEST, compile_javascript, found_at_once, found_in_time


def found(pattern: str, text: str) -> bool:
    return found_in_time(compile_javascript(pattern), text)


MATCHES: list[tuple[str, str, bool]] = [
    (r"^l2", "l1\nl2", False),
    (r"l2$", "l1\nl2", True),
    (r"c$", "abc\n", False),
    (r"^abc$", "abc", True),
    (r"a.c", "a\nc", False),
    (r"a.c", "a\u2028c", False),
    (r"a.c", "a\x85c", True),
    (r"a[^]c", "a\nc", True),
    (r"[]", "anything", False),
    (r"[^]]", "x]", True),
    (r"\d", "٣", False),
    (r"\w", "ü", False),
    (r"\bü", "ü", False),
    (r"\B-\B", "-", True),
    (r"\s", "\xa0", True),
    (r"\s", "\ufeff", True),
    (r"\s", "\x85", False),
    (r"^\S$", "\xa0", False),
    (r"^\S$", "\x1c", True),
    (r"[\s]", "\u3000", True),
    (r"[^\s]", "\u3000", False),
    (r"[\S]", "\xa0", False),
    (r"[\D]", "5", False),
    (r"[\W]", "_", False),
    (r"[\d-x]", "-", True),
    (r"[a-\d]", "-", True),
    (r"[a-]", "-", True),
    (r"[-a]", "-", True),
    (r"[a-c]", "b", True),
    (r"[a\-c]", "b", False),
    (r"[a&&b]", "&", True),
    (r"[[]", "[", True),
    (r"[||~~]", "|", True),
    (r"[$^]", "^", True),
    (r"[(?<x]", "<", True),
    (r"[\b]", "\x08", True),
    (r"[\B]", "B", True),
    (r"a{2}", "aa", True),
    (r"^a{,3}$", "a{,3}", True),
    (r"a{", "a{", True),
    (r"^a{1,}?$", "aaa", True),
    (r"x{1}y", "xy", True),
    (r"(?<year>\d{4})-\k<year>", "1999-1999", True),
    (r"(?<a>x)(?<b>y)\k<b>", "xyx", False),
    (r"(a)\1", "aa", True),
    (r"(a)(?:\1)0", "aa0", True),
    (r"(?:a|b)c", "bc", True),
    (r"a(?=b)", "ab", True),
    (r"a(?!b)", "ab", False),
    (r"(?<=a)b", "ab", True),
    (r"(?<!a)b", "ab", False),
    (r"\/\-\_\é", "/-_é", True),
    (r"\x41\u0042", "AB", True),
    (r"\u{43}", "C", False),
    (r"^\u{3}$", "uuu", True),
    (r"\ud83d\ude00", "😀", True),
    (r"\ud83d", "😀", True),
    (r"^\ude00", "😀", False),
    (r"^.$", "😀", False),
    (r"^..$", "😀", True),
    (r"^[😀]$", "😀", False),
    (r"\u{1F600}", "😀", False),
    (r"[\u0000-\uffff]", "\U00010000", True),
    (r"^\ud83d$", "\ud83d", True),
    ("\ud83d", "😀", True),
    ("^\ud83d$", "\ud83d", True),
    ("😀", "\ud83d\ude00", True),
    (r"\p{L}", "é", False),
    (r"\p{L}", "p{L}", True),
    (r"[\p{L}]", "L", True),
    (r"\P{Lu}", "P{Lu}", True),
    (r"\cJ", "\n", True),
    (r"\0", "\0", True),
    (r"\n\r\t\v\f", "\n\r\t\x0b\x0c", True),
    (r"a b#c", "a b#c", True),
    (r"\Z", "Z", True),
    (r"\A", "A", True),
    (r"(?<=\$\d*)2", "$12", True),
    (r"(?<!a+)b", "aab", False),
    (r"(?<=(\d)\1)x", "12x", True),
    (r"^(a)?b\1$", "b", True),
    (r"^(?:(?<n>a)|b)\k<n>$", "b", True),
    (r"^\1(a)\k<n>(?<n>b)$", "ab", True),
    (r"^(a\1)$", "a", True),
    (r"^(?:\1(a)){2}$", "aa", True),
    (r"(?=a)*b", "b", True),
    (r"[a-\d-c]", "b", False),
    (r"x{0}y", "y", True),
    (r"(?:a{100}){100}", "a" * 10_000, True),
    (r"(?:(?:a{300}){300}){300}", "a", False),
    (r"a{99999999999}", "x", False),
    (r"\1", "\x01", True),
    (r"(a)\2", "a\x02", True),
    (r"[\1]", "\x01", True),
    (r"\k<n>", "k<n>", True),
    (r"\07", "\x07", True),
    (r"\c1", r"\c1", True),
    (r"\x4\u004", "x4u004", True),
    (r"(?<$a>x)\k<$a>", "xx", True),
    (r"(?<é>x)\k<é>", "xx", True),
    (r"(?<=(a\1))b", "aab", True),
    (r"(?=(a+))a*b\1", "baaabac", True),
    (r"^(?:(a)|b)*\1$", "aab", True),
    (r"(?=a)?b", "b", True),
    (r"[a-z&&[^b]]", "b]", True),
    (r"]}{}", "]}{}", True),
    (r"\bé\b", "é", False),
    (r"É", "é", False),
    (r"\s", "\u180e", False),
    ("a\0b", "a\0b", True),
    (r"^a\0b$", "a\0b", True),
    ("\0$", "a\0b", False),
    ("", "", True),
]


"""Patterns, most of which mean something else in Python, with the results of Node 22."""


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    MATCHES,
    ids=[f"{p!a}-{n}" for n, (p, _, _) in enumerate(MATCHES)],
)
def test_patterns_have_the_meaning_of_javascript(pattern: str, text: str, expected: bool) -> None:  # noqa: FBT001
    """They have no flags, search, and match UTF-16 units."""
    assert found(pattern, text) is expected


INVALID: list[tuple[str, str]] = [
    ("[", "unexpected end"),
    (r"[\]", "unexpected end"),
    ("(", "expecting ')'"),
    (")", "extraneous characters at the end"),
    ("*", "nothing to repeat"),
    ("a**", "nothing to repeat"),
    ("a++", "nothing to repeat"),
    ("a{2}{3}", "nothing to repeat"),
    ("^*", "nothing to repeat"),
    ("a|?", "nothing to repeat"),
    (r"\b+", "nothing to repeat"),
    ("(?<=a)?", "nothing to repeat"),
    ("a{3,2}", "invalid repetition count"),
    ("[z-a]", "invalid class range"),
    ("(?i)x", "expecting ':'"),
    ("(?P<n>a)", "invalid group"),
    ("(?>a)", "invalid group"),
    ("(?", "invalid group"),
    ("(?<a-b>x)", "invalid group name"),
    (r"(?<a>x)\k<a-b>", "invalid group name"),
    ("a\\", "unexpected end"),
    ("(?:" * 3000 + ")" * 3000, "it is nested too deeply"),
    ("x" * (LONGEST + 1), "it is longer than 20,000 characters"),
]


@pytest.mark.parametrize(("pattern", "message"), INVALID, ids=[f"{p[:9]}-{m}" for p, m in INVALID])
def test_invalid_patterns_are_rejected_with_the_reason(pattern: str, message: str) -> None:
    """These are errors in JavaScript as well, except for those that are too large."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared whole
        compile_javascript(pattern)
    assert str(caught.value) == message


def test_patterns_differ_from_those_of_node_only_where_they_are_listed() -> None:
    """docs/differences.md names these cases: Node rejects them, or finds nothing."""
    assert found(r"[\d-a-c]", "b")
    assert found("^(?i:x)y$", "Xy")
    assert found(r"^(?:(?<n>a)|(?<n>b))\k<n>$", "bb")
    assert found("()" * 254, "")
    with pytest.raises(ValueError, match=r"^too many captures$"):
        compile_javascript("()" * 255)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["a", "é", "😀", "\0", "\ud83d"])
def test_long_texts_are_searched_whole(unit: str) -> None:
    """Ten million units of any kind arrive, in their order."""
    text = f"<{unit * (10_000_000 // len(unit.encode('utf-16-le', 'surrogatepass')) * 2)}>"
    assert found(">$", text)
    assert not found("^>", text)


def test_threads_do_not_share_an_engine() -> None:
    """A pattern compiled in one thread is used in others at the same time."""
    pattern = compile_javascript(r"(\w+) \1$")
    results: list[bool | None] = []

    def search() -> None:
        results.extend(found_at_once(pattern, f"a{n} a{n % 2}") for n in range(200))

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count(True) == 8
    assert results.count(False) == 792


@pytest.mark.slow
@given(st.text(min_size=1))
def test_an_escaped_text_matches_itself(text: str) -> None:
    """A backslash removes the special meaning of every character, and any text can be carried."""
    pattern = re.sub(r"([\\^$.*+?()\[\]{}|/-])", r"\\\1", text)
    assert found(f"^<{pattern}>$", f"<{text}>")


@pytest.mark.slow
@given(st.text(alphabet=r"ab[]()\^$.*+?{},1:=!<>-dswbkux09", max_size=12), st.text("ab1-\n "))
def test_any_pattern_compiles_or_is_rejected(pattern: str, text: str) -> None:
    """Any text is a pattern or a ValueError."""
    try:
        compiled = compile_javascript(pattern)
    except ValueError:
        return
    found_in_time(compiled, text)
