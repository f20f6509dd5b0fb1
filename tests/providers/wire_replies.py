"""A reply of a model in the wire form of each vendor: text, reasoning, tool calls, refusal, truncation.

The same `Said` becomes a body of chat completions, responses, Anthropic's messages, Gemini and Bedrock.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import attrs
from vendor_anthropic import MESSAGES
from vendor_bedrock import CONVERSE
from vendor_cases import Vendor
from vendor_google import GENERATE
from vendor_openai import CHAT
from vendor_responses import RESPONSES

from trioeval.providers import ToolCall

Body: TypeAlias = dict[str, Any]


@attrs.frozen(kw_only=True)
class Said:
    """The content of a reply."""

    text: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
    """Each with an id, and with arguments that are an object."""
    refusal: str = ""
    """The refusal's text, instead of everything else."""
    is_cut: bool = False
    """True if the limit of tokens ended it."""

    @property
    def stop(self) -> str:
        """The finish reason of chat completions."""
        if self.is_cut:
            return "length"
        return "tool_calls" if self.calls else "stop"


def chat(said: Said) -> Body:
    calls = [call.to_chat() for call in said.calls]
    message = {
        "role": "assistant",
        "content": said.text or None,
        "refusal": said.refusal or None,
        **({"reasoning": said.reasoning} if said.reasoning else {}),
        **({"tool_calls": calls} if calls else {}),
    }
    choice = {"index": 0, "message": message, "finish_reason": said.stop}
    return {**CHAT.good, "choices": [choice]}


def responses(said: Said) -> Body:
    items: list[Body] = []
    if said.reasoning:
        thought = {"type": "summary_text", "text": said.reasoning}
        items.append({"type": "reasoning", "id": "rs_1", "summary": [thought]})
    if said.text or said.refusal:
        part = {"type": "output_text", "text": said.text, "annotations": []}
        if said.refusal:
            part = {"type": "refusal", "refusal": said.refusal}
        items.append({"type": "message", "role": "assistant", "content": [part]})
    items += (
        {
            "type": "function_call",
            "id": f"fc_{call.id}",
            "call_id": call.id,
            "name": call.name,
            "arguments": json.dumps(call.arguments),
        }
        for call in said.calls
    )
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    return {**RESPONSES.good, "output": items, **(cut if said.is_cut else {})}


def messages(said: Said) -> Body:
    blocks: list[Body] = []
    if said.reasoning:
        blocks.append({"type": "thinking", "thinking": said.reasoning, "signature": "s"})
    if said.text:
        blocks.append({"type": "text", "text": said.text})
    blocks += (
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in said.calls
    )
    stop = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[said.stop]
    refused = {"stop_reason": "refusal", "stop_details": {"explanation": said.refusal}}
    return {
        **MESSAGES.good,
        "content": blocks,
        "stop_reason": stop,
        **(refused if said.refusal else {}),
    }


def gemini(said: Said) -> Body:
    if said.refusal:
        feedback = {"blockReason": "SAFETY", "blockReasonMessage": said.refusal}
        return {"promptFeedback": feedback, "usageMetadata": GENERATE.good["usageMetadata"]}
    parts: list[Body] = []
    if said.reasoning:
        parts.append({"text": said.reasoning, "thought": True})
    if said.text:
        parts.append({"text": said.text})
    parts += (
        {"functionCall": {"id": call.id, "name": call.name, "args": call.arguments}}
        for call in said.calls
    )
    candidate = {
        "content": {"role": "model", "parts": parts},
        "finishReason": "MAX_TOKENS" if said.is_cut else "STOP",
    }
    return {**GENERATE.good, "candidates": [candidate]}


def converse(said: Said) -> Body:
    blocks: list[Body] = []
    if said.reasoning:
        blocks.append({"reasoningContent": {"reasoningText": {"text": said.reasoning}}})
    if said.text:
        blocks.append({"text": said.text})
    blocks += (
        {"toolUse": {"toolUseId": call.id, "name": call.name, "input": call.arguments}}
        for call in said.calls
    )
    stop = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}[said.stop]
    guardrail = {"trace": {"guardrail": {"actionReason": said.refusal}}}
    return {
        **CONVERSE.good,
        "output": {"message": {"role": "assistant", "content": blocks}},
        "stopReason": "guardrail_intervened" if said.refusal else stop,
        **(guardrail if said.refusal else {}),
    }


WIRES: tuple[tuple[Vendor, Callable[[Said], Mapping[str, Any]]], ...] = (
    (CHAT, chat),
    (RESPONSES, responses),
    (MESSAGES, messages),
    (GENERATE, gemini),
    (CONVERSE, converse),
)
"""Each vendor with the function that makes a body of a reply."""
