import html
import json
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.providers.secrets import spellings

SPELLINGS: list[Callable[[str], str]] = [
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(json.dumps(text))[3:-3],
    lambda text: text.replace("/", "\\/"),
    html.escape,
    lambda text: "".join(char if char.isalnum() else f"&#{ord(char)};" for char in text),
    lambda text: "".join(char if char.isalnum() else f"&#x{ord(char):04X};" for char in text),
    lambda text: quote(text, safe=""),
    lambda text: quote(text, safe="").lower() if text == text.lower() else quote(text),
    lambda text: quote(quote(text, safe=""), safe=""),
    quote_plus,
]


@given(
    text=st.text(st.characters(codec="utf-8", exclude_characters="\\"), min_size=1, max_size=20),
    context=st.tuples(*[st.text(alphabet="<>,. ", max_size=4)] * 2),
    spell=st.sampled_from(SPELLINGS),
)
def test_a_text_is_found_in_every_escaped_form(
    text: str, context: tuple[str, str], spell: Callable[[str], str]
) -> None:
    """Escapes of JSON, HTML and URLs are recognised."""
    before, after = context
    # The context may complete a further occurrence, in front of this one too: "<>" before "<><".
    spelled = f"{before}{spell(text)}{after}"
    assert spellings(text).replace(spelled, "") in (
        before + after,
        (before + after).replace(text, ""),
        spelled.replace(text, ""),
    )


@given(text=st.text(alphabet="ab/\\", min_size=1, max_size=6), other=st.text(alphabet="ab/-"))
def test_other_texts_are_left_alone(text: str, other: str) -> None:
    """Only spellings of the text are replaced."""
    if text not in other:
        plain = text.replace("\\", "")
        assert plain in other or spellings(text).replace(other, "?") == other


@pytest.mark.parametrize(
    "quoted",
    [r"ab\/cd+ef", "ab&#x2F;cd&#43;ef", "ab&sol;cd&plus;ef", "ab%2fcd%2Bef", r"ab\u002fcd\u002Bef"],
)
def test_spellings_may_be_mixed(quoted: str) -> None:
    """Servers escape some characters and not others."""
    assert spellings("ab/cd+ef").replace(f"<{quoted}>", "?") == "<?>"


def test_a_quoted_backslash_is_found() -> None:
    """Each time that a text is quoted its backslashes double."""
    key = 'a\\b"c'
    for _ in range(3):
        assert spellings('a\\b"c').replace(f"<{key}>", "?") == "<?>"
        key = json.dumps(key)[1:-1]


def test_the_representation_of_a_spelling_is_not_the_text() -> None:
    """It is made from secrets."""
    assert "hidden" not in repr(spellings("hidden-1"))
