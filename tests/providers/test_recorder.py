"""The recording of a run: any reply is returned, and the file can always be read."""

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import trio

from trioeval.errors import Fault, OutputError, ProviderError, SuiteError
from trioeval.loading.load import parse_suite
from trioeval.providers import OpenProvider, Reply, Request, Usage, open_providers
from trioeval.providers.local.record import Recorder, json_fault
from trioeval.providers.local.recordings import Recording, parse_file
from trioeval.run import PreparedSuite, RunOptions, prepare, run_with_options
from trioeval.suite.model import Suite
from trioeval.templates import Templates


def recorded(folder: Path, *answers: Reply | ProviderError) -> list[dict[str, Any]]:
    """Return the file's recordings after these replies to one prompt."""
    file = folder / "r.jsonl"
    with Recorder.create(file) as recorder:
        for answer in answers:
            recorder.write("mine", Request(prompt="a"), answer, 0.25)
    assert recorder.error is None
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def replay(folder: Path) -> Any:
    """Return the replay's reply to that prompt."""
    suite = parse_suite({"providers": ["mine"], "prompts": ["a"]})

    async def main() -> Any:
        prepared = prepare(suite, replay=folder / "r.jsonl")
        async with open_providers(prepared.specs, Templates()) as [provider]:
            return (await provider(Request(prompt="a"))).output

    return trio.run(main)


class Pair(NamedTuple):
    left: int
    right: int


class Word(StrEnum):
    YES = "yes"


@pytest.mark.parametrize(
    ("output", "again"),
    [
        ("text", "text"),
        (None, None),
        (1, 1),
        (True, True),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ((1, (2,)), [1, [2]]),
        (Pair(1, 2), [1, 2]),
        (Word.YES, "yes"),
        (-math.inf, -math.inf),
        ("\ud800 \u2028 \r\n", "\ud800 \u2028 \r\n"),
    ],
)
def test_outputs_are_replayed_unchanged(tmp_path: Path, output: Any, again: Any) -> None:
    """Tuples become lists, because JSON has no tuples."""
    recorded(tmp_path, Reply(output=output))
    found = replay(tmp_path)
    assert (type(found), found) == (type(again), again)


def deep(levels: int) -> Any:
    value: Any = "x"
    for _ in range(levels):
        value = [value]
    return value


def circle() -> Any:
    value: list[Any] = ["x"]
    value += [value, value]
    return value


class Hostile(dict[str, Any]):
    def values(self) -> Any:
        raise OSError("not at home")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ({1}, "a value of type set is not JSON data"),
        ([b"abc"], "a value of type bytes is not JSON data"),
        ({"a": Path("/x")}, f"a value of type {type(Path()).__name__} is not JSON data"),
        ({(1, 2): "x"}, "a key of type tuple is not JSON data"),
        ({1: "x"}, "a key of type int is not JSON data"),
        (10**5000, "a whole number with thousands of digits cannot be read back"),
        (deep(700), "values nested more than 500 deep cannot be read back"),
        (circle(), "values nested more than 500 deep cannot be read back"),
        (Hostile(a=1), "OSError while it was written"),
    ],
    ids=["set", "bytes", "path", "tuple key", "int key", "long", "deep", "circle", "hostile"],
)
def test_values_that_json_cannot_represent_are_never_replayed(
    tmp_path: Path, output: Any, reason: str
) -> None:
    """The reply is returned, its line has the reason, and a replay fails there."""
    lines = recorded(tmp_path, Reply(output=output, cost=0.5), Reply(output="next"))
    assert lines[0]["left_out"] == {"output": reason}
    assert lines[1]["output"] == "next"
    with pytest.raises(ProviderError) as caught:
        replay(tmp_path)
    place = f"{tmp_path / 'r.jsonl'}:1"
    assert str(caught.value) == f"replay_miss: {place}: the output was not recorded: {reason}"


def test_values_up_to_the_maximum_depth_are_read_back(tmp_path: Path) -> None:
    """Deeper ones are not."""
    assert json_fault(deep(500)) is None
    assert json_fault(deep(501)) is not None
    recorded(tmp_path, Reply(output=deep(500)))
    assert replay(tmp_path) == deep(500)


ODD: Any = {
    "usage": Usage(prompt=1.5, total=2),  # type: ignore[arg-type]
    "cost": math.nan,
    "first_token": "soon",
    "finish_reason": 7,
    "text": 7,
    "tool_calls": [{"name": "add"}],
    "reasoning": ["Hm"],
    "refusal": True,
    "guardrails": {"flagged": True, "reason": 7},
    "log_probs": object(),
    "metadata": None,
}


