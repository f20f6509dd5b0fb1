import json
import math
from collections import Counter
from typing import Any, get_args

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import Fault, Problem, ProviderError, ProviderErrorKind
from trioeval.providers import Guardrails, Reply, Request, ToolCall, Usage
from trioeval.providers.local.record import to_line, to_recording
from trioeval.providers.local.recordings import (
    PLACES,
    RecordedError,
    Recording,
    RecordingRequest,
    Tape,
    parse_file,
    parse_recordings,
)


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
FAULTS = ", ".join(fault.value for fault in Fault)
OUTPUT = {"prompt": "a", "output": "b"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"\xff", "the line is not UTF-8"),
        (b"nope", "the line is not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[1]", "a recording must be an object, got [1]"),
        (lines({"output": "b"})[0], "prompt must be text, got null"),
        (lines({"prompt": "a"})[0], "a recording must have either an output or an error"),
        (
            lines({**OUTPUT, "error": {"kind": "server", "message": ""}})[0],
            "a recording must have either an output or an error",
        ),
        (
            lines({**OUTPUT, "latency": 3})[0],
            '"latency" is not a field of a recording; did you mean "latency_ms"?',
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
        (
            lines({"prompt": "a", "error": {"kind": "server", "message": "", "fault": "mine"}})[0],
            f'error.fault must be one of {FAULTS}, got "mine"',
        ),
        (
            lines({**OUTPUT, "left_out": {"output": "no"}})[0],
            "a recording must have either an output or an error",
        ),
        (
            lines({**OUTPUT, "test_idx": -1})[0],
            "test_idx must be a whole number of at least 0, got -1",
        ),
    ],
)
def test_each_mistake_is_named_with_file_and_line(line: bytes, message: str) -> None:
    """The problem of an invalid line has the file and the line."""
    good = lines(OUTPUT)[0]
    recordings, problems = parse_recordings([good, line, good], "replies.jsonl")
    assert problems == (Problem(".id", message, file="replies.jsonl", line=2),)
    assert len(recordings) == 2


def test_an_unknown_kind_of_error_is_reported_with_the_known_ones() -> None:
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
    take = tape.find(RecordingRequest(prompt, model))
    assert tape.find(RecordingRequest(prompt, model)) is take
    tape.advance(RecordingRequest(prompt, model))
    return None if take is None else take.output


def test_recordings_of_a_prompt_are_played_in_order_and_the_last_repeats() -> None:
    """Each prompt has its own position; `find` does not move it."""
    tape = Tape(
        (
            Recording(prompt="a", output=1),
            Recording(prompt="b", output=9),
            Recording(prompt="a", output=2),
        )
    )
    assert [play(tape, prompt) for prompt in "aabaab"] == [1, 2, 9, 2, 2, 9]
    assert play(tape, "c") is None


def test_a_model_gets_its_own_recordings_and_those_without_a_model() -> None:
    """Recordings of other models are excluded, and positions are separate for each model."""
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


def test_a_repeat_gets_its_own_recordings_whatever_the_order_of_calls() -> None:
    """Concurrent repeats do not swap their replies; a repeat without a recording gets any."""
    tape = Tape(tuple(Recording(prompt="a", output=n, repeat=n % 2) for n in range(4)))

    def played(repeat: int) -> Any:
        wanted = RecordingRequest("a", repeat=repeat)
        take = tape.find(wanted)
        tape.advance(wanted)
        assert take is not None
        return take.output

    assert [played(repeat) for repeat in (1, 0, 1, 0, 0, 1)] == [1, 0, 3, 2, 2, 3]
    assert [played(7) for _ in range(5)] == [0, 1, 2, 3, 3]


WHERE: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {name: st.none() | st.integers(0, 2) for name in PLACES}
)


@given(places=st.lists(WHERE, min_size=1, max_size=8), requests=st.lists(WHERE, max_size=12))
def test_a_call_gets_the_best_matching_recordings(
    places: list[dict[str, Any]], requests: list[dict[str, Any]]
) -> None:
    """Entry precedes test, prompt and repeat; each choice of recordings is returned in order."""
    takes = [Recording(prompt="a", output=n, **place) for n, place in enumerate(places)]
    tape = Tape(tuple(takes))
    played: Counter[tuple[int | None, ...]] = Counter()
    for want in requests:
        choice, chosen_by = takes, list[int | None]()
        for name in PLACES:
            value = want[name]
            same = [take for take in choice if getattr(take, name) == value is not None]
            choice = same or choice
            chosen_by.append(value if same else None)
        track = tuple(chosen_by)
        wanted = RecordingRequest("a", **want)
        assert tape.find(wanted) is choice[min(played[track], len(choice) - 1)]
        tape.advance(wanted)
        played[track] += 1


def test_each_call_of_a_run_gets_its_own_reply_whatever_the_order() -> None:
    """Two entries of one name, two tests with one prompt, two equal prompts and repeats are distinguished."""
    places: list[dict[str, Any]] = [
        {"entry_idx": entry, "test_idx": test, "prompt_idx": prompt, "repeat": repeat}
        for entry in range(2)
        for test in range(2)
        for prompt in range(2)
        for repeat in range(2)
    ]
    tape = Tape(tuple(Recording(prompt="a", output=n, **place) for n, place in enumerate(places)))
    for number, place in reversed(list(enumerate(places))):
        take = tape.find(RecordingRequest("a", **place))
        assert take is not None
        assert take.output == number


