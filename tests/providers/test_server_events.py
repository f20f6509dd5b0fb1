import time
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.providers.http.streams import EventReader, ServerEvent, read_events

ONE_AND_TWO = (ServerEvent("1"), ServerEvent("2"))


def fed(parts: Iterable[bytes]) -> list[ServerEvent]:
    """Return the events of a stream that arrives in these parts."""
    reader = EventReader()
    found = [event for part in parts for event in reader.feed(part)]
    return [*found, *reader.finish()]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        pytest.param(b"data: 1\n\ndata: 2\n\n", ONE_AND_TWO, id="lf"),
        pytest.param(b"data: 1\r\n\r\ndata: 2\r\n\r\n", ONE_AND_TWO, id="crlf"),
        pytest.param(b"data: 1\r\rdata: 2\r\r", ONE_AND_TWO, id="cr"),
        pytest.param(b"data:1\r\n\rdata:2\r\n\n", ONE_AND_TWO, id="mixed"),
        pytest.param(b"\xef\xbb\xbfdata: 1\n\ndata: 2\n\n", ONE_AND_TWO, id="byte-order mark"),
        pytest.param(b"data: 1\n\ndata: 2\n", ONE_AND_TWO, id="no empty line at the end"),
        pytest.param(b"data: 1\n\ndata: 2", ONE_AND_TWO, id="no line end at the end"),
        pytest.param(b"data: 1\r\rdata: 2\r", ONE_AND_TWO, id="a cr at the end"),
        pytest.param(b"data: 1\r\n\r\ndata: 2\r\n", ONE_AND_TWO, id="a crlf at the end"),
        pytest.param(b"data: 1\n\n: ping\n\nevent: x\n\ndata: 2\n\n", ONE_AND_TWO, id="no data"),
        pytest.param(b"data: 1\n\nevent: x", ONE_AND_TWO[:1], id="no data at the end"),
        pytest.param(b"data: a\ndata:\ndata:  b\n\n", (ServerEvent("a\n\n b"),), id="lines"),
        pytest.param(b"data\n\n", (ServerEvent(""),), id="no colon"),
        pytest.param(b"event: e\nid: 7\nretry: 3\ndata: 1", (ServerEvent("1", "e"),), id="name"),
        pytest.param(b"event: e\n\ndata: 1\n\n", (ServerEvent("1"),), id="a name of nothing"),
        pytest.param(b"data: \xef\xbb\xbf1\xff\n\n", (ServerEvent("\ufeff1\ufffd"),), id="bytes"),
        pytest.param(
            "data: a\u2028b\x0bc\x85d\n\n".encode(),
            (ServerEvent("a\u2028b\x0bc\x85d"),),
            id="no line ends",
        ),
        pytest.param(b"", (), id="nothing"),
    ],
)
def test_a_stream_is_split_into_events(stream: bytes, events: tuple[ServerEvent, ...]) -> None:
    """Lines end as in the standard; in addition, the end of the stream ends an event."""
    assert read_events(stream) == events


LINES = st.sampled_from(
    [b"", b"data: 1", b"data: \xc3\xa9", b"data", b"event: e", b": note", b"\xef\xbb\xbf", b"id"]
)
ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])


@pytest.mark.slow
@given(st.lists(st.tuples(LINES, ENDS)), LINES, st.data())
def test_any_split_of_a_stream_gives_the_same_events(
    lines: list[tuple[bytes, bytes]], last: bytes, data: st.DataObject
) -> None:
    """It may be cut anywhere, also inside a line end, a character or the byte-order mark."""
    stream = b"".join(line + end for line, end in lines) + last
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parts = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert fed(parts) == fed([stream]) == list(read_events(stream))
    assert fed(bytes([byte]) for byte in stream) == list(read_events(stream))


def test_an_event_is_yielded_as_soon_as_its_line_has_ended() -> None:
    """A single carriage return may be half of a line end, but ends the line."""
    reader = EventReader()
    assert not list(reader.feed(b"data: 1\r"))
    assert list(reader.feed(b"\n\r")) == [ServerEvent("1")]
    assert not list(reader.feed(b"\n"))
    assert not list(reader.finish())


@pytest.mark.slow
def test_a_long_line_is_read_in_linear_time() -> None:
    """Received parts are not searched again, however small they are."""

    def seconds(length: int) -> float:
        started = time.process_time()
        (event,) = fed([b"data: ", *[b"x"] * length])
        assert len(event.data) == length
        return time.process_time() - started

    least = min(seconds(20_000) for _ in range(3))
    # Ten times as much takes a hundred times as long if the line is copied for each part.
    assert min(seconds(200_000) for _ in range(2)) < 40 * least