@pytest.mark.parametrize("name", ODD)
def test_an_invalid_field_is_left_out_of_its_recording(tmp_path: Path, name: str) -> None:
    """The field is left out with the reason; the output is kept."""
    (line,) = recorded(tmp_path, Reply(output="x", **{name: ODD[name]}))
    assert line["output"] == "x"
    assert replay(tmp_path) == "x"
    reasons = line.get("left_out", {})
    assert len(reasons) == (name != "metadata")
    assert not reasons.keys() & (line.keys() - {"left_out"})


def test_the_reason_equals_that_of_the_reader(tmp_path: Path) -> None:
    """Reader and recorder use one check."""
    (line,) = recorded(tmp_path, Reply(output="x", usage=Usage(total=-1), cost=math.nan))
    assert line["left_out"] == {
        "usage": "must be an object of token counts (prompt, completion, total, cached, "
        'cache_creation, reasoning, accepted_prediction, rejected_prediction), got {"total": -1}',
        "cost": "must be a number of at least 0, got NaN",
    }


def test_an_error_is_recorded_with_what_its_kind_does_not_imply(tmp_path: Path) -> None:
    """Defaults of the kind are left out, and so are values that cannot be written."""
    usual = ProviderError("malformed_reply", "no JSON")
    unusual = ProviderError(
        "bad_request", "again", fault=Fault.TRANSIENT, retries=2, tokens=5, money=0.5
    )
    odd = ProviderError("server", "down", status="500", retry_after=math.inf)  # type: ignore[arg-type]
    assert [line["error"] for line in recorded(tmp_path, usual, unusual, odd)] == [
        {"kind": "malformed_reply", "message": "no JSON"},
        {
            "kind": "bad_request",
            "message": "again",
            "fault": "transient",
            "retries": 2,
            "tokens": 5,
            "money": 0.5,
        },
        {"kind": "server", "message": "down"},
    ]


@pytest.mark.parametrize(
    "failure",
    [
        ProviderError("server", "down", finish_reason=7),  # type: ignore[arg-type]
        ProviderError("server", "down", usage=Usage(prompt=1.5)),  # type: ignore[arg-type]
    ],
)
def test_invalid_facts_about_a_failure_are_left_out(tmp_path: Path, failure: ProviderError) -> None:
    """The file can still be read."""
    (line,) = recorded(tmp_path, failure)
    assert line["error"] == {"kind": "server", "message": "down"}
    assert not line.keys() & {"usage", "finish_reason"}
    with pytest.raises(ProviderError, match="down"):
        replay(tmp_path)


def test_a_closed_recorder_stores_the_error_instead_of_raising(tmp_path: Path) -> None:
    """A late reply is still returned."""
    with Recorder.create(tmp_path / "r.jsonl") as recorder:
        pass
    recorder.write("mine", Request(prompt="a"), Reply(output="x"), 0.1)
    assert isinstance(recorder.error, OutputError)
    assert str(recorder.error).endswith("r.jsonl: I/O operation on closed file.")


async def answers(prepared: PreparedSuite, recorder: Recorder | None = None) -> list[Any]:
    rows: list[Any] = []

    async def keep(row: Any) -> None:  # noqa: ASYNC124 - lists do not wait
        rows.append((row.output, row.status, row.error, row.calls))

    await run_with_options(prepared, RunOptions(emit=keep, recorder=recorder))
    return rows


def suite_of(**more: Any) -> Suite:
    return parse_suite({"providers": ["mine"], "prompts": ["same"], **more})


def rerun(folder: Path, suite: Suite, mine: Any) -> tuple[list[Any], list[Any]]:
    """Return the rows of a run, and those of its replay."""

    async def main() -> tuple[list[Any], list[Any]]:
        with trio.fail_after(60):
            with Recorder.create(folder / "r.jsonl") as recorder:
                own = {} if mine is None else {"mine": mine}
                first = await answers(prepare(suite, providers=own), recorder)
            return first, await answers(prepare(suite, replay=folder / "r.jsonl"))

    return trio.run(main)


def test_tests_with_equal_prompts_keep_their_own_replies(tmp_path: Path) -> None:
    """This also holds if the second call was answered first."""
    second_is_done = trio.Event()

    async def mine(request: Request) -> str:
        if request.vars["k"] == "1":
            await second_is_done.wait()
        else:
            second_is_done.set()
        return f"answer for {request.vars['k']}"

    first, again = rerun(
        tmp_path, suite_of(tests=[{"vars": {"k": "1"}}, {"vars": {"k": "2"}}]), mine
    )
    assert [row[0] for row in first] == ["answer for 1", "answer for 2"]
    assert again == first


