"""JSON marks are counted without parsing, and equal those that a parser finds."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from trioeval.providers.bounds import has_more_marks

TEXTS = st.text(
    st.sampled_from('"\\,[{ \n\u20ac') | st.characters(exclude_categories=["Cs"]), max_size=8
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


def marks(value: Any) -> int:
    """Return the number of texts, opening brackets and commas of a value."""
    match value:
        case str():
            return 1
        case list():
            return 1 + max(0, len(value) - 1) + sum(map(marks, value))
        case dict():
            return 1 + max(0, len(value) - 1) + sum(1 + marks(one) for one in value.values())
    return 0


@given(value=VALUES, is_ascii=st.booleans())
def test_json_marks_are_counted_exactly(*, value: Any, is_ascii: bool) -> None:
    document = json.dumps(value, ensure_ascii=is_ascii).encode()
    number = marks(value)
    assert not has_more_marks(document, number)
    assert number == 0 or has_more_marks(document, number - 1)
