"""Every secret is hidden everywhere; replies lose only texts that are surely keys."""

import json
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import Problem, ProviderError
from trioeval.providers.secrets import (
    hide,
    hide_in,
    hide_in_error,
    hide_in_problem,
    is_surely_key,
    longest_first,
    secret_parts,
    surely_keys,
)

KEY = "sk-very-secret-1234"

JSON = st.recursive(
    st.none() | st.booleans() | st.text(alphabet="ab1", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet="ab1", max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(value=JSON, secrets=st.lists(st.text(alphabet="ab1", min_size=4, max_size=6), max_size=3))
def test_no_secret_survives_and_nothing_else_changes(value: Any, secrets: list[str]) -> None:
    """Any position counts; a value without a secret is returned as the same object."""
    text = json.dumps(value)
    clean = hide_in(value, secrets)
    if any(secret in text for secret in secrets):
        assert not any(secret in json.dumps(clean) for secret in secrets)
    else:
        assert clean is value


def test_short_texts_are_not_secrets() -> None:
    """A key of one letter would hide every word."""
    assert hide("abc a", ["a", ""]) == "abc a"


@given(bare=st.text(string.ascii_letters + string.digits + "-_./+", max_size=30))
def test_an_unambiguous_key_is_long_and_has_letters_and_digits(bare: str) -> None:
    """The text alone decides, whatever scheme precedes it."""
    has_both = any(char in string.digits for char in bare) and any(
        char in string.ascii_letters for char in bare
    )
    has_letters = any(char in string.ascii_letters for char in bare)
    if len(bare) < 16:
        assert is_surely_key(bare) == (len(bare) >= 12 and has_both)
    elif bare.startswith(("/", "./", "../")):
        assert is_surely_key(bare) == has_both  # a path, unless it has a digit
    elif has_both or not has_letters or len(bare) > 20 or not bare.isalpha():
        assert is_surely_key(bare) == has_letters
    assert is_surely_key(f"Bearer {bare}") == is_surely_key(bare)


@pytest.mark.parametrize(
    "word", ["test", "none", "EMPTY", "ollama", "John", "1000", "Bearer test1"]
)
def test_plain_words_are_not_unambiguous_keys(word: str) -> None:
    """They are keys of private servers, and occur in replies."""
    assert surely_keys([word, KEY]) == (KEY,)


@pytest.mark.parametrize(
    ("credential", "parts"),
    [
        ("sk-1234", {"sk-1234"}),
        ("Bearer sk-1234", {"sk-1234"}),
        (
            'sid="abcd"; theme=dark',
            {'sid="abcd"; theme=dark', "abcd", "dark"},
        ),
        ("Token token=abcd, id=7", {"token=abcd, id=7", "abcd"}),
        ("abcd; efgh", {"abcd; efgh", "abcd", "efgh"}),
        ("abcd==", {"abcd=="}),
        (" ", set()),
    ],
)
def test_each_part_of_a_credential_is_a_secret(credential: str, parts: set[str]) -> None:
    """A server may return one cookie of several, or the key without its scheme."""
    assert secret_parts(credential) == parts


def test_the_longest_secret_is_hidden_first() -> None:
    """Otherwise a part of it would remain."""
    secrets = longest_first(["abcd", "abcd-efgh", "abcd"])
    assert secrets == ("abcd-efgh", "abcd")
    assert hide("abcd-efgh abcd", secrets) == "[hidden] [hidden]"


class Pair(NamedTuple):
    name: str
    key: str


@attrs.frozen
class Thing:
    name: str


class Mute:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "clean"),
    [
        (KEY.encode(), b"[hidden]"),
        (b"\xff" + KEY.encode(), b"\xff[hidden]"),
        (Path("/x") / KEY, "/x/[hidden]"),
        ({KEY, "a"}, {"[hidden]", "a"}),
        (frozenset({KEY}), frozenset({"[hidden]"})),
        ((KEY, 1), ("[hidden]", 1)),
        (Pair("a", KEY), ("a", "[hidden]")),
        ({("a", KEY): 1}, {("a", "[hidden]"): 1}),
        (Thing(KEY), "Thing(name='[hidden]')"),
        ({"a": [Thing("a"), KEY]}, {"a": [Thing("a"), "[hidden]"]}),
    ],
)
def test_no_value_keeps_a_secret(value: Any, clean: Any) -> None:
    """This includes any result of a user's function."""
    assert hide_in(value, [KEY]) == clean


@pytest.mark.parametrize(
    "value",
    [b"a", Path("a"), {1, 2}, Pair("a", "b"), Thing("a"), [Mute()], 1.5, None, bytearray(b"a")],
)
def test_a_value_without_a_secret_stays_the_same_object(value: Any) -> None:
    """This includes values that are not JSON."""
    assert hide_in(value, [KEY]) is value


def test_unchanged_lists_of_numbers_are_not_copied() -> None:
    """A list of numbers beside a key is copied only where it changes."""
    numbers = [0.5] * 10
    clean = hide_in({"a": KEY, "b": numbers}, [KEY])
    assert clean == {"a": "[hidden]", "b": numbers}
    assert clean["b"] is numbers


def chain(error: BaseException) -> Iterator[BaseException]:
    yield error
    for before in (error.__cause__, error.__context__):
        if before is not None:
            yield from chain(before)


def test_causes_of_an_error_are_searched() -> None:
    """Groups, notes, quoted texts, and the excerpts of other errors are searched."""
    noted = ValueError("a")
    noted.add_note(f"with {KEY}")
    inner = ProviderError("server", "b", body_excerpt=f"c {KEY}")
    for cause in (noted, inner, ExceptionGroup("d", [noted]), ExceptionGroup(KEY, [OSError()])):
        error = ProviderError("server", "down", tokens=3, money=0.5, hint="h", retries=2)
        error.__cause__ = cause
        clean = hide_in_error(error, [KEY])
        assert list(chain(clean)) == [clean]
        assert (clean.tokens, clean.money, clean.hint, clean.retries) == (3, 0.5, "h", 2)
        assert hide_in_error(error, ["another one"]) is error


def test_a_long_chain_of_causes_is_searched_once() -> None:
    """Each error is both cause and context of the next."""
    error: Exception = ValueError("first")
    for _ in range(2000):
        after = ProviderError("server", "down")
        after.__cause__ = after.__context__ = error
        error = after
    assert isinstance(error, ProviderError)
    assert hide_in_error(error, [KEY]) is error


@given(size=st.integers(4, 30), limit=st.integers(4, 30))
def test_a_problem_shows_no_part_of_a_secret(size: int, limit: int) -> None:
    """Values in messages are shortened."""
    secret = "abcdefghijklmnopqrstuvwxyz0123"[:size]
    shown = secret if len(secret) <= limit else secret[:limit] + "…"
    problem = hide_in_problem(
        Problem(f".config.{shown}", f"must be a number, got {shown}", f"not {shown}"), [secret]
    )
    assert "abcd" not in str(problem)
    assert hide_in_problem(Problem("a", "b…"), [secret]) == Problem("a", "b…")
