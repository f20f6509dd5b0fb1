import pytest
from finished import results_of

from trioeval.report import document, json_chunks
from trioeval.report.redact import redacted


@pytest.mark.parametrize(
    "name",
    [
        *("maxCompletionTokens", "max_output_tokens", "max_tokens", "tokensPerSecond", "keywords"),
        *("apiKeyEnvar", "api_key_envar", "author"),
    ],
)
def test_what_is_no_credential_stands_in_a_document(name: str) -> None:
    """Limits on tokens tell how a run was made, and are no tokens."""
    assert redacted({"body": {name: 5}}) == {"body": {name: 5}}


@pytest.mark.parametrize("name", ["apiKey", "x-auth", "access_token", "Cookie", "headers"])
def test_what_is_a_credential_does_not(name: str) -> None:
    """Whole words of a name say so, at any depth."""
    assert redacted([{name: "abc"}]) == [{name: "[redacted]"}]


def test_all_parts_of_a_credential_are_blanked() -> None:
    """Nothing inside of it is looked at."""
    config = {"auth": {"type": "basic", "username": "me"}}
    assert redacted(config) == {"auth": {"type": "[redacted]", "username": "[redacted]"}}


def test_credentials_of_judges_are_not_told() -> None:
    """Neither those of tests and assertions in the suite of a run, nor those of its rows."""
    judge = {"id": "https://me:hush@host/x?key=hush", "config": {"headers": {"x": "hush"}}}
    members = [{"type": "contains", "value": "a", "provider": {"text": judge}}]
    test = {
        "vars": {"word": "a"},
        "options": {"provider": judge},
        "assert": [*members, {"type": "assert-set", "assert": members}],
    }
    suite = {
        "providers": ["echo"],
        "prompts": ["{{word}}"],
        "defaultTest": {"options": {"provider": judge}},
        "tests": [test],
    }
    told = "".join(json_chunks(document(results_of(suite))))
    assert "hush" not in told
    assert told.count("https://host/x?[redacted]") == 5
