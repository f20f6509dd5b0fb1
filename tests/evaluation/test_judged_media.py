"""Judges get the media of the reply that they judge, in the form of their service."""

import json
from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from loopback import Answer, Seen, as_json, serve

from trioeval import Media, Reply, Request, Row, collect, own_provider, parse_suite
from trioeval.providers.fake.media import picture
from trioeval.run import prepare

pytestmark = pytest.mark.network

CAT = Media.of(picture("a cat"))
SOUND = Media.of(b"RIFF\x04\0\0\0WAVE")
FILM = Media.of(b"\0\0\0\x18ftypisom")
VERDICT = '{"pass": true, "score": 1, "reason": "it is a cat"}'
CHAT = {"choices": [{"message": {"role": "assistant", "content": VERDICT}}]}
CLAUDE = {"type": "message", "content": [{"type": "text", "text": VERDICT}], "usage": {}}
GEMINI = {"candidates": [{"content": {"parts": [{"text": VERDICT}]}, "finishReason": "STOP"}]}
RESPONSE = {
    "status": "completed",
    "output": [{"type": "message", "content": [{"type": "output_text", "text": VERDICT}]}],
}


def encoded(media: Media) -> str:
    """Base64."""
    return b64encode(media.read()).decode()


def judged(
    reply: Reply, judge: str, body: Mapping[str, Any], check: Mapping[str, Any]
) -> tuple[Row, list[Any]]:
    """Return the row of a reply, and the bodies of the requests to its judge."""

    async def draw(_request: Request) -> Reply:
        return reply

    def respond(_seen: Seen) -> Answer:
        return as_json(body)

    async def main() -> tuple[Row, list[Any]]:
        with trio.fail_after(30):
            async with serve(respond) as server:
                base = (
                    server.url if judge.startswith(("google", "anthropic")) else server.url + "/v1"
                )
                provider = {"id": judge, "config": {"apiBaseUrl": base, "apiKey": "k"}}
                suite = parse_suite(
                    {
                        "providers": ["draw"],
                        "prompts": ["a cat"],
                        "tests": [{"assert": [{**check, "provider": provider}]}],
                    }
                )
                rows = await collect(prepare(suite, providers={"draw": draw}))
                return rows[0], [json.loads(one.body) for one in server.seen]

    return trio.run(main)


RUBRIC = {"type": "llm-rubric", "value": "shows a cat"}
DRAWN = Reply(output=CAT.uri, media=(CAT,))


@pytest.mark.parametrize(
    ("judge", "body", "read"),
    [
        (
            "openai:chat:gpt-4.1",
            CHAT,
            lambda sent: sent["messages"][-1]["content"][-1]["image_url"]["url"],
        ),
        (
            "openai:responses:gpt-4.1",
            RESPONSE,
            lambda sent: sent["input"][-1]["content"][-1]["image_url"],
        ),
        (
            "anthropic:messages:claude-sonnet-4-5",
            CLAUDE,
            lambda sent: (
                "data:image/png;base64," + sent["messages"][-1]["content"][-1]["source"]["data"]
            ),
        ),
        (
            "google:gemini-2.5-flash",
            GEMINI,
            lambda sent: (
                "data:image/png;base64," + sent["contents"][-1]["parts"][-1]["inlineData"]["data"]
            ),
        ),
    ],
)
def test_an_image_is_a_part_of_the_message(judge: str, body: Mapping[str, Any], read: Any) -> None:
    """The text of the prompt has only its URI."""
    row, (sent,) = judged(DRAWN, judge, body, RUBRIC)
    assert row.status.is_success, row.error
    assert read(sent) == f"data:image/png;base64,{encoded(CAT)}"
    assert json.dumps(sent).count(encoded(CAT)) == 1
    assert CAT.uri in json.dumps(sent)


