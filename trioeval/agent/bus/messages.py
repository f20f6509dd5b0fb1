"""What is said on a bus: messages as frozen data, and their JSON."""

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
"""Types that are written through to the disk where nothing else is said."""
_TYPE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")


@attrs.frozen(kw_only=True)
class Parent:
    """A message that another one answers, or comes from."""

    msg_id: str
    kind: str | None = None
    meta: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Link:
    """Something that a message points at."""

    url: str
    label: str | None = None
    kind: str | None = None


@attrs.frozen(kw_only=True)
class Draft:
    """A message that nobody has posted yet.

    Its texts may hold anything, also halves of surrogate pairs; two halves that belong together come back as
    the character that they stand for.

    Raises:
        UsageError: Its type is no word in capitals, its project is blank, or something is no text.
    """

    type: MessageType
    project_id: str
    """The id of the run; never blank."""
    task_id: str | None = None
    """The name of the case."""
    run_id: str | None = None
    """Of the attempt."""
    body: str = ""
    """Any text, on any number of lines."""
    issue_id: str | None = None
    """None of an `ISSUE` is its own message."""
    parents: tuple[Parent, ...] = ()
    links: tuple[Link, ...] = ()
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
    """Unique; holds `seq`."""
    utc: str
    """When it was written, as ISO 8601 with microseconds and a `Z`."""
    draft: Draft
    """What was posted; an `ISSUE` has its `issue_id`."""

    def json(self) -> dict[str, Any]:
        """As it stands in the file, and as `bus read --json` prints it: without what it does not have."""
        head = {"msg_id": self.msg_id, "seq": self.seq, "ts": self.utc}
        return head | _json(self.draft)


def payload_of(draft: Draft) -> bytes:
    """What is known of a message before it is written: the end of its payload, from its type on."""
    return _dumped(_json(draft))[1:]


def payload_head(seq: int, msg_id: str, utc: str) -> bytes:
    """The beginning of a payload, up to where `payload_of` goes on."""
    return b'{"msg_id":"%b","seq":%d,"ts":"%b",' % (msg_id.encode(), seq, utc.encode())


def posted(draft: Draft, rest: bytes, *, seq: int, msg_id: str, utc: str) -> tuple[Message, bytes]:
    """A draft as a message, and its payload.

    Args:
        draft: What is said.
        rest: Its `payload_of`.
        seq: The number of the message.
        msg_id: Its id.
        utc: When it is written.
    """
    if draft.type == "ISSUE" and draft.issue_id is None:
        draft = attrs.evolve(draft, issue_id=msg_id)
        rest = payload_of(draft)
    message = Message(seq=seq, msg_id=msg_id, utc=utc, draft=draft)
    return message, payload_head(seq, msg_id, utc) + rest


def message_id(seq: int, mark: int) -> str:
    """The id of a message: ids sort as numbers do.

    Args:
        seq: Its number.
        mark: A random number below 2**48, that tells it from messages of other buses.

    Example:
        >>> message_id(42, 255)
        '0000000042-0000000000ff'
    """
    return f"{seq:010}-{mark:012x}"


def seq_of(msg_id: str) -> int | None:
    """The number in the id of a message; None if it is no id of one."""
    match = re.fullmatch(r"([0-9]{10,18})-[0-9a-f]{12}", msg_id)
    return int(match[1]) if match else None


def parse_message(payload: bytes) -> Message:
    """The message of a payload. What is not known in it is left out.

    Raises:
        ValueError: It is none.
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
        raise ValueError(f"this is no message: {error}") from error


def _json(said: Draft | Parent | Link) -> dict[str, Any]:
    """The fields of something in their order, without those that it does not have."""
    value: dict[str, Any] = {}
    for name in _FIELDS[type(said)]:
        one = getattr(said, name)
        if isinstance(one, str):
            value[name] = one
        elif one:
            value[name] = [_json(item) for item in one] if isinstance(one, tuple) else dict(one)
    return value


def _draft(value: Mapping[str, Any]) -> Draft:
    """A draft, which sees itself whether it is right."""
    given = _known(Draft, value)
    for name, kind in (("parents", Parent), ("links", Link)):
        given[name] = tuple(kind(**_known(kind, one)) for one in value.get(name, ()))
    return Draft(**given)


def _known(kind: type[Draft | Parent | Link], value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[name] for name in _FIELDS[kind] if name in value}


_FIELDS = {kind: tuple(attrs.fields_dict(kind)) for kind in (Draft, Parent, Link)}


def _mistakes(draft: Any) -> Iterator[str]:
    """What is wrong with a draft, whatever its fields hold."""
    if not (isinstance(draft.type, str) and _TYPE.fullmatch(draft.type)):
        yield f"type: {draft.type!r} is no type of a message: a word in capitals, as {', '.join(TYPES)}"
    yield from _no_texts("", project_id=draft.project_id, body=draft.body)
    if isinstance(draft.project_id, str) and not draft.project_id.strip():
        yield "project_id: blank; it is the id of the run"
    yield from _neither("", task_id=draft.task_id, run_id=draft.run_id, issue_id=draft.issue_id)
    yield from _meta_mistakes("", draft.meta)
    yield from _items_mistakes("parents", draft.parents, Parent, _parent_mistakes)
    yield from _items_mistakes("links", draft.links, Link, _link_mistakes)


def _items_mistakes(
    name: str, items: object, kind: type[T], mistakes: Callable[[str, T], Iterator[str]]
) -> Iterator[str]:
    if not isinstance(items, tuple):
        yield f"{name}: {items!r} is no tuple"
        return
    for number, item in enumerate(items):
        where = f"{name}[{number}]"
        if isinstance(item, kind):
            yield from mistakes(f"{where}.", item)
        else:
            yield f"{where}: {item!r} is no {kind.__name__}"


def _parent_mistakes(where: str, parent: Parent) -> Iterator[str]:
    yield from _no_texts(where, msg_id=parent.msg_id)
    yield from _neither(where, kind=parent.kind)
    yield from _meta_mistakes(where, parent.meta)


def _link_mistakes(where: str, link: Link) -> Iterator[str]:
    yield from _no_texts(where, url=link.url)
    yield from _neither(where, label=link.label, kind=link.kind)


def _no_texts(where: str, **values: object) -> Iterator[str]:
    for name, value in values.items():
        if not isinstance(value, str):
            yield f"{where}{name}: {value!r} is no text"


def _neither(where: str, **values: object) -> Iterator[str]:
    for name, value in values.items():
        if not (value is None or isinstance(value, str)):
            yield f"{where}{name}: {value!r} is neither a text nor none"


def _meta_mistakes(where: str, meta: object) -> Iterator[str]:
    if not isinstance(meta, Mapping):
        yield f"{where}meta: {meta!r} is no mapping of texts"
        return
    seen: dict[str, str] = {}
    for key, value in meta.items():
        if not (isinstance(key, str) and isinstance(value, str)):
            yield f"{where}meta: {key!r}: {value!r}: keys and values are texts"
        elif (other := seen.setdefault(_written(key), key)) is not key:
            yield f"{where}meta: {other!a} and {key!a} are the same where they are written"


def _written(text: str) -> str:
    """A text in which two halves of a character that stand together are that character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is no number of a message")
    return value


def _dumped(value: object) -> bytes:
    try:
        return orjson.dumps(value)
    except TypeError:  # halves of surrogate pairs, which UTF-8 does not have
        return json.dumps(value, separators=(",", ":")).encode()


def _loaded(payload: bytes) -> Any:
    try:
        return orjson.loads(payload)
    except ValueError:  # likewise
        return json.loads(payload)
