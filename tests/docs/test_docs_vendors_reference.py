"""The pages about Anthropic and Gemini agree with the code."""

import re

import pytest
from snippets import DOCS, table

from trioeval.providers.config import Key
from trioeval.providers.http.sockets import KIND_BY_CODE
from trioeval.providers.sdk.sagemaker import SageMakerAdapter
from trioeval.providers.vendors import (
    anthropic,
    gemini,
    gemini_media,
    gemini_video,
    huggingface,
    openai_media,
    openai_realtime,
    replicate,
)
from trioeval.providers.vendors import anthropic_request as anthropic_body
from trioeval.providers.vendors import gemini_request as gemini_body

ANTHROPIC = (DOCS / "reference" / "providers" / "anthropic.md").read_text()
MEDIA = (DOCS / "reference" / "providers" / "openai-media.md").read_text()
REALTIME = (DOCS / "reference" / "providers" / "openai-realtime.md").read_text()
GEMINI = (DOCS / "reference" / "providers" / "gemini.md").read_text()
HUGGING_FACE = (DOCS / "reference" / "providers" / "huggingface.md").read_text()
SAGEMAKER = (DOCS / "reference" / "providers" / "sagemaker.md").read_text()
REPLICATE = (DOCS / "reference" / "providers" / "replicate.md").read_text()


@pytest.mark.parametrize(
    ("page", "first", "known"),
    [
        (ANTHROPIC, "key of the request", anthropic_body.CALL_KEYS),
        (ANTHROPIC, "key of the entry", anthropic.MessagesAdapter.entry_keys),
        (GEMINI, "key of the request", gemini_body.CALL_KEYS),
        (GEMINI, "key of the entry", gemini.GenerateAdapter.entry_keys),
        (GEMINI, "key of embeddings", gemini.EmbedAdapter.call_keys),
        (HUGGING_FACE, "key of generation", huggingface.GENERATION),
        (SAGEMAKER, "key", (*SageMakerAdapter.call_keys, *SageMakerAdapter.entry_keys)),
        (REPLICATE, "key of the request", replicate.ReplicateAdapter.call_keys),
        (GEMINI, "key of Imagen", gemini_media.ImagenAdapter.call_keys),
        (
            GEMINI,
            "key of Veo",
            (*gemini_video.VeoAdapter.call_keys, *gemini_video.VeoAdapter.entry_keys),
        ),
        (REALTIME, "key of the session", openai_realtime.RealtimeAdapter.call_keys),
        (REALTIME, "key of the entry", openai_realtime.RealtimeAdapter.entry_keys),
        (MEDIA, "key of images", openai_media.ImageAdapter.call_keys),
        (MEDIA, "key of speech", openai_media.SpeechAdapter.call_keys),
        (
            MEDIA,
            "key of video",
            (*openai_media.VideoAdapter.call_keys, *openai_media.VideoAdapter.entry_keys),
        ),
    ],
)
def test_every_key_of_a_vendor_is_in_the_reference(
    page: str, first: str, known: tuple[Key, ...]
) -> None:
    """Each has its valid values, in the order of the code."""
    assert [row[:2] for row in table(page, first)] == [
        [f"`{key.name}`", key.right] for key in known
    ]


def test_every_variable_of_anthropic_is_in_the_reference() -> None:
    """Each has the key whose default it sets."""
    rows = [[cell.strip("`") for cell in row] for row in table(ANTHROPIC, "variable")]
    names = [key.name for key in anthropic_body.PARAMETERS[:2]]
    assert rows == [[f"ANTHROPIC_{name.upper()}", name] for name in names]


@pytest.mark.parametrize(
    ("page", "first", "known"),
    [
        (ANTHROPIC, "stop reason", anthropic.FINISH_REASONS),
        (GEMINI, "finish reason of the service", gemini.FINISH_REASONS),
    ],
)
def test_every_finish_reason_is_in_the_reference(
    page: str, first: str, known: dict[str, str]
) -> None:
    """Each has the common word for it."""
    assert table(page, first) == [[f"`{word}`", f"`{reason}`"] for word, reason in known.items()]


def test_every_code_of_a_closed_websocket_is_in_the_reference() -> None:
    """With its kind; the others are lost connections."""
    documented = {
        int(code): kind
        for kind, codes in re.findall(r"`(\w+)` \(([\d, ]+)\)", REALTIME)
        for code in codes.split(", ")
    }
    assert documented == KIND_BY_CODE
