"""The page about HTTP services agrees with the code."""

import re

from snippets import DOCS, table

from trioeval.providers.config import to_snake
from trioeval.providers.generic import auth, keys, request
from trioeval.providers.generic import auth as oauth
from trioeval.providers.generic import http as redirects
from trioeval.providers.generic.entry import DEFAULT_FUNCTION
from trioeval.providers.generic.reply import MemberPath, ReplyQuery, read_transform
from trioeval.scripting.engine import program
from trioeval.scripting.javascript import Script

PAGE = (DOCS / "reference" / "providers" / "http.md").read_text()


def test_every_key_is_in_the_reference() -> None:
    """Each has its valid values, in the order of the code."""
    assert [row[:2] for row in table(PAGE, "key")] == [
        [f"`{key.name}`", key.right] for key in keys.KEYS
    ]


def test_the_keys_of_one_call_are_in_the_reference() -> None:
    """The page has all of them, and no other."""
    (listed,) = re.findall(r"^These may differ for one call: (.*)\.$", PAGE, re.MULTILINE)
    assert {to_snake(name.strip("`")) for name in listed.split(", ")} == keys.PER_CALL


def test_every_type_of_auth_is_in_the_reference() -> None:
    """Each has its keys."""
    documented = {kind: re.findall(r"`(\w+)`", names) for kind, names, _ in table(PAGE, "type")}
    assert documented == {
        f"`{kind}`": [key.name for key in fields] for kind, fields in auth.FIELDS.items()
    }


def test_examples_of_transforms_are_valid_in_their_languages() -> None:
    """Functions in files are read from the folder of the suite."""
    examples = [example.strip("`") for _, example, _ in table(PAGE, "form")]
    kinds = [MemberPath, ReplyQuery, ReplyQuery, None, None, Script]
    for example, kind in zip(examples, kinds, strict=True):
        assert kind is None or isinstance(read_transform(example), kind)
    assert f"by default `{DEFAULT_FUNCTION}`" in PAGE


def test_numbers_equal_those_of_the_code() -> None:
    """These are bounds and margins."""
    assert f"at most {request.LARGEST // 1024**2} MiB" in PAGE
    seconds, memory = program.TIME_LIMIT, program.MEMORY_BYTES // 1024**2
    assert f"at most {seconds:g} seconds of processor time and {memory} MiB for a call" in PAGE
    assert (redirects.MOST, oauth.MARGIN) == (10, 60)
    assert program.run(Script("1", ()).source, []) == {"value": 1}
