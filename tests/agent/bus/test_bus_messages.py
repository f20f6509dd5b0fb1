"""Messages are read as they were written."""

from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.agent.bus.messages import (
    TYPES,
    Message,
    MessageDraft,
    MessageLink,
    MessageParent,
    message_id,
    message_of,
    parse_message,
    payload_of,
    seq_of,
)
from trioeval.agent.bus.settings import BusSettings
from trioeval.errors import UsageError

# Halves of surrogate pairs come from file names; a whole pair of them is one character.
any_text = st.text(max_size=30) | st.text(
    st.characters(codec=None) | st.sampled_from("\ud83d\n\r\u2028@"), max_size=10
).map(lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass"))
metas = st.dictionaries(any_text, any_text, max_size=3)
maybe = st.none() | any_text
drafts = st.builds(
    MessageDraft,
    type=st.sampled_from([*TYPES, "NOTE_2"]),
    project_id=any_text.filter(str.strip),
    task_id=maybe,
    run_id=maybe,
    body=any_text,
    issue_id=maybe,
    parents=st.lists(
        st.builds(MessageParent, msg_id=any_text, kind=maybe, meta=metas), max_size=2
    ).map(tuple),
    links=st.lists(st.builds(MessageLink, url=any_text, label=maybe, kind=maybe), max_size=2).map(
        tuple
    ),
    meta=metas,
)
UTC = "2026-01-02T03:04:05.000006Z"


def put(draft: MessageDraft, seq: int = 7) -> tuple[Message, bytes]:
    return message_of(draft, payload_of(draft), seq=seq, msg_id=message_id(seq, 3), utc=UTC)


@pytest.mark.slow
@given(drafts)
def test_ag_50_any_draft_is_read_back_equal(draft: MessageDraft) -> None:
    message, payload = put(draft)
    assert b"\n" not in payload
    assert parse_message(payload) == message
    if draft.type != "ISSUE" or draft.issue_id is not None:
        assert message.draft == draft


def test_an_issue_is_stored_as_json_of_its_own() -> None:
    message, payload = put(MessageDraft(type="ISSUE", project_id="p"))
    assert message.draft.issue_id == message.msg_id
    assert parse_message(payload).json()["issue_id"] == message.msg_id


def test_json_omits_absent_fields() -> None:
    full = MessageDraft(
        type="FACT",
        project_id="p",
        task_id="t",
        run_id="r",
        body="b",
        parents=(
            MessageParent(msg_id="m", meta={"a": "b"}),
            MessageParent(msg_id="n", kind="answer"),
        ),
        links=(MessageLink(url="u", label="l"),),
        meta={"k": "v"},
    )
    assert put(MessageDraft(type="INFO", project_id="p"))[0].json() == {
        "msg_id": "0000000007-000000000003",
        "seq": 7,
        "ts": UTC,
        "type": "INFO",
        "project_id": "p",
        "body": "",
    }
    assert put(full)[0].json() == {
        "msg_id": "0000000007-000000000003",
        "seq": 7,
        "ts": UTC,
        "type": "FACT",
        "project_id": "p",
        "task_id": "t",
        "run_id": "r",
        "body": "b",
        "parents": [{"msg_id": "m", "meta": {"a": "b"}}, {"msg_id": "n", "kind": "answer"}],
        "links": [{"url": "u", "label": "l"}],
        "meta": {"k": "v"},
    }


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"{}",
        b'"text"',
        b'{"seq":true,"msg_id":"a","ts":"","type":"INFO","project_id":"p"}',
        b'{"seq":1,"msg_id":"a","ts":"","type":"INFO","project_id":""}',
        b'{"seq":1,"msg_id":"a","ts":"","type":"INFO","project_id":"p","meta":{"a":1}}',
        b'{"seq":1,"msg_id":"a","ts":"","type":"INFO","project_id":"p","parents":[1]}',
        b'{"seq":1,"msg_id":"a","ts":"","type":"INFO","project_id":"p","body":5}',
    ],
)
def test_foreign_messages_that_are_invalid_are_rejected(payload: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a valid message|unexpected|Expecting"):
        parse_message(payload)


def test_foreign_messages_may_have_additional_members() -> None:
    payload = (
        b'{"seq": 1, "msg_id": "a", "ts": "", "type": "INFO", "project_id": "p", "colour": "red"}'
    )
    assert parse_message(payload).draft == MessageDraft(type="INFO", project_id="p")


def test_an_invalid_draft_is_rejected_with_all_mistakes() -> None:
    with pytest.raises(UsageError) as caught:
        MessageDraft(type="info", project_id=" ", meta={"a": 1})  # type: ignore[dict-item]
    assert str(caught.value) == (
        "type: 'info' is not a valid message type: a word in capitals, as INFO, WARNING, ERROR, PROGRESS, "
        "FACT, DECISION, QUESTION, ISSUE, RUN_START, RUN_STOP, RUN_CRASH; project_id: blank; it is "
        "the id of the run; meta: 'a': 1: keys and values must be text"
    )


def test_every_field_that_is_not_text_is_rejected() -> None:
    """They are rejected when the draft is created, not when it is read."""
    wrong: dict[str, Any] = {
        "task_id": 7,
        "run_id": b"r",
        "body": None,
        "issue_id": (),
        "parents": (MessageParent(msg_id=5, kind=6, meta={"a": None}), "m"),  # type: ignore[arg-type,dict-item]
        "links": (MessageLink(url=1, label=2, kind=3),),  # type: ignore[arg-type]
        "meta": None,
    }
    with pytest.raises(UsageError) as caught:
        MessageDraft(type=1, project_id=2, **wrong)  # type: ignore[arg-type]
    first, *rest = str(caught.value).split("; ")
    assert first.startswith("type: 1 is not a valid message type")
    assert rest == [
        "project_id: 2 is not text",
        "body: None is not text",
        "task_id: 7 is neither text nor None",
        "run_id: b'r' is neither text nor None",
        "issue_id: () is neither text nor None",
        "meta: None is not a mapping of texts",
        "parents[0].msg_id: 5 is not text",
        "parents[0].kind: 6 is neither text nor None",
        "parents[0].meta: 'a': None: keys and values must be text",
        "parents[1]: 'm' is not a MessageParent",
        "links[0].url: 1 is not text",
        "links[0].label: 2 is neither text nor None",
        "links[0].kind: 3 is neither text nor None",
    ]
    with pytest.raises(UsageError, match="parents: None is not a tuple; links: 5 is not a tuple"):
        MessageDraft(type="INFO", project_id="p", parents=None, links=5)  # type: ignore[arg-type]


def test_keys_that_become_equal_are_rejected() -> None:
    """Two surrogate halves become one character when they are written."""
    with pytest.raises(UsageError) as caught:
        MessageDraft(type="INFO", project_id="p", meta={"\ud83d\ude00": "1", "\U0001f600": "2"})
    assert str(caught.value) == (
        "meta: '\\ud83d\\ude00' and '\\U0001f600' are equal when they are written"
    )
    MessageDraft(type="INFO", project_id="p", meta={"\ud83d": "1", "\U0001f600": "2"})


@given(st.integers(1, 10**17), st.integers(0, 2**48 - 1))
def test_an_id_contains_its_number_and_sorts_by_it(seq: int, mark: int) -> None:
    assert seq_of(message_id(seq, mark)) == seq
    if seq < 10**10 - 1:
        assert message_id(seq, mark) < message_id(seq + 1, 0)


def test_an_invalid_id_has_no_number() -> None:
    assert [seq_of(text) for text in ("", "7", "0000000007", "x-0000000007-000000000003")] == [
        None
    ] * 4


def test_settings_out_of_range_are_all_reported_at_once() -> None:
    with pytest.raises(UsageError) as caught:
        BusSettings(
            rotate_bytes=0,
            keep_segments=0,
            lock_timeout=0,
            append_attempts=0,
            retry_delay=-1,
            fsync="now",  # type: ignore[arg-type]
        )
    assert str(caught.value) == (
        "the settings of a message bus: rotate_bytes: 0 must be > 0, or none; keep_segments: 0 must be 1 or "
        "more, or none; lock_timeout: 0 must be > 0; append_attempts: 0 must be 1 or more; retry_delay: -1 "
        "must be 0 or more; fsync: 'now' must be never, batch, always, or none"
    )
    assert attrs.evolve(BusSettings(), rotate_bytes=1).rotate_bytes == 1
