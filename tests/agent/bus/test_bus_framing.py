"""A record is read completely or not at all."""

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.agent.bus.segments import MAGIC, Record, frame, next_record, record_at, scan

payloads = st.binary(max_size=40).map(lambda data: data.replace(b"\n", b" "))
half = settings(max_examples=settings().max_examples // 2)
some = st.lists(payloads, min_size=1, max_size=5)


def framed(contents: list[bytes]) -> tuple[bytes, list[Record]]:
    """Return the bytes of records, and their positions."""
    records, data = [], b""
    for seq, payload in enumerate(contents, 1):
        record = frame(seq, payload)
        records.append(Record(len(data), len(data) + len(record), seq, payload))
        data += record
    return data, records


@half
@given(some)
def test_framed_records_are_found(contents: list[bytes]) -> None:
    data, records = framed(contents)
    found = scan(data)
    assert (found.records, found.broken) == (records, [])
    assert (found.end, found.torn, found.lost) == (len(data), len(data), 0)


@half
@given(some, st.data())
def test_ag_60_a_truncated_record_is_recognised_at_every_length(
    contents: list[bytes], data: st.DataObject
) -> None:
    whole, records = framed(contents)
    cut = data.draw(st.integers(records[-1].start + 1, len(whole) - 1))
    found = scan(whole[:cut])
    assert found.records == records[:-1]
    assert (found.end, found.torn, found.lost) == (records[-1].start, records[-1].start, 0)
    assert found.broken == []


@half
@given(some, st.data())
def test_ag_61_a_flipped_byte_costs_one_record_and_no_other(
    contents: list[bytes], data: st.DataObject
) -> None:
    """The flipped byte may be anywhere, also in lengths and numbers.

    It is never taken for the start of a record.
    """
    whole, records = framed(contents)
    place = data.draw(st.integers(0, len(whole) - 1))
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != whole[place]))
    damaged = whole[:place] + bytes([other]) + whole[place + 1 :]
    found = scan(damaged)
    hit = next(record for record in records if place < record.end)
    assert found.records == [record for record in records if record is not hit]
    if hit is records[-1]:
        lost = 1 + (other == ord("\n"))  # determined by line ends
        assert (found.end, found.torn, found.lost) == (hit.start, len(whole), lost)
    else:
        assert found.broken == [(hit.start, hit.end)]


@half
@given(some, st.binary(min_size=1, max_size=60))
def test_reading_continues_after_any_garbage(contents: list[bytes], junk: bytes) -> None:
    """Bytes before a line that starts a record never hide it."""
    data, records = framed(contents)
    found = scan(junk + b"\n" + data)
    assert [one.seq for one in found.records][-len(records) :] == [one.seq for one in records]


@half
@given(st.binary(max_size=200))
def test_any_bytes_can_be_scanned(data: bytes) -> None:
    found = scan(data)
    assert 0 <= found.end <= found.torn <= len(data)
    assert found.records == []


def test_a_truncated_header_does_not_swallow_the_next_record() -> None:
    """One writer was killed in the middle of a header, and another one writes after it."""
    first, cut, last = frame(1, b"{}"), frame(2, b'{"a":1}'), frame(2, b'{"b":2}')
    for length in range(1, len(cut) - 1):
        found = scan(first + cut[:length] + b"\n" + last)
        assert [record.payload for record in found.records] == [b"{}", b'{"b":2}']
        assert len(found.broken) == 1


def test_an_impossible_record_is_recognised_from_its_first_bytes() -> None:
    record = frame(7, b"{}")
    cases = {
        record: True,
        record[:-1]: "begun",
        MAGIC[:3]: "begun",
        b"": "begun",
        MAGIC: "begun",
        MAGIC + b"12": "begun",
        MAGIC + b"12 ab": "begun",
        MAGIC + b"12 abcdef01 3": "begun",
        MAGIC + b"x": "bad",
        MAGIC + b"123456789": "bad",
        MAGIC + b"2 abcdefgh 1\n": "bad",
        MAGIC + b"2 00000000 7\n{}\n": "bad",
        MAGIC + b"99999999 00000000 7\n": "bad",
        MAGIC + b"9 00000000 7\n{}\n": "bad",
        b"\x00" * 500: "bad",
    }
    for data, expected in cases.items():
        found = record_at(data, 0)
        assert (isinstance(found, Record) or found) == expected, data


def test_the_first_record_after_a_position_is_found() -> None:
    data = frame(1, b"{}") + frame(2, b"{}")
    behind = next_record(data, 0)
    assert behind is not None
    assert behind.seq == 2
    assert next_record(data, behind.start) is None


def test_records_lost_at_the_end_are_counted() -> None:
    """Their numbers are not assigned again."""
    good, bad = frame(1, b"{}"), re.sub(rb"\{\}", b"[]", frame(2, b"{}"))
    assert scan(good + bad).lost == 1
    assert scan(good + bad + bad).lost == 2
    assert scan(good + bad + bad[:-4]).lost == 1
    assert scan(good + b"\x00" * 50).lost == 1
    assert scan(good + bad + bad[:-4]).torn == len(good + bad)
