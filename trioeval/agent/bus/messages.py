"""The messages of a bus as frozen data, and their JSON."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

import attrs
import orjson

from trioeval.errors import UsageError

T = TypeVar("T")
MessageType: TypeAlias = str
"""One of `TYPES`, or another word in capitals."""

TYPES = (
    "INFO",
    "WARNING",
    "ERROR",
    "PROGRESS",
    "FACT",
    "DECISION",
    "QUESTION",
    "ISSUE",
    "RUN_START",
    "RUN_STOP",
    "RUN_CRASH",
)
DURABLE = ("FACT", "DECISION", "RUN_START", "RUN_STOP", "RUN_CRASH")
"""Types whose messages are flushed to the disk by default."""
_TYPE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


@attrs.frozen(kw_only=True)
class MessageParent:
    """A message that another one replies to, or is derived from."""

    msg_id: str
    kind: str | None = None
    meta: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class MessageLink:
    """A link of a message."""

    url: str
    label: str | None = None
    kind: str | None = None


@attrs.frozen(kw_only=True)
class MessageDraft:
    """A message that is not posted yet.

    Its texts may contain anything, also lone surrogates; a pair of surrogates is read back as the character
    that it encodes.

    Raises:
        UsageError: Its type is not a word in capitals, its project is blank, or a text is of another type.
    """

    type: MessageType
    project_id: str
    """The id of the run; not blank."""
    task_id: str | None = None
    """The name of the case."""
    run_id: str | None = None
    """The id of the attempt."""
    body: str = ""
    """Any text, with any number of lines."""
    issue_id: str | None = None
    """None in an `ISSUE` means the id of the message itself."""
    parents: tuple[MessageParent, ...] = ()
    links: tuple[MessageLink, ...] = ()
    meta: Mapping[str, str] = attrs.field(factory=dict)

    def __attrs_post_init__(self) -> None:
        if problems := [*_mistakes(self)]:
            raise UsageError("; ".join(problems))


@attrs.frozen(kw_only=True)
class Message:
    """A message that was posted."""

    seq: int
    """From 1, one more than that of the message before it, over all writers and files of the bus."""
    msg_id: str
    """Unique; contains `seq`."""
    utc: str
    """The time of writing, as ISO 8601 with microseconds and a `Z`."""
    draft: MessageDraft
    """The posted content; an `ISSUE` has its `issue_id`."""

    def json(self) -> dict[str, Any]:
        """Return the JSON as written to the file, and printed by `bus read --json`: without empty fields."""
        head = {"msg_id": self.msg_id, "seq": self.seq, "ts": self.utc}
        return head | _json(self.draft)


def payload_of(draft: MessageDraft) -> bytes:
    """Return the part of a payload that is known before the message is written: from its type to its end."""
    return _dumped(_json(draft))[1:]


def payload_head(seq: int, msg_id: str, utc: str) -> bytes:
    """Return the start of a payload, which `payload_of` continues."""
    return b'{"msg_id":"%b","seq":%d,"ts":"%b",' % (msg_id.encode(), seq, utc.encode())


def message_of(
    draft: MessageDraft, rest: bytes, *, seq: int, msg_id: str, utc: str
) -> tuple[Message, bytes]:
    """Return the message of a draft, and its payload."""
    if draft.type == "ISSUE" and draft.issue_id is None:
        draft = attrs.evolve(draft, issue_id=msg_id)
        rest = payload_of(draft)
    message = Message(seq=seq, msg_id=msg_id, utc=utc, draft=draft)
    return message, payload_head(seq, msg_id, utc) + rest


def message_id(seq: int, mark: int) -> str:
    """Return the id of a message: ids sort as numbers do.

    Args:
        seq: Its number.
        mark: A random number below 2**48, which distinguishes it from messages of other buses.

    Example:
        >>> message_id(42, 255)
        '0000000042-0000000000ff'
    """
    return f"{seq:010}-{mark:012x}"


def seq_of(msg_id: str) -> int | None:
    """Return the number in the id of a message; None if it is not a valid id."""
    match = re.fullmatch(r"([0-9]{10,18})-[0-9a-f]{12}", msg_id)
    return int(match[1]) if match else None


def parse_message(payload: bytes) -> Message:
    """Parse the message of a payload. Unknown members are ignored.

    Raises:
        ValueError: It is not a message.
    """
    try:
        value = _loaded(payload)
        return Message(
            seq=_number(value["seq"]),
            msg_id=_text(value["msg_id"]),
            utc=_text(value["ts"]),
            draft=_draft(value),
        )
    except (KeyError, TypeError, AttributeError, RecursionError, UsageError) as error:
        raise ValueError(f"not a valid message: {error}") from error


def _json(record: MessageDraft | MessageParent | MessageLink) -> dict[str, Any]:
    """Return the fields of an object in order, without empty ones."""
    value: dict[str, Any] = {}
    for name in _FIELDS[type(record)]:
        one = getattr(record, name)
        if isinstance(one, str):
            value[name] = one
        elif one:
            value[name] = [_json(item) for item in one] if isinstance(one, tuple) else dict(one)
    return value


def _draft(value: Mapping[str, Any]) -> MessageDraft:
    """Return a draft, which validates itself."""
    given = _known(MessageDraft, value)
    for name, kind in (("parents", MessageParent), ("links", MessageLink)):
        given[name] = tuple(kind(**_known(kind, one)) for one in value.get(name, ()))
    return MessageDraft(**given)


def _known(
    kind: type[MessageDraft | MessageParent | MessageLink], value: Mapping[str, Any]
) -> dict[str, Any]:
    return {name: value[name] for name in _FIELDS[kind] if name in value}


_FIELDS = {
    kind: tuple(attrs.fields_dict(kind)) for kind in (MessageDraft, MessageParent, MessageLink)
}


def _mistakes(draft: Any) -> Iterator[str]:
    """Yield the mistakes of a draft, whose fields may have any type."""
    if not (isinstance(draft.type, str) and _TYPE.fullmatch(draft.type)):
        yield f"type: {draft.type!r} is not a valid message type: a word in capitals, as {', '.join(TYPES)}"
    yield from _text_mistakes("", project_id=draft.project_id, body=draft.body)
    if isinstance(draft.project_id, str) and not draft.project_id.strip():
        yield "project_id: blank; it is the id of the run"
    yield from _optional_text_mistakes(
        "", task_id=draft.task_id, run_id=draft.run_id, issue_id=draft.issue_id
    )
    yield from _meta_mistakes("", draft.meta)
    yield from _items_mistakes("parents", draft.parents, MessageParent, _parent_mistakes)
    yield from _items_mistakes("links", draft.links, MessageLink, _link_mistakes)


def _items_mistakes(
    name: str, items: object, kind: type[T], mistakes: Callable[[str, T], Iterator[str]]
) -> Iterator[str]:
    if not isinstance(items, tuple):
        yield f"{name}: {items!r} is not a tuple"
        return
    for number, item in enumerate(items):
        where = f"{name}[{number}]"
        if isinstance(item, kind):
            yield from mistakes(f"{where}.", item)
        else:
            yield f"{where}: {item!r} is not a {kind.__name__}"


def _parent_mistakes(where: str, parent: MessageParent) -> Iterator[str]:
    yield from _text_mistakes(where, msg_id=parent.msg_id)
    yield from _optional_text_mistakes(where, kind=parent.kind)
    yield from _meta_mistakes(where, parent.meta)


def _link_mistakes(where: str, link: MessageLink) -> Iterator[str]:
    yield from _text_mistakes(where, url=link.url)
    yield from _optional_text_mistakes(where, label=link.label, kind=link.kind)


def _text_mistakes(where: str, **values: object) -> Iterator[str]:
    for name, value in values.items():
        if not isinstance(value, str):
            yield f"{where}{name}: {value!r} is not text"


def _optional_text_mistakes(where: str, **values: object) -> Iterator[str]:
    for name, value in values.items():
        if not (value is None or isinstance(value, str)):
            yield f"{where}{name}: {value!r} is neither text nor None"


def _meta_mistakes(where: str, meta: object) -> Iterator[str]:
    if not isinstance(meta, Mapping):
        yield f"{where}meta: {meta!r} is not a mapping of texts"
        return
    seen: dict[str, str] = {}
    for key, value in meta.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            yield f"{where}meta: {key!r}: {value!r}: keys and values must be text"
        elif (other := seen.setdefault(_written(key), key)) is not key:
            yield f"{where}meta: {other!a} and {key!a} are equal when they are written"


def _written(text: str) -> str:
    """Return a text with pairs of surrogates replaced by the characters that they encode."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a message number")
    return value


def _dumped(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # lone surrogates, which UTF-8 cannot encode
        return json.dumps(value, separators=(",", ":")).encode()


def _loaded(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except ValueError:  # lone surrogates
        return json.loads(payload)
