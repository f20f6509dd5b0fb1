from typing import Any

import pytest

from trioeval.errors import ProviderError
from trioeval.providers.messages import to_messages

CONTROL = "unacceptable character #x0000: control characters are not allowed"
USER = {"role": "user", "content": "Hi"}


@pytest.mark.parametrize(
    ("prompt", "messages"),
    [
        ("Hi", [USER]),
        ('[{"role": "user", "content": "Hi"}]', [USER]),
        ('\n [\n {"role": "system", "content": null}]', [{"role": "system", "content": None}]),
        ("- role: user\n  content: Hi", [USER]),
        ("\n- role: user\n  content: 12:30\n", [{"role": "user", "content": "12:30"}]),
        ("- role: user\n  content: no\n", [{"role": "user", "content": "no"}]),
        ("- role: user\n  content: 1.50\n", [{"role": "user", "content": "1.50"}]),
        ("- role: assistant\n  content:\n", [{"role": "assistant", "content": None}]),
        ("- role: assistant\n  content: null\n", [{"role": "assistant", "content": None}]),
        ("- role: user\n  content: ''\n", [{"role": "user", "content": ""}]),
        (
            "- role: user\n  content:\n  - type: text\n    text: Hi\n",
            [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
        ),
    ],
)
def test_chat_prompts_are_lists_in_json_or_yaml(prompt: str, messages: list[Any]) -> None:
    """Messages are unchanged, and scalars of YAML stay text."""
    assert to_messages(prompt) == messages


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "[INST] Hello [/INST]",
        "[1, 2] is a list",
        "{name} is a placeholder",
        '{"question": "Why?"}',
        "[]",
        "{}",
        '[{"word": "Hi"}]',
        "- roles: many",
    ],
)
def test_any_other_text_is_one_user_message(prompt: str) -> None:
    """Text that is not a list of messages is sent unchanged."""
    assert to_messages(prompt) == [{"role": "user", "content": prompt}]


@pytest.mark.parametrize(
    ("prompt", "reason"),
    [
        (
            '[{"role":}]',
            "it starts like JSON but is not valid: Expecting value: line 1 column 10 (char 9)",
        ),
        (
            '[{"role": "user", "content": NaN}]',
            "it starts like JSON but is not valid: NaN is not a valid JSON value",
        ),
        ('[{"role": "user"}, {"content": "Hi"}]', "messages[1] is not an object with a role"),
        ("- role: user\n- content: Hi", "messages[1] is not an object with a role"),
        (
            "- role: user\nmore: x",
            "its YAML is not valid in line 2: did not find expected '-' indicator",
        ),
        ("- role: *x", "its YAML is not valid in line 1: found undefined alias"),
        ("- role: !!int a", "its YAML is not valid: invalid literal for int() with base 10: 'a'"),
        (
            "- role: u\n  at: !!timestamp 2026-01-01",
            "its YAML has values that JSON does not support",
        ),
        ("- role: u\n  content: &a [*a]", "its YAML has values that JSON does not support"),
        ("- role: a\x00", f"its YAML is not valid: {CONTROL}"),
    ],
)
def test_broken_messages_are_refused(prompt: str, reason: str) -> None:
    """Invalid messages are never sent as plain text."""
    with pytest.raises(ProviderError) as caught:
        to_messages(prompt)
    assert str(caught.value) == f"bad_request: invalid prompt: {reason}"
