"""The page about WebSocket services agrees with the code."""

import re

from snippets import DOCS, table

from trioeval.providers.config import to_snake
from trioeval.providers.generic.entry import DEFAULT_FUNCTION
from trioeval.providers.generic.websocket import SOCKET_KEYS, SOCKET_PER_CALL

PAGE = (DOCS / "reference" / "providers" / "websocket.md").read_text()


def test_every_key_is_in_the_reference() -> None:
    """Each has its valid values, in the order of the code."""
    assert [row[:2] for row in table(PAGE, "key")] == [
        [f"`{key.name}`", key.right] for key in SOCKET_KEYS
    ]


def test_the_keys_of_one_call_are_in_the_reference() -> None:
    """The page has all of them, and no other."""
    (listed,) = re.findall(r"^These may differ for one call: (.*)\.$", PAGE, re.MULTILINE)
    assert {to_snake(name.strip("`")) for name in listed.split(", ")} == SOCKET_PER_CALL
    assert f"by default `{DEFAULT_FUNCTION}`" in PAGE
