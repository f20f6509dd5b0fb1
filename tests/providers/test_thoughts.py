"""Reasoning of models in the forms of all services, and outputs without it, by their real adapters."""

import json
from pathlib import Path
from typing import Any

import pytest

from trioeval.providers import HttpReply, Reply, resolve
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.http.replies import thoughts_in, without_thinking
from trioeval.templates import Templates


def read(entry: str, data: Any, **config: Any) -> Reply:
    """Read a reply with the adapter of a service."""
    keys = dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"), "key")
    spec = resolve(entry, config, environ=keys, directory=Path(), templates=Templates(), custom={})
    assert isinstance(spec.settings, AdapterSettings)
    reply = spec.settings.adapter.parse(HttpReply(200, {}, json.dumps(data).encode()))
    assert isinstance(reply, Reply)
    return reply


def chat(**message: Any) -> Any:
    return {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


IN_PARTS = [
    {"type": "thinking", "thinking": [{"type": "text", "text": "Hm.\n\nSo."}]},
    {"type": "text", "text": "Red."},
]
BLOCKS = [
    {"type": "thinking", "thinking": "Hm.\n\nSo."},
    {"type": "text", "text": "Red."},
    {"type": "thinking", "thinking": "Really."},
    {"type": "text", "text": "Yes."},
    {"type": "thinking", "thinking": "Done."},
]
ITEMS = [
    {"type": "reasoning", "summary": [{"text": "Hm."}, {"text": "So."}]},
    {"type": "message", "content": [{"type": "output_text", "text": "Red."}]},
]
PARTS = [{"text": "Hm. ", "thought": True}, {"text": "So.", "thought": True}, {"text": "Red."}]


@pytest.mark.parametrize("config", [{}, {"showThinking": False}])
@pytest.mark.parametrize(
    ("entry", "data", "thoughts", "output"),
    [
        ("openai:chat:m", chat(content="Red.", reasoning="Hm.\n\nSo."), ["Hm.\n\nSo."], "Red."),
        ("openai:chat:m", chat(content="Red.", reasoning_content="Hm."), ["Hm."], "Red."),
        ("openai:chat:m", chat(content=IN_PARTS), ["Hm.\n\nSo."], "Red."),
        ("openai:chat:m", chat(content="Red."), [], "Red."),
        (
            "anthropic:messages:m",
            {"content": BLOCKS, "stop_reason": "end_turn"},
            ["Hm.\n\nSo.", "Really.", "Done."],
            "Red.\n\nYes.",
        ),
        ("openai:responses:m", {"status": "completed", "output": ITEMS}, ["Hm.\nSo."], "Red."),
        (
            "google:m",
            {"candidates": [{"content": {"parts": PARTS}, "finishReason": "STOP"}]},
            ["Hm. So."],
            "Red.",
        ),
    ],
)
def test_reasoning_is_separated_from_the_output(
    entry: str, data: Any, thoughts: list[str], output: str, config: dict[str, Any]
) -> None:
    """The distinction does not depend on whether the output shows it."""
    reply = read(entry, data, **config)
    assert thoughts_in(reply.raw) == thoughts
    assert without_thinking(reply) == output
    shown = isinstance(reply.output, str) and "Thinking: " in reply.output
    assert shown == (bool(thoughts) and not config)


@pytest.mark.parametrize(
    "raw", [None, "text", [], {"choices": [1]}, {"content": "text"}, {"output": [{"type": 1}]}]
)
def test_a_reply_without_reasoning_has_none(raw: Any) -> None:
    assert thoughts_in(raw) == []
    text = "Thinking: is hard.\n\nYes."
    assert without_thinking(Reply(output=text, raw=raw)) == text
    assert without_thinking(Reply(output={"a": 1}, raw=raw)) == {"a": 1}
