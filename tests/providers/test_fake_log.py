"""The fake provider's log of sent replies, used to audit clients."""

import hashlib
import json
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import trio
from fake_runs import exchange, get, post, read_reply
from server_process import fake_provider

from trioeval.providers.fake import FakeSettings, ServedCompletion, serve_fake

pytestmark = pytest.mark.network

ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "Hi"}]}).encode()
REQUEST = post("/chat/completions", ASK)


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is reached directly, whatever the machine's proxy variables are."""
    monkeypatch.setenv("NO_PROXY", "*")


def served(settings: FakeSettings, *, leaves: bool = False) -> ServedCompletion:
    """Return the log record of one completion, whose client may leave before its reply."""
    records: list[ServedCompletion] = []

    async def main() -> None:
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                address = await nursery.start(serve_fake, settings, records.append)
                async with await trio.open_tcp_stream(address.host, address.port) as stream:
                    await stream.send_all(REQUEST)
                    while (
                        leaves
                        and not json.loads((await exchange(address, get("/stats"))).body)[
                            "in_flight"
                        ]
                    ):
                        pass
                    if not leaves and settings.disconnect_rate:
                        async for _ in stream:
                            pass
                    elif not leaves:
                        await read_reply(stream)
                while not records:
                    await exchange(address, get("/stats"))
                nursery.cancel_scope.cancel()

    trio.run(main)
    [one] = records
    return one


def test_a_sent_reply_is_logged_with_its_request() -> None:
    """The record has the request and the bytes that the operating system accepted."""
    one = served(FakeSettings())
    assert (one.body, one.status, one.ending) == (ASK, 200, "sent")
    assert one.sent_bytes > 300


def test_unsent_replies_are_logged_as_unsent() -> None:
    """Cut, abandoned and refused replies are recorded as such."""
    whole = served(FakeSettings()).sent_bytes
    cut = served(FakeSettings(disconnect_rate=1))
    assert (cut.status, cut.ending) == (200, "cut")
    assert 0 < cut.sent_bytes < whole
    left = served(FakeSettings(latency_s=60), leaves=True)
    assert (left.status, left.ending, left.sent_bytes) == (200, "abandoned", 0)
    assert served(FakeSettings(failure_rate=1)).status == 500
    assert served(FakeSettings(throttle_rate=1)).status == 429


def test_a_line_has_time_digest_and_prompt() -> None:
    """A request that is not a completion has no prompt."""
    one = ServedCompletion(
        body=ASK, status=200, ending="sent", seconds=0.5, busy_seconds=0.25, sent_bytes=7
    )
    assert one.to_line(12.5).endswith("}\n")
    assert json.loads(one.to_line(12.5)) == {
        "utc_at": 12.5,
        "seconds": 0.5,
        "busy_seconds": 0.25,
        "digest": hashlib.sha256(ASK).hexdigest(),
        "status": 200,
        "ending": "sent",
        "bytes": 7,
        "model": "m",
        "prompt": "Hi",
    }
    other = ServedCompletion(
        body=b"?", status=400, ending="sent", seconds=0.5, busy_seconds=0.25, sent_bytes=7
    )
    assert "prompt" not in json.loads(other.to_line(12.5))


@pytest.mark.slow
def test_the_log_is_complete_at_any_instant_and_appended_to(tmp_path: Path) -> None:
    """A line is in the file before the next request is answered; another server appends to it."""
    for round_ in (1, 2):
        with fake_provider("--log", str(tmp_path / "log.jsonl")) as url:
            for _ in range(2):
                request = urllib.request.Request(url + "/chat/completions", ASK)
                urllib.request.urlopen(request).close()
            urllib.request.urlopen(url.removesuffix("/v1") + "/stats").close()
            lines = (tmp_path / "log.jsonl").read_text().splitlines()
            assert [json.loads(line)["ending"] for line in lines] == ["sent"] * 2 * round_


@pytest.mark.slow
def test_a_log_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    """The error is one line, before anything is served."""
    command = [sys.executable, "-m", "trioeval", "fake-provider", "--log", "no/log.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "--log no/log.jsonl cannot be written: No such file or directory\n"
