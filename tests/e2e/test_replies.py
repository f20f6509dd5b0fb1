"""Replies that are large, broken or no text at all, from a real server to rows of a suite."""

import json
from collections.abc import Sequence

import pytest
import trio

import trioeval
from trioeval import Row, Status
from trioeval.providers.fake import FakeSettings, FillerReplies, GarbageReplies, Replies, serve_fake
from trioeval.report import row_json

pytestmark = [pytest.mark.network, pytest.mark.trio]


async def rows_from(
    nursery: trio.Nursery, replies: Replies, *, disconnect_rate: float = 0.0
) -> Sequence[Row]:
    """Two rows of a suite that asks a fake provider over loopback."""
    settings = FakeSettings(replies=replies, disconnect_rate=disconnect_rate)
    address = await nursery.start(serve_fake, settings)
    suite = trioeval.parse_suite(
        {
            "providers": [
                {"id": "openai:chat:fake", "config": {"apiBaseUrl": address.base_url}},
            ],
            "prompts": ["one", "two"],
        }
    )
    with trio.fail_after(30):
        return await trioeval.collect(suite)


@pytest.mark.slow
async def test_a_reply_of_ten_megabytes_is_a_reply(nursery: trio.Nursery) -> None:
    """It was paid for: it is kept whole, and can be written down."""
    for row in await rows_from(nursery, FillerReplies(10_000_000)):
        assert row.status is Status.PASS
        assert len(row.output) == 10_000_000
        assert len(json.dumps(row_json(row, "e"))) > 10_000_000


@pytest.mark.parametrize("kind", ["invalid_utf8", "not_json"])
async def test_a_reply_that_is_no_reply_is_an_error_row(kind: str, nursery: trio.Nursery) -> None:
    """Status 200 does not make a reply of anything."""
    for row in await rows_from(nursery, GarbageReplies(kind)):  # type: ignore[arg-type]
        assert row.status is Status.ERROR
        assert row.error is not None
        assert row.error.startswith("malformed_reply: ")
        assert row.reply is None


async def test_a_connection_that_breaks_in_mid_reply_is_an_error_row(nursery: trio.Nursery) -> None:
    """Half a reply is none."""
    for row in await rows_from(nursery, FillerReplies(1000), disconnect_rate=1.0):
        assert row.status is Status.ERROR
        assert row.error is not None
        assert row.error.startswith("connection: the connection to 127.0.0.1:")
