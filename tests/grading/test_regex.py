import json
import re
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.grading.patterns import compile_javascript

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
    (r"\x41\u0042\u{43}", "ABC", True),
    (r"\ud83d\ude00", "😀", True),
    (r"\ud83d", "😀", False),
    (r"\u{1F600}", "😀", True),
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
    (r"[\d-a-c]", "b", False),
    (r"[a-\d-c]", "b", False),
    (r"x{0}y", "y", True),
    (r"(?:a{100}){100}", "a" * 10_000, True),
]


@pytest.mark.parametrize(
    ("pattern", "text", "found"), MATCHES, ids=[f"{p}-{n}" for n, (p, _, _) in enumerate(MATCHES)]
)
def test_patterns_have_the_meaning_of_javascript(pattern: str, text: str, found: bool) -> None:  # noqa: FBT001
    """They have no flags and search; where the dialects differ, JavaScript's meaning applies."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (compile_javascript(pattern).search(text) is not None) is found


REFUSED: list[tuple[str, str]] = [
    ("[", "[ is never closed"),
    (r"[\]", "[ is never closed"),
    ("(", "( is never closed"),
    (")", "unmatched )"),
    ("*", "nothing to repeat before *"),
    ("a**", "nothing to repeat before *"),
    ("a++", "nothing to repeat before +"),
    ("a{2}+", "nothing to repeat before +"),
    ("a{2}{3}", "nothing to repeat before {3}"),
    ("a?+", "nothing to repeat before +"),
    ("^*", "nothing to repeat before *"),
    ("a|?", "nothing to repeat before ?"),
    (r"\b+", "nothing to repeat before +"),
    ("(?<=a)?", "nothing to repeat before ?"),
    ("a{3,2}", "min repeat greater than max repeat"),
    ("a{99999999999}", "the number 99999999999 is too large"),
    ("a{1,99999999999}", "repeat count too big"),
    ("(?:(?:a{300}){300}){300}", "its repetitions expand to more than 20,000 characters"),
    ("x" * 50_001, "it is longer than 50,000 characters"),
    ("[z-a]", "bad character range"),
    ("(?i)x", '"(?i" does not start a group'),
    ("(?P<n>a)", '"(?P" does not start a group'),
    ("(?>a)", '"(?>" does not start a group'),
    ("(?", '"(?" does not start a group'),
    ("(?<a-b>x)", '"a-b" is not a valid name of a group'),
    ("(?<>x)", '"" is not a valid name of a group'),
    (r"(?<a>x)\k<a-b>", '"a-b" is not a valid name of a group'),
    ("(?<n>a)|(?<n>b)", 'there are two groups with the name "n"'),
    (r"(a\k<n>)", 'unknown group "n"'),
    (r"\1", "unknown group 1"),
    (r"(a)\2", "unknown group 2"),
    (r"(?<=(a\1))", "cannot refer to an open group"),
    (r"[\1]", "a reference cannot be between [ and ]"),
    (r"\p{L}", r"\p is not supported here"),
    (r"\P{L}", r"\P is not supported here"),
    (r"\07", r"\0 is not supported here"),
    (r"\c1", r"\c is not supported here"),
    (r"\u{110000}", r"\u{110000} is not a character"),
    ("a\\", "the last \\ escapes nothing"),
    ("(" * 3000 + ")" * 3000, "it is nested too deeply"),
]


@pytest.mark.parametrize(("pattern", "message"), REFUSED, ids=[f"{p[:9]}-{m}" for p, m in REFUSED])
def test_patterns_without_a_counterpart_are_rejected(pattern: str, message: str) -> None:
    """They are never given another meaning; the message describes the problem."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is compared whole
        compile_javascript(pattern)
    assert str(caught.value) == message


def test_groups_keep_their_names_and_numbers() -> None:
    """Nothing that the translation adds counts as a group."""
    found = compile_javascript(r"(a)(?<n>[^])(.)\2").search("ab-b")
    assert found is not None
    assert (found.groups(), found["n"]) == (("a", "b", "-"), "b")


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_an_escaped_text_matches_itself(text: str) -> None:
    """A backslash removes the special meaning of every character."""
    pattern = re.sub(r"([\\^$.*+?()\[\]{}|/-])", r"\\\1", text)
    found = compile_javascript(pattern).search(f"<{text}>")
    assert found is not None
    assert found[0] == text


@pytest.mark.slow
@given(st.text(alphabet=r"ab[]()\^$.*+?{},1:=!<>-dswbkux09", max_size=12), st.text("ab1-\n "))
def test_any_pattern_compiles_or_is_rejected(pattern: str, text: str) -> None:
    """Any text gives a pattern or a ValueError, never a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            compiled = compile_javascript(pattern)
        except ValueError:
            return
        compiled.search(text)


PIECES = st.sampled_from(
    [
        r"a",
        r"b",
        r"1",
        r"-",
        r".",
        r"\d",
        r"\w",
        r"\s",
        r"\b",
        r"\B",
        r"\W",
        r"^",
        r"$",
        r"|",
        r"(",
        r"(?:",
        r"(?=",
        r"(?!",
        r"(?<=",
        r"(?<!",
        r"(?<n>",
        r")",
        r")",
        r")",
        r")",
        r"*",
        r"+",
        r"?",
        r"{2}",
        r"{0,1}",
        r"*?",
        r"\1",
        r"\2",
        r"\k<n>",
        r"[a-c]",
        r"[^b1]",
        r"[\d-]",
        r"[]",
        r"[^]",
        r"{",
    ]
)


@pytest.mark.slow
@given(
    st.lists(PIECES, max_size=12).map("".join),
    st.lists(st.text("ab1- \n", max_size=6), min_size=1, max_size=4),
)
def test_an_accepted_pattern_has_the_same_meaning_in_javascript(
    pattern: str, texts: list[str]
) -> None:
    """A JavaScript engine accepts it too, and finds it in the same texts."""
    quickjs = pytest.importorskip("quickjs")
    try:
        compiled = compile_javascript(pattern)
    except ValueError:
        return
    script = (
        f"JSON.stringify({json.dumps(texts)}.map(t => new RegExp({json.dumps(pattern)}).test(t)))"
    )
    theirs = json.loads(quickjs.Context().eval(script))
    assert [compiled.search(text) is not None for text in texts] == theirs
