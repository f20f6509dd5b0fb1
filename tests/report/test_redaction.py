import json

import pytest
from finished import headed, records_of, results_of, rows_of

from trioeval.grading import Assertion, Verdict
from trioeval.report.formats.document import document
from trioeval.report.formats.json import json_chunks
from trioeval.report.head import config_tests
from trioeval.report.redact import keys_of, redacted
from trioeval.report.row import verdict_text


@pytest.mark.parametrize(
    "name",
    [
        *("maxCompletionTokens", "max_output_tokens", "max_tokens", "tokensPerSecond", "keywords"),
        *("apiKeyEnvar", "api_key_envar", "author"),
    ],
)
def test_settings_that_are_not_credentials_are_kept(name: str) -> None:
    """Limits on tokens are settings, not credentials."""
    assert redacted({"body": {name: 5}}) == {"body": {name: 5}}


@pytest.mark.parametrize("name", ["apiKey", "x-auth", "access_token", "Cookie", "headers"])
def test_credentials_are_removed(name: str) -> None:
    """Whole words of a name identify a credential, at any depth."""
    assert redacted([{name: "abc"}]) == [{name: "[redacted]"}]


def test_a_credential_is_removed_as_a_whole() -> None:
    """No part of its value remains."""
    config = {"auth": {"type": "basic", "username": "me"}}
    assert redacted(config) == {"auth": {"type": "[redacted]", "username": "[redacted]"}}


def test_variables_keep_their_values_whatever_their_names() -> None:
    """The name of a variable says nothing: the model got its value in the prompt, which is in the row."""
    test = {"vars": {"password": "open sesame", "api_key": "of the city"}}
    _, rows = rows_of({"providers": ["echo"], "prompts": ["{{password}}"], "tests": [test]})
    (record,) = records_of(rows)
    assert record["vars"] == test["vars"]


def test_credentials_of_judges_are_removed() -> None:
    """Keys are removed from tests and assertions of a suite, and from its rows."""
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
    text = "".join(json_chunks(document(results_of(suite))))
    assert "hush" not in text
    assert text.count("https://host/x?[redacted]") == 5


@pytest.mark.parametrize("kind", ["webhook", "not-webhook"])
def test_credentials_are_removed_from_webhook_urls(kind: str) -> None:
    """Keys of rows and of the suite are removed, also if a template inserted them."""
    hook = {"type": kind, "value": "http://me:hush@127.0.0.1:9/{{word}}?key=hush"}
    test = {"assert": [hook, {"type": "assert-set", "assert": [hook]}]}
    suite = {"providers": ["mine"], "defaultTest": test, "tests": [test]}
    text = "".join(json_chunks(document(results_of(suite))))
    assert "hush" not in text
    assert text.count('"http://127.0.0.1:9/{{word}}?[redacted]"') == 8
    url = "http://127.0.0.1:9/a?key=hush"
    verdict = Verdict(
        passed=True,
        score=1.0,
        reason="yes",
        assertion=Assertion(type=kind, value=hook["value"]),
        metadata={"renderedAssertionValue": url},
    )
    data = json.loads(verdict_text(verdict))
    assert data["assertion"]["value"] == "http://127.0.0.1:9/{{word}}?[redacted]"
    assert data["metadata"] == {"renderedAssertionValue": "http://127.0.0.1:9/a?[redacted]"}


def test_keys_of_the_environment_are_removed() -> None:
    """A key in a test is removed from prompts and replies of judges, also inside of other text."""
    key = "sk-0123456789"
    assertions = [
        {"type": "not-contains", "value": f"it is {key}"},
        {"type": "equals", "value": "{{word}}", "weight": 0},
    ]
    suite = {
        "providers": ["echo"],
        "prompts": ["p"],
        "tests": [{"vars": {"word": key}, "assert": assertions}],
    }
    assert keys_of({"MY_API_KEY": key, "OTHER_TOKEN": "p"}) == (key,)
    parsed, _ = rows_of(suite)
    data = [headed(parsed, keys=(key,)).json(), *config_tests(parsed, (key,))]
    assert key not in json.dumps(data)
    assert key in json.dumps([*config_tests(parsed)])
