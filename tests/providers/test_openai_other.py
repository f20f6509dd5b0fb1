import struct
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vendor_cases import reply
from vendor_vectors import EMBEDDINGS, MODERATIONS, PACKED, VECTOR, embedded, judged

from trioeval.providers import Usage
from trioeval.providers.base import Guardrails
from trioeval.providers.vendors.openai_other import read_vector

CLEAN = {"flagged": False, "categories": {"hate": False}, "category_scores": {"hate": 1e-06}}


def test_a_packed_vector_is_a_list_of_numbers() -> None:
    """The raw body is unchanged."""
    answer = EMBEDDINGS.adapter().parse(reply(embedded(PACKED)))
    assert answer.output == VECTOR
    assert answer.raw["data"][0]["embedding"] == PACKED


def test_cost_is_known_only_with_price_and_tokens() -> None:
    """The total counts as the prompt: vectors have no tokens."""
    assert EMBEDDINGS.adapter().parse(reply(embedded(VECTOR))).cost is None
    priced = EMBEDDINGS.adapter(price={"input": 10, "output": 0})
    answer = priced.parse(reply(embedded(VECTOR, usage={"total_tokens": 3})))
    assert answer.usage == Usage(total=3)
    assert answer.cost == pytest.approx(30 / 1e6)


@pytest.mark.slow
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_a_packed_vector_is_the_vector(numbers: list[float]) -> None:
    """Every 32-bit float is read back unchanged."""
    assert read_vector(b64encode(struct.pack(f"<{len(numbers)}f", *numbers)).decode()) == numbers


def test_a_clean_text_has_no_flags() -> None:
    """The guardrails say that it was not flagged."""
    answer = MODERATIONS.adapter().parse(reply(judged(CLEAN)))
    assert answer.output == CLEAN
    assert answer.guardrails == Guardrails(flagged=False)
    assert answer.metadata["flags"] == []


def test_a_flag_without_a_score_is_kept() -> None:
    """A missing score is not invented; the flag follows those with scores."""
    result = {"flagged": True, "categories": {"a": True, "b": True}, "category_scores": {"b": 0.1}}
    flags = MODERATIONS.adapter().parse(reply(judged(result))).metadata["flags"]
    assert [(flag["code"], flag["confidence"]) for flag in flags] == [("b", 0.1), ("a", None)]
