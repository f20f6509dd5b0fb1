import pytest

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
