"""Damaged replies, which tests of adapters pass to `parse`."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

from trioeval.errors import ProviderError
from trioeval.providers import HttpReply
from trioeval.providers.http.adapter import Adapter

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)
"""Any JSON, including the numbers that Python's parser accepts beyond the standard."""


@st.composite
def damaged(draw: st.DrawFn, whole: Any) -> Any:
    """A JSON value in which up to four places are missing or replaced."""
    data = copy.deepcopy(whole)
    for _ in range(draw(st.integers(1, 4))):
        places = list(_places(data))
        if not places:
            return draw(JSON)
        holder, key = places[draw(st.integers(0, len(places) - 1))]
        if draw(st.booleans()):
            del holder[key]
        else:
            holder[key] = draw(JSON)
    return data


def _places(data: Any) -> Iterator[tuple[Any, Any]]:
    keys = data if isinstance(data, dict) else range(len(data)) if isinstance(data, list) else ()
    for key in keys:
        yield data, key
        yield from _places(data[key])


def check_parse(adapter: Adapter, reply: HttpReply) -> None:
    """Assert that parsing gives a writable reply, or fails in a known way."""
    try:
        read = adapter.parse(reply)
    except ProviderError:
        return
    json.dumps(read.output, allow_nan=False).encode()
    json.dumps(read.metadata, allow_nan=False)