@pytest.mark.parametrize(("tokens", "calls"), [(15_000, 0), (40_000, 1)])
def test_the_images_of_a_judges_request_are_reserved(tokens: int, calls: int) -> None:
    """BUDGET: ten images of 1600 tokens count, not only the short texts that name them."""
    asked: list[Request] = []
    pictures = tuple(Media.of(picture(f"cat {number}")) for number in range(10))

    async def draw(_request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(output=pictures[0].uri, media=pictures)

    async def judge(request: Request) -> str:
        asked.append(request)
        await trio.lowlevel.checkpoint()
        return VERDICT

    suite = parse_suite(
        {
            "providers": ["draw"],
            "prompts": ["a cat"],
            "tests": [{"assert": [{**RUBRIC, "provider": "judge"}]}],
            "evaluateOptions": {"budget": {"tokens": tokens}},
        }
    )
    providers = {
        "draw": own_provider(draw, max_tokens=100),
        "judge": own_provider(judge, max_tokens=100),
    }
    [row] = trio.run(collect, prepare(suite, providers=providers))
    assert (len(asked), row.status.is_success) == (calls, calls == 1)


@pytest.mark.parametrize(
    ("judge", "body"), [("openai:chat:gpt-audio", CHAT), ("google:gemini-2.5-flash", GEMINI)]
)
def test_audio_is_sent_to_a_judge_that_accepts_it(judge: str, body: Mapping[str, Any]) -> None:
    """Its transcript stays in the prompt."""
    _, (sent,) = judged(Reply(output="Miaow.", media=(SOUND,)), judge, body, RUBRIC)
    written = json.dumps(sent)
    assert written.count(encoded(SOUND)) == 1
    assert "data:audio" not in written
    assert "Miaow." in written


def test_a_judge_without_audio_judges_the_transcript_or_fails() -> None:
    """Without a transcript there is nothing that it could judge, and it is not called."""
    claude = "anthropic:messages:claude-sonnet-4-5"
    row, (sent,) = judged(Reply(output="Miaow.", media=(SOUND,)), claude, CLAUDE, RUBRIC)
    assert row.status.is_success
    assert encoded(SOUND) not in json.dumps(sent)
    row, sent = judged(Reply(output=SOUND.uri, media=(SOUND,)), claude, CLAUDE, RUBRIC)
    assert not sent
    assert "does not accept audio; use one that does" in str(row.error)


def test_video_is_judged_by_gemini_alone() -> None:
    """Others are an error of the row."""
    film = Reply(output=FILM.uri, media=(FILM,))
    _, (sent,) = judged(film, "google:gemini-2.5-flash", GEMINI, RUBRIC)
    inline = sent["contents"][-1]["parts"][-1]["inlineData"]
    assert inline == {"mimeType": "video/mp4", "data": encoded(FILM)}
    row, sent = judged(film, "openai:chat:gpt-4.1", CHAT, RUBRIC)
    assert not sent
    assert "does not accept video" in str(row.error)


def test_other_judges_get_the_media_that_their_prompt_names() -> None:
    """A transform of the assertion decides what is judged."""
    closed = {"type": "model-graded-closedqa", "value": "shows a cat"}
    answer = {"choices": [{"message": {"role": "assistant", "content": "Y"}}]}
    _, (sent,) = judged(DRAWN, "openai:chat:gpt-4.1", answer, closed)
    assert encoded(CAT) in json.dumps(sent)
    words = Reply(output="Here it is.", media=(CAT,))
    _, (sent,) = judged(words, "openai:chat:gpt-4.1", answer, closed)
    assert encoded(CAT) not in json.dumps(sent)
    _, (sent,) = judged(words, "openai:chat:gpt-4.1", CHAT, RUBRIC)
    assert encoded(CAT) in json.dumps(sent)
    cut = {**RUBRIC, "transform": "output.length"}
    _, (sent,) = judged(words, "openai:chat:gpt-4.1", CHAT, cut)
    assert encoded(CAT) not in json.dumps(sent)


def test_a_prompt_of_several_messages_keeps_them() -> None:
    """The media follow the text of the last message of the user."""
    messages = [
        {"role": "system", "content": "Be strict."},
        {"role": "user", "content": "Judge {{ output }} by {{ rubric }}"},
        {"role": "assistant", "content": "{"},
    ]
    check = {**RUBRIC, "rubricPrompt": json.dumps(messages)}
    _, (sent,) = judged(DRAWN, "openai:chat:gpt-4.1", CHAT, check)
    system, user, assistant = sent["messages"]
    assert (system["content"], assistant["content"]) == ("Be strict.", "{")
    assert [one["type"] for one in user["content"]] == ["text", "text", "image_url"]
