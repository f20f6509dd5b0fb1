"""`trioeval bus` in this process: flags, output and error messages."""

import io
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from trioeval.agent.bus.bus import open_bus
from trioeval.agent.bus.messages import Message, MessageDraft
from trioeval.agent.bus.segments import segment_numbers
from trioeval.agent.bus.settings import BusSettings
from trioeval.cli.app import run_command_line
from trioeval.cli.commands.bus import message_text
from trioeval.cli.terminal import show_in_time
from trioeval.errors import OutputError
from trioeval.testing import run_virtual

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty environment and narrow help."""
    for name in ("BUS", "PROJECT", "CASE", "RUN"):
        monkeypatch.delenv(f"TRIOEVAL_{name}", raising=False)
    monkeypatch.setenv("NO_COLOR", "1")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a `bus` command, and return its exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = run_command_line(["bus", *words])
        stderr = capsys.readouterr()
        return code, stderr.out, stderr.err

    return run


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a bus that does not exist yet, in the environment of an agent."""
    folder = tmp_path / "case" / "bus"
    monkeypatch.setenv("TRIOEVAL_BUS", str(folder))
    monkeypatch.setenv("TRIOEVAL_PROJECT", "eval-1")
    return folder


def fill(folder: Path, *drafts: tuple[str, str], rotate_bytes: int | None = None) -> None:
    """Post messages, each with a type and a body."""
    settings = BusSettings(rotate_bytes=rotate_bytes, keep_segments=rotate_bytes and 1)

    async def main() -> None:
        async with open_bus(folder, settings, rng=lambda: 0.5) as bus:
            for kind, body in drafts:
                await bus.append(MessageDraft(type=kind, project_id="p", task_id="calc", body=body))

    trio.run(main)


def bodies(printed: str) -> list[str]:
    return [json.loads(line)["body"] for line in printed.splitlines()]


def test_posted_messages_are_read(bus: Path, run: Run) -> None:
    """Every flag is stored, under the printed id."""
    _, issue, _ = run("post", "it loops", "--type", "ISSUE", "--task", "calc", "--run", "r-0")
    words = ["--type", "FACT", "--issue", issue.strip(), "--parent", issue.strip(), "--parent", "x"]
    words += ["--link", "https://a.example/b", "--meta", "k=v=w", "--meta", "empty=", "--fsync"]
    code, given, stderr = run("post", "it ends\nnow\n", *words, "--project", "other", "--json")
    assert (code, stderr) == (0, "")
    code, printed, stderr = run("read", "--json")
    assert (code, stderr) == (0, "")
    first, second = map(json.loads, printed.splitlines())
    assert first["msg_id"] == first["issue_id"] == issue.strip()
    assert {key: first[key] for key in ("seq", "type", "project_id", "task_id", "run_id")} == {
        "seq": 1,
        "type": "ISSUE",
        "project_id": "eval-1",
        "task_id": "calc",
        "run_id": "r-0",
    }
    assert second == json.loads(given)
    assert {key: second[key] for key in second if key not in ("msg_id", "ts")} == {
        "seq": 2,
        "type": "FACT",
        "project_id": "other",
        "body": "it ends\nnow\n",
        "issue_id": issue.strip(),
        "parents": [{"msg_id": issue.strip()}, {"msg_id": "x"}],
        "links": [{"url": "https://a.example/b"}],
        "meta": {"k": "v=w", "empty": ""},
    }


