"""The page about the cache describes its keys correctly."""

import json
import re

from snippets import DOCS

from trioeval.providers.cache_key import FORMAT, IGNORED_HEADERS, CacheIdentity
from trioeval.providers.http.wire import HttpRequest
from trioeval.store.cache.backends import FIRST_LOOK, LONGEST_LOOK
from trioeval.store.cache.cache import LEASE
from trioeval.store.cache.file import LIFETIME

PAGE = (DOCS / "reference" / "cache.md").read_text()


def test_the_table_lists_the_members_of_a_key() -> None:
    """Their order is part of the format."""
    question = CacheIdentity(name="", service="", request=HttpRequest("http://h", {}, None))
    section = PAGE.split("## The key")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE) == list(json.loads(question.text()))
    assert f"| `format` | {FORMAT} |" in section


def test_ignored_headers_are_listed() -> None:
    """The page names all of them."""
    named = PAGE.split("and these headers: ")[1].split(".\n")[0]
    assert re.findall("`([^`]+)`", named) == sorted(IGNORED_HEADERS)


def test_times_equal_those_of_the_code() -> None:
    """These are the times of replies, leases and polls."""
    assert f"| `CACHE_TTL` | {LIFETIME:.0f} |" in PAGE
    assert f"its lease for {LEASE:g} seconds" in PAGE
    assert f"every {LEASE / 3:g} seconds" in PAGE
    assert (FIRST_LOOK, LONGEST_LOOK) == (0.01, 0.5)
