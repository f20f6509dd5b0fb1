"""The pages about responses, embeddings, moderation and completions agree with the code."""

import json
import re

import pytest
from snippets import DOCS, table

from trioeval.providers import HttpReply
from trioeval.providers.config import Key
from trioeval.providers.http.adapter import AdapterSettings
from trioeval.providers.vendors import openai_responses
from trioeval.providers.vendors.openai_other import (
    CompletionAdapter,
    EmbeddingAdapter,
    ModerationAdapter,
)
from trioeval.providers.vendors.responses_messages import PARAMETERS
from trioeval.providers.vendors.services import SERVICES

RESPONSES = (DOCS / "reference" / "providers" / "openai-responses.md").read_text()
EMBEDDINGS = (DOCS / "reference" / "providers" / "openai-embeddings.md").read_text()


@pytest.mark.parametrize(
    ("page", "first", "known"),
    [
        (RESPONSES, "key of the request", PARAMETERS),
        (RESPONSES, "key of the entry", openai_responses.ResponsesAdapter.entry_keys),
        (EMBEDDINGS, "key of embeddings", EmbeddingAdapter.call_keys),
        (EMBEDDINGS, "key of moderation", ModerationAdapter.call_keys),
        (EMBEDDINGS, "key of completions", CompletionAdapter.call_keys),
    ],
)
def test_every_key_is_in_the_reference(page: str, first: str, known: tuple[Key, ...]) -> None:
    """Each has its valid values, in the order of the code."""
    assert [row[:2] for row in table(page, first)] == [
        [f"`{key.name}`", key.right] for key in known
    ]


def test_items_of_a_response_become_the_documented_output() -> None:
    """Items of the table become text with the documented beginning; other items become nothing."""
    config = {"apiKey": "k", "showThinking": True}
    settings = openai_responses.ResponsesAdapter.read_entry(SERVICES["openai"], "m", config, {})
    assert isinstance(settings, AdapterSettings)
    *rows, other = table(RESPONSES, "item")
    assert other == ["any other", "nothing"]
    parts = [{"type": "output_text", "text": "Hi"}]
    for kinds, beginning in rows:
        start = re.match(r"`(.*?)(?: <|: …)", beginning)
        for kind in re.findall(r"`(\w+)`", kinds):
            item = {"type": kind, "content": parts, "name": "add", "output": "4", "code": "1"}
            body = json.dumps({"status": "completed", "output": [item]}).encode()
            output = settings.adapter.parse(HttpReply(200, {}, body)).output
            assert output.startswith(start[1] if start else ("Hi", "{")), kind
