import json
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from trioeval.errors import Problem, ProviderError
from trioeval.providers import Reply, Request, Usage
from trioeval.providers.config import EntryContext
from trioeval.providers.local.replay import ReplayProvider, ReplaySettings, read
from trioeval.templates import Templates

RECORDED = [
    {"prompt": "a", "output": "first", "latency_ms": 300, "usage": {"total": 3}, "model": "m"},
    {"prompt": "a", "output": "second", "finish_reason": "length"},
    {"prompt": "b", "error": {"kind": "rate_limited", "message": "slow down"}},
]


def write(directory: Path, *objects: Any) -> None:
    text = "\n".join(json.dumps(item) for item in objects or RECORDED)
    (directory / "replies.jsonl").write_text(text, encoding="utf-8")


def read_replay(
    file: str, config: dict[str, Any], directory: Path
) -> ReplaySettings | list[Problem]:
    context = EntryContext(environ={}, directory=directory, templates=Templates())
    return read("replay", file, config, context)


def opened(directory: Path, **config: Any) -> ReplayProvider:
    found = read_replay("replies.jsonl", config, directory)
    assert isinstance(found, ReplaySettings), found
    return ReplayProvider(found)


def ask(provider: ReplayProvider, *prompts: str) -> list[Reply]:
    async def main() -> list[Reply]:
        return [await provider(Request(prompt=prompt)) for prompt in prompts]

    return trio.run(main)


def test_recorded_replies_come_in_order(tmp_path: Path) -> None:
    """Every recorded part of a reply is returned."""
    write(tmp_path)
    assert ask(opened(tmp_path), "a", "a", "a") == [
        Reply(output="first", usage=Usage(total=3), metadata={"model": "m"}),
        Reply(output="second", finish_reason="length"),
        Reply(output="second", finish_reason="length"),
    ]


def test_a_provider_starts_from_the_first_recording(tmp_path: Path) -> None:
    """Two providers opened from the same settings do not share a position."""
    write(tmp_path)
    first = opened(tmp_path)
    ask(first, "a")
    assert ask(ReplayProvider(first.settings), "a")[0].output == "first"


def test_recorded_errors_are_raised(tmp_path: Path) -> None:
    """A recorded failure is raised again unchanged."""
    write(tmp_path)
    with pytest.raises(ProviderError) as caught:
        ask(opened(tmp_path), "b")
    assert str(caught.value) == "rate_limited: slow down"


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({}, 'no recording of the prompt "c" in replies.jsonl (3 recorded)'),
        (
            {"model": "n"},
            'no recording for model n of the prompt "c" in replies.jsonl (3 recorded)',
        ),
    ],
)
def test_a_miss_names_the_prompt(tmp_path: Path, config: dict[str, Any], text: str) -> None:
    """The error names the prompt, the model and the file."""
    write(tmp_path)
    with pytest.raises(ProviderError) as caught:
        ask(opened(tmp_path, **config), "c")
    assert str(caught.value) == f"replay_miss: {text}"


@pytest.mark.parametrize(
    ("latency", "seconds"), [(None, 0.0), ("none", 0.0), ("real", 0.3), (2, 0.6), (0, 0.0)]
)
def test_latency_is_a_multiple_of_the_recorded_one(
    tmp_path: Path, latency: object, seconds: float
) -> None:
    """A replay can be immediate, true to life, or slower by any factor."""
    write(tmp_path)
    provider = opened(tmp_path, latency=latency)

    async def main() -> float:
        start = trio.current_time()
        await provider(Request(prompt="a"))
        return trio.current_time() - start

    took = trio.run(main, clock=MockClock(autojump_threshold=0))
    assert took == pytest.approx(seconds)


def test_all_problems_of_config_and_file_are_reported(tmp_path: Path) -> None:
    """Wrong keys, values and lines are found in one reading."""
    write(tmp_path, {"prompt": "a"})
    assert read_replay("replies.jsonl", {"latency": "fast", "sped": 1}, tmp_path) == [
        Problem(".config.latency", 'must be "real", "none" or a factor of at least 0, got "fast"'),
        Problem(".config.sped", '"sped" is not a key'),
        Problem(
            ".id",
            "a recording must have either an output or an error",
            file="replies.jsonl",
            line=1,
        ),
    ]


@pytest.mark.parametrize(
    ("file", "problem"),
    [
        ("", Problem(".id", '"replay:" has no file', "write replay:<file.jsonl>")),
        (
            "gone.jsonl",
            Problem(".id", 'cannot read the recordings "gone.jsonl": No such file or directory'),
        ),
        ("a\0b", Problem(".id", '"a\\u0000b" is not a valid path: embedded null byte')),
    ],
)
def test_a_file_that_cannot_be_read_is_a_problem(
    tmp_path: Path, file: str, problem: Problem
) -> None:
    """The file is read when the suite is loaded, not at the first call."""
    assert read_replay(file, {}, tmp_path) == [problem]
