import json
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import Problem, ProviderError, ProviderErrorKind
from trioeval.providers import Reply, Request, Usage
from trioeval.providers.local.recordings import (
    FIELDS,
    RecordedError,
    Recording,
    parse_recordings,
    to_line,
    to_recording,
)
from trioeval.providers.local.tape import Tape, Wanted


def lines(*objects: Any) -> list[bytes]:
    return [json.dumps(item).encode() for item in objects]


def test_a_line_is_a_recording() -> None:
    """All fields are read; empty lines, line ends and a byte order mark do not matter."""
    full = {
        "prompt": "a",
        "output": {"x": [1]},
        "latency_ms": 1.5,
        "model": "m",
        "usage": {"prompt": 1, "completion": None},
        "finish_reason": "stop",
    }
    failed = {"prompt": "b", "error": {"kind": "server", "message": "down"}}
    first, second = lines(full, failed)
    recordings, problems = parse_recordings([b"\xef\xbb\xbf" + first + b"\r", b" ", second], "f")
    assert problems == ()
    assert recordings == (
        Recording(
            prompt="a",
            output={"x": [1]},
            latency_ms=1.5,
            model="m",
            usage=Usage(prompt=1),
            finish_reason="stop",
        ),
        Recording(prompt="b", error=RecordedError("server", "down")),
    )


def test_null_is_an_output() -> None:
    """An output of null is recorded like any other."""
    assert parse_recordings(lines({"prompt": "a", "output": None}), "f")[1] == ()


COUNTS = ", ".join(field.name for field in attrs.fields(Usage))
OUTPUT = {"prompt": "a", "output": "b"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff", "the line is not UTF-8"),
        (b"nope", "the line is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[1]", "a recording must be an object, got [1]"),
        (lines({"output": "b"})[0], "prompt must be text, got null"),
        (lines({"prompt": "a"})[0], "a recording has either an output or an error"),
        (
            lines({**OUTPUT, "error": {"kind": "server", "message": ""}})[0],
            "a recording has either an output or an error",
        ),
        (
            lines({**OUTPUT, "latency": 3})[0],
            f'"latency" is not a field of a recording; known are {", ".join(FIELDS)}',
        ),
        (lines({**OUTPUT, "model": 1})[0], "model must be text, got 1"),
        (
            lines({**OUTPUT, "latency_ms": -1})[0],
            "latency_ms must be a number of at least 0, got -1",
        ),
        (
            lines({**OUTPUT, "usage": {"prompt": 1.5}})[0],
            f'usage must be an object of token counts ({COUNTS}), got {{"prompt": 1.5}}',
        ),
        (
            lines({"prompt": "a", "error": "down"})[0],
            'error must be an object with kind and message, got "down"',
        ),
        (
            lines({"prompt": "a", "error": {"kind": "server", "message": 1}})[0],
            "error.message must be text, got 1",
        ),
    ],
)
def test_each_mistake_is_named_with_file_and_line(line: bytes, message: str) -> None:
    """A line that cannot be read says what is wrong with it, and where."""
    good = lines(OUTPUT)[0]
    recordings, problems = parse_recordings([good, line, good], "replies.jsonl")
    assert problems == (Problem(".id", message, file="replies.jsonl", line=2),)
    assert len(recordings) == 2


def test_an_unknown_kind_of_error_is_told_with_the_known_ones() -> None:
    """The kinds are those of provider errors."""
    line = lines({"prompt": "a", "error": {"kind": "sulking", "message": "no"}})
    (problem,) = parse_recordings(line, "f")[1]
    assert problem.message.startswith("error.kind must be one of auth, permission, ")
    assert problem.message.endswith(', got "sulking"')


def test_all_mistakes_of_all_lines_are_found() -> None:
    """One reading finds every problem of the file."""
    bad = {"prompt": 1, "output": "b", "model": 2}
    assert [problem.line for problem in parse_recordings(lines(bad, OUTPUT, bad), "f")[1]] == [
        1,
        1,
        3,
        3,
    ]


