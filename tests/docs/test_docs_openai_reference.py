"""The pages about OpenAI and compatible services agree with the code."""

import pytest
from snippets import DOCS, table

from trioeval.providers.config import Key
from trioeval.providers.http.endpoint import ENDPOINT_KEYS, Service
from trioeval.providers.vendors.chat import CALL_KEYS, ENTRY_KEYS
from trioeval.providers.vendors.openai import READERS
from trioeval.providers.vendors.services import ALIASES, BEHIND_GATEWAY, SERVICES

OPENAI = (DOCS / "reference" / "providers" / "openai.md").read_text()
PAGE = (DOCS / "reference" / "providers" / "services.md").read_text()


def _limits(service: Service) -> str:
    if service.limits_per_model:
        return "model"
    return "account" if service.needs_key else "server"


def test_every_service_is_in_the_reference() -> None:
    """Each has its address, its ids, and what shares a lane."""
    expected = [
        [
            f"`{prefix}`",
            f"`{service.default_url or service.url_template}`"
            if service.default_url or service.url_template
            else "none",
            ", ".join(f"`{name}`" for name in service.key_variables),
            ", ".join(f"`{name}`" for name in (*service.host_variables, *service.url_variables)),
            _limits(service),
        ]
        for prefix, service in SERVICES.items()
    ]
    assert table(PAGE, "prefix") == expected


def test_every_quirk_is_in_the_reference() -> None:
    """These are renamed and refused keys."""
    expected = {
        prefix: [
            ", ".join(
                f"`{name}` as `{other}`"
                for names in (service.config_names, service.renames, service.body_names)
                for name, other in names.items()
            ),
            ", ".join(f"`{name}`" for name in sorted(service.rejects)),
        ]
        for prefix, service in SERVICES.items()
        if service.renames or service.rejects or service.config_names or service.body_names
    }
    written = {row[0].strip("`"): row[1:] for row in table(PAGE, "service")}
    assert written == expected


def test_every_key_of_a_single_service_is_in_the_reference() -> None:
    """Each has its valid values."""
    expected = [
        [f"`{prefix}`", f"`{key.name}`", key.right]
        for prefix, service in SERVICES.items()
        for key in service.keys
    ]
    assert table(PAGE, "of the service") == expected


def test_other_prefixes_and_the_gateway_are_in_the_reference() -> None:
    """All of them, in the order of the code."""
    other = [[f"`{name}`", f"`{ours}`"] for name, ours in ALIASES.items()]
    assert table(PAGE, "prefix of promptfoo") == other
    behind = [[f"`{name}`", f"`{variable}`"] for name, (variable, _) in BEHIND_GATEWAY.items()]
    assert table(PAGE, "service behind the gateway") == behind


@pytest.mark.parametrize(
    ("first", "known"),
    [
        ("key of the request", CALL_KEYS),
        ("key of the entry", (*ENTRY_KEYS, *ENDPOINT_KEYS)),
    ],
)
def test_every_key_of_a_chat_is_in_the_reference(first: str, known: tuple[Key, ...]) -> None:
    """Each has its valid values, in the order of the code."""
    rows = table(OPENAI, first)
    assert [row[:2] for row in rows] == [[f"`{key.name}`", key.right] for key in known]


def test_every_kind_is_in_the_reference() -> None:
    """Kinds are listed as forms of ids."""
    listed = {row[0] for row in table(OPENAI, "id")}
    assert listed == {"`openai:<model>`", *(f"`openai:{kind}:<model>`" for kind in READERS)}


def test_every_variable_is_in_the_reference() -> None:
    """Each has the key whose default it sets."""
    rows = [[cell.strip("`") for cell in row[:2]] for row in table(OPENAI, "variable")]
    assert rows == [[name, key] for key, name in SERVICES["openai"].variables.items()]