def test_recordings_of_a_changed_suite_are_matched_by_the_other_fields() -> None:
    """Fields that no longer match are ignored, the others still count."""
    tape = Tape(
        tuple(
            Recording(
                prompt="a", output=(entry, repeat), entry_idx=entry, test_idx=5, repeat=repeat
            )
            for entry in range(2)
            for repeat in range(2)
        )
    )

    def played(**place: Any) -> Any:
        wanted = RecordingRequest("a", **place)
        take = tape.find(wanted)
        tape.advance(wanted)
        assert take is not None
        return take.output

    assert played(entry_idx=1, test_idx=0, repeat=1) == (1, 1)
    assert played(entry_idx=7, test_idx=5, repeat=1) == (0, 1)
    assert [played(entry_idx=1, repeat=9) for _ in range(3)] == [(1, 0), (1, 1), (1, 1)]


def test_the_cost_of_a_call_does_not_depend_on_the_number_of_recordings() -> None:
    """Two thousand repeats are returned without searching two thousand recordings."""
    compared = 0

    class Repeat(int):
        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    number = 2000
    tape = Tape(tuple(Recording(prompt="a", output=n, repeat=Repeat(n)) for n in range(number)))
    for repeat in range(number):
        wanted = RecordingRequest("a", repeat=Repeat(repeat))
        take = tape.find(wanted)
        tape.advance(wanted)
        assert take is not None
        assert take.output == repeat
    assert compared < 20 * number


WHOLE = b'{"prompt": "a", "output": "b"}'


@pytest.mark.parametrize(
    ("content", "is_cut", "count", "problems"),
    [
        (WHOLE + b"\n" + WHOLE + b"\n", False, 2, 0),
        (WHOLE + b"\n" + WHOLE, False, 2, 0),
        (WHOLE + b"\n" + WHOLE[:-4], True, 1, 0),
        (WHOLE + b'\n{"prompt": "\xc3', True, 1, 0),
        (WHOLE + b"\n{", True, 1, 0),
        (WHOLE[:-4], True, 0, 0),
        (WHOLE[:-4] + b"\n", False, 0, 1),
        (WHOLE[:-4] + b"\n" + WHOLE, False, 1, 1),
        (WHOLE + b"\nnonsense", False, 1, 1),
        (WHOLE + b'\n{"prompt": "a"}', False, 1, 1),
        (WHOLE + b'\n{"output": ' + b"[" * 5000, False, 1, 1),
        (b"", False, 0, 0),
    ],
)
def test_a_truncated_last_line_is_ignored(
    content: bytes, *, is_cut: bool, count: int, problems: int
) -> None:
    """It was cut by a killed process; an invalid line anywhere else is a problem."""
    found = parse_file(content, "f")
    assert (found.is_cut, len(found.recordings), len(found.problems)) == (is_cut, count, problems)


@given(cut=st.integers(0, 200))
def test_a_file_truncated_anywhere_is_read_to_the_cut(cut: int) -> None:
    """All lines before the cut are read."""
    whole = to_line(to_recording("é", Request(prompt="é\n"), Reply(output=["ü"]), 0.1)).encode()
    found = parse_file(whole + b"\n" + whole[:cut], "f")
    assert len(found.recordings) == (2 if cut >= len(whole) else 1)
    assert found.problems == ()


COUNT = st.none() | st.integers(0, 10**6)
CALLS = st.builds(
    ToolCall,
    st.text(max_size=3),
    st.text(max_size=3) | st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.none() | st.text(max_size=3),
)
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
    text=st.none() | st.text(max_size=3),
    tool_calls=st.lists(CALLS, max_size=2).map(tuple),
    reasoning=st.none() | st.text(max_size=3),
    refusal=st.none() | st.text(max_size=3),
    guardrails=st.none()
    | st.builds(Guardrails, flagged=st.booleans(), reason=st.none() | st.text(max_size=3)),
    log_probs=st.none() | st.lists(st.floats(-9, 0) | st.just(-math.inf), max_size=3).map(tuple),
    first_token=st.none() | st.integers(0, 1000).map(lambda ms: ms / 1000),
    metadata=st.just({}) | st.just({"model": "m-1"}),
)
ERRORS = st.builds(
    ProviderError,
    st.sampled_from(get_args(ProviderErrorKind)),
    st.text(),
    status=st.none() | st.integers(400, 599),
    retry_after=st.none() | st.floats(0, 100),
    fault=st.none() | st.sampled_from(Fault),
    retries=st.none() | st.integers(0, 9),
    tokens=st.none() | st.integers(0, 9),
    usage=st.none() | st.builds(Usage, prompt=st.integers(0, 9), reasoning=st.integers(0, 9)),
    money=st.none() | st.floats(0, 9),
    finish_reason=st.none() | st.text(),
)


@given(prompt=st.text(), answer=REPLIES | ERRORS, places=st.tuples(*[st.integers(0, 3)] * 4))
def test_a_recording_is_read_back_unchanged(
    prompt: str, answer: Reply | ProviderError, places: tuple[int, int, int, int]
) -> None:
    """A recording that is written and read back is unchanged."""
    position, test, variant, repeat = places
    request = Request(prompt=prompt, test_idx=test, prompt_idx=variant, repeat_index=repeat)
    recording = to_recording("mine", request, answer, 0.25, position=position)
    (read,), problems = parse_recordings([to_line(recording).encode("utf-8", "replace")], "f")
    assert problems == ()
    assert (read.entry_idx, read.test_idx, read.prompt_idx, read.repeat) == places
    if isinstance(answer, Reply):
        assert read == recording
        assert read.reply() == answer
    else:
        again = read.failure()
        assert again is not None
        assert (again.kind, again.message) == (answer.kind, answer.message)
        for name in (
            *("status", "retry_after", "fault", "retries", "tokens", "usage", "money"),
            "finish_reason",
        ):
            assert getattr(again, name) == getattr(answer, name)