def play(tape: Tape, prompt: str, model: str | None = None) -> Any:
    take = tape.find(Wanted(prompt, model))
    assert tape.find(Wanted(prompt, model)) is take
    tape.advance(Wanted(prompt, model))
    return None if take is None else take.output


def test_recordings_of_a_prompt_are_played_in_order_and_the_last_repeats() -> None:
    """Each prompt has its own position; looking does not move it."""
    tape = Tape(
        (
            Recording(prompt="a", output=1),
            Recording(prompt="b", output=9),
            Recording(prompt="a", output=2),
        )
    )
    assert [play(tape, prompt) for prompt in "aabaab"] == [1, 2, 9, 2, 2, 9]
    assert play(tape, "c") is None


def test_a_model_hears_its_own_recordings_and_those_of_nobody() -> None:
    """Recordings that name another model are left out, and positions are kept by model."""
    tape = Tape(
        (
            Recording(prompt="a", output=1, model="m"),
            Recording(prompt="a", output=2),
            Recording(prompt="a", output=3, model="n"),
        )
    )
    assert [play(tape, "a", "m") for _ in range(3)] == [1, 2, 2]
    assert [play(tape, "a", "n") for _ in range(3)] == [2, 3, 3]
    assert [play(tape, "a") for _ in range(3)] == [1, 2, 3]


def test_a_repeat_hears_its_own_recordings_whatever_the_order_of_calls() -> None:
    """Concurrent repeats do not swap their answers; a repeat that was not recorded hears any."""
    tape = Tape(tuple(Recording(prompt="a", output=n, repeat=n % 2) for n in range(4)))

    def played(repeat: int) -> Any:
        wanted = Wanted("a", repeat=repeat)
        take = tape.find(wanted)
        tape.advance(wanted)
        assert take is not None
        return take.output

    assert [played(repeat) for repeat in (1, 0, 1, 0, 0, 1)] == [1, 0, 3, 2, 2, 3]
    assert [played(7) for _ in range(5)] == [0, 1, 2, 3, 3]


def test_a_provider_hears_its_own_recordings_and_those_of_nobody() -> None:
    """A file that holds the answers of several providers gives each its own."""
    tape = Tape(
        (
            Recording(prompt="a", output=1, provider="left"),
            Recording(prompt="a", output=2, provider="right"),
        )
    )
    take = tape.find(Wanted("a", provider="right"))
    assert take is not None
    assert take.output == 2
    assert tape.find(Wanted("a", provider="nobody")) is None


COUNT = st.none() | st.integers(0, 10**6)
REPLIES = st.builds(
    Reply,
    output=st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
    usage=st.builds(Usage, prompt=COUNT, completion=COUNT, total=COUNT, reasoning=COUNT),
    cost=st.none() | st.floats(0, 10),
    finish_reason=st.none() | st.sampled_from(["stop", "length"]),
    is_refusal=st.booleans(),
    log_probs=st.none() | st.lists(st.floats(-9, 0), max_size=3).map(tuple),
    first_token=st.none() | st.integers(0, 1000).map(lambda ms: ms / 1000),
    metadata=st.just({}) | st.just({"model": "m-1"}),
)
ERRORS = st.builds(
    ProviderError,
    st.sampled_from(get_args(ProviderErrorKind)),
    st.text(),
    status=st.none() | st.integers(400, 599),
    retry_after=st.none() | st.floats(0, 100),
)


@given(prompt=st.text(), answer=REPLIES | ERRORS, repeat=st.integers(0, 3))
def test_what_was_recorded_is_read_back(
    prompt: str, answer: Reply | ProviderError, repeat: int
) -> None:
    """Writing a line and reading it loses nothing that a recording keeps."""
    request = Request(prompt=prompt, repeat_index=repeat)
    recording = to_recording("mine", request, answer, 0.25)
    (read,), problems = parse_recordings([to_line(recording).encode("utf-8", "replace")], "f")
    assert problems == ()
    if isinstance(answer, Reply):
        assert read == recording
        assert read.reply() == answer
    else:
        assert read.error is not None
        again = read.error.revived()
        assert (again.kind, again.message) == (answer.kind, answer.message)
        assert (again.status, again.retry_after) == (answer.status, answer.retry_after)