def test_a_retryable_refusal_is_retried_in_the_replay(tmp_path: Path) -> None:
    """The fault for the lane is recorded."""
    failures = [ProviderError("bad_request", "again", fault=Fault.TRANSIENT, retry_after=0.001)]

    async def mine(_request: Request) -> str:  # noqa: ASYNC124 - nothing to wait for
        if failures:
            raise failures.pop()
        return "fine"

    first, again = rerun(tmp_path, suite_of(), mine)
    assert first[0][0] == "fine"
    assert again == first


def test_retries_in_a_config_apply_to_the_replay(tmp_path: Path) -> None:
    """Other keys of the config only concern the recorded provider."""

    async def mine(_request: Request) -> str:  # noqa: ASYNC124 - nothing to wait for
        raise ProviderError("server", "down", retry_after=0.001)

    entry = {"id": "mine", "config": {"maxRetries": 1}}
    first, again = rerun(tmp_path, suite_of(providers=[entry]), mine)
    assert first[0][3] == 2
    assert again == first


def write_for_entries(file: Path) -> None:
    with Recorder.create(file) as recorder:
        for position, answer in ((1, "of the second"), (0, "of the first")):
            recorder.write(
                "mine", Request(prompt="same"), Reply(output=answer), 0.1, position=position
            )


def ask_all(prepared: PreparedSuite) -> list[Any]:
    async def ask(provider: OpenProvider) -> Any:
        return (await provider(Request(prompt="same"))).output

    async def main() -> list[Any]:
        async with open_providers(prepared.specs, Templates()) as opened:
            return [await ask(provider) for provider in opened]

    return trio.run(main)


def test_two_entries_of_one_name_keep_their_own_replies(tmp_path: Path) -> None:
    """The index distinguishes entries with equal names."""
    write_for_entries(tmp_path / "r.jsonl")
    suite = suite_of(providers=["mine", {"id": "mine"}])
    found = ask_all(prepare(suite, replay=tmp_path / "r.jsonl"))
    assert found == ["of the first", "of the second"]


def test_a_run_records_which_of_its_entries_replied(tmp_path: Path) -> None:
    """Two entries have one id, and the second is faster."""
    entries = [
        {"id": "sim:x", "config": {"latencyMs": 5, "answer": "A"}, "lane": {"key": "a"}},
        {"id": "sim:x", "config": {"latencyMs": 0, "answer": "B"}, "lane": {"key": "b"}},
    ]
    first, again = rerun(tmp_path, suite_of(providers=entries), None)
    assert [row[0] for row in first] == ["A", "B"]
    assert again == first


def test_a_file_is_read_once_for_all_entries(tmp_path: Path) -> None:
    """The settings share the recordings, and its problems are reported once."""
    write_for_entries(tmp_path / "r.jsonl")
    suite = suite_of(providers=["mine", "mine", "other"])
    settings: list[Any] = [
        spec.settings for spec in prepare(suite, replay=tmp_path / "r.jsonl").specs
    ]
    assert all(one.recordings is settings[0].recordings for one in settings)
    (tmp_path / "r.jsonl").write_text("nonsense\n")
    with pytest.raises(SuiteError) as caught:
        prepare(suite, replay=tmp_path / "r.jsonl")
    assert len(caught.value.problems) == 1


def test_a_name_with_a_hidden_secret_is_found_again(tmp_path: Path) -> None:
    """The suite still has the secret, the recording does not; output about the replay does not either."""
    with Recorder.create(tmp_path / "r.jsonl") as recorder:
        recorder.write("http://a/?key=[hidden]&b", Request(prompt="same"), Reply(output="x"), 0.1)
    entry = {"id": "http://a/?key=SECRETLIT99&b"}
    assert ask_all(prepare(suite_of(providers=[entry]), replay=tmp_path / "r.jsonl")) == ["x"]
    shown = prepare(suite_of(providers=[entry]), replay=tmp_path / "r.jsonl")
    assert shown.suite.providers[0].id == "http://a/?key=[hidden]&b"
    assert "SECRETLIT99" not in shown.lane_names[0]
    with pytest.raises(ProviderError, match="replay_miss"):
        ask_all(prepare(suite_of(providers=["other"]), replay=tmp_path / "r.jsonl"))


def test_a_recording_has_its_line_number() -> None:
    """Messages can name the line; empty lines count."""
    line = b'{"prompt": "a", "output": "b"}'
    found = parse_file(line + b"\n\n" + line, "f").recordings
    assert [one.line for one in found] == [1, 3]
    assert found[0] == found[1] == Recording(prompt="a", output="b")