def test_an_agent_needs_to_give_only_type_and_text(
    bus: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its environment supplies the rest; a flag takes precedence, and blank values are ignored."""
    monkeypatch.setenv("TRIOEVAL_CASE", "calc-1")
    monkeypatch.setenv("TRIOEVAL_RUN", " ")
    run("post", "--", "--share")
    run("post", "b", "--task", "other", "--bus", str(bus))
    found = [json.loads(line) for line in run("read", "--json")[1].splitlines()]
    assert [(one["body"], one["task_id"], one.get("run_id")) for one in found] == [
        ("--share", "calc-1", None),
        ("b", "other", None),
    ]


INPUTS = {
    "empty": (b"", "", ""),
    "lines": (b"a\r\n---\n\n", "a\r\n---\n\n", ""),
    "controls": ("ü \N{SNOWMAN}\0\x1b[31m".encode(), "ü \N{SNOWMAN}\0\x1b[31m", ""),
    "bytes": (b"a\xff\xfeb\xc3", "a\ufffd\ufffdb\ufffd", "standard input is not UTF-8"),
}


@pytest.mark.parametrize("words", [[], ["-"], ["-", "--fsync"], ["--task", "t", "-"]])
@pytest.mark.parametrize("name", INPUTS)
def test_standard_input_is_posted_as_it_is(
    bus: Path, run: Run, monkeypatch: pytest.MonkeyPatch, name: str, words: list[str]
) -> None:
    """This includes every line end; only invalid UTF-8 is replaced, with a warning."""
    given, body, stderr = INPUTS[name]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    code, _, err = run("post", *words)
    assert (code, err.partition(":")[0]) == (0, stderr)
    assert bodies(run("read", "--json")[1]) == [body]


@pytest.mark.parametrize(
    "text", ["- an item", "---", "--- a/x\n+++ b/x", "-> there", "-5", "-.", "-\n"]
)
def test_a_text_may_begin_with_a_dash(bus: Path, run: Run, text: str) -> None:
    """Lists and diffs do; only a text that could be a flag needs `--` before it."""
    assert run("post", text, "--type", "FACT")[0] == 0
    assert run("post", "--type", "FACT", text)[0] == 0
    assert bodies(run("read", "--type", "FACT", "--json")[1]) == [text, text]


@pytest.mark.parametrize("text", ["--force", "-x", "--force is gone", "--tpye=FACT", "-h text"])
def test_a_text_that_could_be_a_flag_is_refused(bus: Path, run: Run, text: str) -> None:
    """A mistyped flag is not posted as a text."""
    assert run("post", text)[0] == 2
    assert run("read") == (0, "", "")
    assert run("post", "--", text)[0] == 0
    assert bodies(run("read", "--json")[1]) == [text]


def test_only_important_messages_are_flushed_to_disk(
    bus: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Facts are important, and so is any type that is configured as such."""
    written: list[int] = []
    for name in ("fsync", "fdatasync"):
        monkeypatch.setattr(os, name, written.append)

    def count(*words: str) -> int:
        written.clear()
        assert run("post", "text", *words)[0] == 0
        return len(written)

    run("post", "the first one makes the files")
    assert count() == 0
    assert (
        count("--type", "FACT") == 2
    )  # with the name of the file, for any program that created it
    assert count("--fsync") == 2


def test_a_dash_is_not_a_value_of_a_flag(bus: Path, run: Run) -> None:
    """It does not mean standard input there either; after `=` it is an ordinary value."""
    assert run("post", "--task", "-")[0] == 2
    assert run("post", "--task", "-", "text")[0] == 2
    assert run("post", "--task=-", "text")[0] == 0
    assert json.loads(run("read", "--json")[1])["task_id"] == "-"


def test_a_message_needs_a_text_or_an_input(
    bus: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is posted without a text and standard input."""
    monkeypatch.setattr(sys, "stdin", None)
    code, printed, stderr = run("post")
    assert (code, printed) == (2, "")
    assert stderr == "no TEXT is given, and standard input is closed\n"
    assert not bus.exists()


def test_all_errors_of_a_post_are_reported_at_once(run: Run, tmp_path: Path) -> None:
    """Each message names its flag and the valid values; nothing is read or written."""
    words = [
        "--type",
        "fact",
        "--meta",
        "novalue",
        "--meta",
        "=v",
        "--meta",
        "a=1",
        "--meta",
        "a=2",
    ]
    code, printed, stderr = run("post", "a\udcff", *words, "--parent", " ", "--link", "\udc80")
    assert (code, printed) == (2, "")
    assert stderr.splitlines() == [
        "name the bus: --bus FOLDER (or TRIOEVAL_BUS)",
        "name the run of the message: --project ID (or TRIOEVAL_PROJECT)",
        "--type must be a word in capitals, as FACT, got 'fact'",
        "TEXT must be UTF-8 text, got 'a\\udcff'",
        "--parent must not be blank",
        "--link must be UTF-8 text, got '\\udc80'",
        "--meta must be KEY=VALUE, got 'novalue'",
        "--meta must be KEY=VALUE, got '=v'",
        "--meta has the key 'a' twice",
    ]


@pytest.mark.parametrize(
    ("words", "stderr"),
    [
        (["read"], "name the bus: --bus FOLDER (or TRIOEVAL_BUS)"),
        (["follow"], "name the bus: --bus FOLDER (or TRIOEVAL_BUS)"),
        (["read", "--bus", ""], "--bus must not be blank"),
        (["post", "a", "--project", "p", "--bus", " "], "--bus must not be blank"),
        (["read", "--bus", "b", "--type", "Done"], "as INFO, got 'Done'"),
        (["follow", "--bus", "b", "--until", "done!"], "--until must be a word in capitals"),
        (["read", "--bus", "b", "--since", "\udcff"], "--since must be UTF-8 text"),
    ],
)
def test_invalid_flags_of_readers_are_reported(run: Run, words: list[str], stderr: str) -> None:
    """The exit code is 2, as for every command line."""
    code, printed, err = run(*words)
    assert (code, printed) == (2, "")
    assert stderr in err


@pytest.mark.parametrize("words", [("post", "a"), ("read",), ("read", "--last", "1"), ("follow",)])
def test_a_file_is_not_accepted_as_a_bus(bus: Path, run: Run, words: tuple[str, ...]) -> None:
    """The message names it, and it is unchanged."""
    bus.parent.mkdir()
    bus.write_text("mine")
    code, printed, stderr = run(*words)
    assert (code, printed) == (1, "")
    assert str(bus) in stderr
    assert stderr.count("\n") == 1
    assert bus.read_text() == "mine"


def test_a_missing_bus_has_no_messages(bus: Path, run: Run) -> None:
    """Reading does not create it."""
    assert run("read") == (0, "", "")
    assert run("read", "--last", "3", "--json") == (0, "", "")
    assert run("follow", "--timeout", "0.01") == (0, "", "")
    assert not bus.exists()


def test_a_named_folder_must_exist(bus: Path, run: Run) -> None:
    """A misspelt folder would look like a bus without messages."""
    code, printed, stderr = run("read", "--bus", str(bus))
    assert (code, printed) == (2, "")
    assert f"--bus {bus}: the folder does not exist" in stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ((), "abcde"),
        (("--since", ""), "abcde"),
        (("--since", "0"), "abcde"),
        (("--since", "3"), "de"),
        (("--since", "5"), ""),
        (("--last", "0"), ""),
        (("--last", "2"), "de"),
        (("--last", "99"), "abcde"),
        (("--type", "FACT"), "bd"),
        (("--type", "FACT", "--type", "ERROR"), "bde"),
        (("--type", "QUESTION"), ""),
        (("--type", "FACT", "--last", "1"), "d"),
        (("--since", "1", "--last", "3"), "cde"),
        (("--since", "4", "--last", "3"), "e"),
        (("--since", "2", "--type", "FACT", "--last", "0"), ""),
    ],
)
def test_readers_select_by_type_and_number(
    bus: Path, run: Run, words: tuple[str, ...], found: str
) -> None:
    """The type is applied first, and then the number of last messages."""
    fill(bus, ("INFO", "a"), ("FACT", "b"), ("INFO", "c"), ("FACT", "d"), ("ERROR", "e"))
    code, printed, stderr = run("read", "--json", *words)
    assert (code, stderr) == (0, "")
    assert "".join(bodies(printed)) == found


def test_a_reader_continues_after_an_id(bus: Path, run: Run) -> None:
    """The id is the one that `post` prints; an unknown id is an error with code 2."""
    _, first, _ = run("post", "a")
    run("post", "b")
    assert bodies(run("read", "--since", first.strip(), "--json")[1]) == ["b"]
    code, printed, stderr = run("read", "--since", "unknown")
    assert (code, printed) == (2, "")
    assert "unknown" in stderr


def test_a_large_bus_is_printed_in_parts(
    bus: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This applies to the whole bus and to the last messages of a type."""
    monkeypatch.setattr("trioeval.agent.bus.reading.AT_ONCE", 2)
    fill(bus, *[("INFO" if number % 2 else "FACT", str(number)) for number in range(9)])
    assert bodies(run("read", "--json")[1]) == [str(number) for number in range(9)]
    found = bodies(run("read", "--json", "--last", "3", "--type", "FACT")[1])
    assert found == ["4", "6", "8"]


def test_a_cursor_that_has_expired_names_the_oldest(bus: Path, run: Run) -> None:
    """It can be used to continue; `follow` reports the same."""
    fill(bus, *[("INFO", str(number) * 200) for number in range(9)], rotate_bytes=600)
    code, printed, stderr = run("read", "--since", "1")
    assert (code, printed) == (2, "")
    oldest = json.loads(run("read", "--json")[1].splitlines()[0])["seq"] - 1
    assert oldest > 1
    assert str(oldest) in stderr
    assert run("read", "--since", str(oldest))[0] == 0
    assert run("follow", "--since", "1") == (2, "", stderr)


def test_damage_is_reported_and_other_messages_are_read(bus: Path, run: Run) -> None:
    """Stderr names the file and the bytes; stdout has every other message."""
    fill(bus, ("INFO", "first"), ("INFO", "second"), ("INFO", "third"))
    (damaged,) = [file for file in bus.iterdir() if b"second" in file.read_bytes()]
    damaged.write_bytes(damaged.read_bytes().replace(b"second", b"sEcond"))
    code, printed, stderr = run("read", "--json")
    assert (code, bodies(printed)) == (0, ["first", "third"])
    assert stderr.startswith(f"{damaged}: bytes ")
    assert stderr.count("\n") == 1


def test_messages_are_lines_for_people(bus: Path, run: Run) -> None:
    """They show number, time, type, case and body; further lines are indented."""
    fill(bus, ("INFO", "one line\n"), ("FACT", "two\n\tlines\r\n2 now"))
    run("post", "")
    _, printed, _ = run("read")
    lines = [
        line.replace(line[2:22], "TIME") if line[0] != " " else line
        for line in printed.splitlines()
    ]
    assert lines == [
        "1 TIME INFO calc one line",
        "2 TIME FACT calc two",
        "        lines",
        "    2 now",
        "3 TIME INFO -",
    ]
    utc = json.loads(run("read", "--json", "--last", "1")[1])["ts"]
    assert printed.splitlines()[-1][2:22] == f"{utc[:19]}Z"


_TEXTS = st.text(st.characters(codec="utf-8") | st.sampled_from("\x1b\x9b\r\n\u202e\u2028\x85\x00"))


@settings(max_examples=settings().max_examples // 2)
@given(body=_TEXTS, task=_TEXTS)
def test_a_message_cannot_imitate_another_or_control_a_terminal(body: str, task: str) -> None:
    """For any body: one line starts with its number, and no control character takes effect."""
    message = Message(
        seq=7,
        msg_id="m-7",
        utc="2026-01-02T03:04:05.678901Z",
        draft=MessageDraft(type="INFO", project_id="p", task_id=task, body=body),
    )
    first, *rest = message_text(message, as_json=False).split("\n")
    assert re.match(r"7 2026-01-02T03:04:05Z INFO \S", first)
    assert all(line.startswith("    ") for line in rest)
    assert all(line.isprintable() for line in [first, *rest])
    line = message_text(message, as_json=True)
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == message.json()


def test_a_follower_ends_after_the_type_it_waits_for(bus: Path, run: Run) -> None:
    """Even if that message is not printed; with code 100 after the timeout."""
    fill(bus, ("INFO", "a"), ("FACT", "b"), ("INFO", "c"), ("ERROR", "d"))

    def followed(*words: str) -> tuple[int, str]:
        code, printed, _ = run("follow", "--json", *words)
        return code, "".join(bodies(printed))

    assert followed("--until", "FACT") == (0, "ab")
    assert followed("--until", "ERROR", "--until", "FACT", "--since", "2") == (0, "cd")
    assert followed("--until", "ERROR", "--type", "INFO") == (0, "ac")
    assert followed("--timeout", "2") == (0, "abcd")
    code, printed, stderr = run("follow", "--until", "RUN_STOP", "--timeout", "2", "--json")
    assert (code, bodies(printed), stderr) == (
        100,
        ["a", "b", "c", "d"],
        "no RUN_STOP within 2 s\n",
    )


def test_a_follower_can_be_cancelled_while_its_reader_is_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A follower whose pipe is full can be cancelled; then the messages arrive in order."""
    reading, writing = os.pipe()
    with open(reading, "rb") as reader, open(writing, "w", encoding="utf-8") as writer:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", writer)

        async def main() -> int:
            with trio.move_on_after(0.05):
                for number in range(10_000):
                    assert await show_in_time(f"{number:099}")
            return number

        stopped = run_virtual(main)  # the clock jumps when the pipe is full
        assert 100 < stopped < 9_999
        writer.close()
        assert [int(line) for line in reader.read().split()] == list(range(stopped))


def test_a_follower_can_be_cancelled_within_a_long_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text that does not fit into a pipe waits for a reader."""
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "w", encoding="utf-8") as writer:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", writer)

        async def main() -> None:
            with trio.fail_after(0.05):
                await show_in_time("x" * 200_000)

        with pytest.raises(trio.TooSlowError):
            run_virtual(main)


def test_lines_are_written_to_files_and_closed_pipes_are_detected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file takes everything; a closed pipe is reported by the return value, a full disk is an error."""
    long = "ü" * 9_000

    async def print_to(path: Path) -> bool:
        with path.open("w", encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdout", file)
            return await show_in_time(long)

    assert trio.run(print_to, tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == f"{long}\n"
    with pytest.raises(OutputError, match="No space left on device"):
        trio.run(print_to, Path("/dev/full"))
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as closed:  # noqa: PTH123
        monkeypatch.setattr(sys, "stdout", closed)
        assert not trio.run(show_in_time, "unknown")


def test_a_bus_is_rotated_from_the_command_line(run: Run, bus: Path) -> None:
    """A message that fills a file closes it; only the given number of files is kept."""
    for body in "abc":
        assert run("post", body, "--rotate-bytes", "1")[0] == 0
    assert bodies(run("read", "--json")[1]) == ["a", "b", "c"]
    assert len(segment_numbers(bus)) > 2
    assert run("post", "d", "--rotate-bytes", "1", "--keep-segments", "1")[0] == 0
    assert len(segment_numbers(bus)) == 1
    assert run("post", "e", "--rotate-bytes", "0")[0] == 2
