"""Shared limits in a suite file: their backend, and the limits that the calls of a lane count against."""

import json
from pathlib import Path
from typing import Any

import pytest

from trioeval.errors import SuiteError
from trioeval.limits import SharedLimit
from trioeval.limits.model import LimitKey
from trioeval.limits.wire import BATCH
from trioeval.loading.load import load_suite, parse_suite
from trioeval.suite.limit_form import MOST_IN_BATCH, unit_of
from trioeval.suite.model import BatchSettings, LaneSettings, LimitsSettings, Suite

RPM = {"key": "m:rpm", "kind": "rolling", "capacity": 60, "windowSeconds": 60}
HOLDS = {"key": "m:concurrency", "kind": "concurrency", "capacity": 4, "timeout_seconds": 3}
REDIS = {"backend": "redis", "url": "redis://localhost:6379/0"}


def parsed(limits: Any, directory: Path | None = None, **more: Any) -> Suite:
    document = {"providers": ["echo"], "limits": limits, **more}
    return parse_suite(document, directory=directory, strict=True)


def problems_of(limits: Any, directory: Path | None = None, **more: Any) -> list[str]:
    with pytest.raises(SuiteError) as caught:
        parsed(limits, directory, **more)
    return [str(problem).partition("\n")[0] for problem in caught.value.problems]


def lane_of(*keys: Any) -> LaneSettings:
    lane = parsed(REDIS, providers=[{"id": "echo", "lane": {"limits": list(keys)}}])
    settings = lane.providers[0].lane
    assert isinstance(settings, LaneSettings)
    return settings


def test_a_suite_configures_the_backend_of_limits() -> None:
    """Either spelling is accepted; other keys have defaults."""
    assert parsed({"define": [RPM, HOLDS]}).limits == LimitsSettings(
        define=(
            SharedLimit(key="m:rpm", kind="rolling", capacity=60, window=60),
            SharedLimit(key="m:concurrency", kind="concurrency", capacity=4, timeout=3),
        )
    )
    found = parsed(
        {
            **REDIS,
            "namespace": "team",
            "unreachable": "open",
            "patienceMs": 1000,
            "request_timeout_ms": 500,
            "batch": {"size": 64, "flushMs": 5},
            "maxOutputTokens": 100,
            "workers": 8,
        }
    ).limits
    assert found == LimitsSettings(
        backend="redis",
        url="redis://localhost:6379/0",
        namespace="team",
        unreachable="open",
        patience_ms=1000,
        request_timeout_ms=500,
        batch=BatchSettings(size=64, flush_ms=5),
        max_output_tokens=100,
        workers=8,
    )
    assert "localhost" not in repr(found)
    assert parsed(None).limits is None


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ({}, ": limits in memory must be defined"),
        ({"backend": "memory", "define": None}, ": limits in memory must be defined"),
        (
            {"define": [], "file": "limits.json"},
            ".file: define and file exclude each other",
        ),
        ({"define": [], "url": "redis://x"}, ".url: limits in memory have no url"),
        ({"backend": "http"}, ": limits with the backend http need a url"),
        ({"backend": "redis"}, ": limits with the backend redis need a url"),
        ({"backend": "http", "url": "redis://x"}, ".url: must begin with http:// or https://"),
        (
            {"backend": "redis", "url": "localhost:6379"},
            ".url: must begin with redis:// or rediss:// or unix://",
        ),
        (
            {"backend": "embedded", "define": []},
            '.backend: must be memory, redis or http, got the text "embedded"',
        ),
        ({**REDIS, "batch": {"size": 0}}, ".batch.size: must be at least 1, got 0"),
        ({**REDIS, "batch": {"size": 257}}, ".batch.size: must be at most 256, got 257"),
        ({**REDIS, "batch": {"flushMs": 0.5}}, ".batch.flushMs: must be at least 1, got 0.5"),
        ({**REDIS, "patienceMs": 0}, ".patienceMs: must be at least 1, got 0"),
        ({**REDIS, "requestTimeoutMs": -1}, ".requestTimeoutMs: must be at least 1, got -1"),
        ({**REDIS, "maxOutputTokens": 0}, ".maxOutputTokens: must be at least 1, got 0"),
        ({**REDIS, "workers": 0}, ".workers: must be at least 1, got 0"),
        ({**REDIS, "mode": "x"}, '.mode: "mode" is not a key here'),
        ({"file": "no.json"}, '.file: file not found: "no.json"'),
        ({"file": 5}, ".file: must be the name of a file, got 5"),
        ({"file": ""}, '.file: must be the name of a file, got the text ""'),
        ([], ": must be an object, got a list"),
    ],
)
def test_qe_20_invalid_limits_are_reported(tmp_path: Path, limits: Any, problem: str) -> None:
    """Each backend has required keys, keys exclude each other; sizes and times are at least one."""
    (tmp_path / "limits.json").write_text("[]")
    assert problems_of(limits, tmp_path) == [f"$.limits{problem}"]


def test_qe_20_all_mistakes_are_reported_together(tmp_path: Path) -> None:
    """A mistake in one key hides neither those of others nor those of their combination."""
    assert problems_of({**REDIS, "batch": {"size": 300, "flushMs": 0}}) == [
        "$.limits.batch.size: must be at most 256, got 300",
        "$.limits.batch.flushMs: must be at least 1, got 0",
    ]
    assert problems_of({"define": [], "file": "no.json"}, tmp_path) == [
        '$.limits.file: file not found: "no.json"',
        "$.limits.file: define and file exclude each other",
    ]
    assert problems_of({"backend": "redis", "workers": 0}) == [
        "$.limits.workers: must be at least 1, got 0",
        "$.limits: limits with the backend redis need a url",
    ]
    assert problems_of({"backend": "http", "url": "redis://[", "patienceMs": 0}) == [
        "$.limits.patienceMs: must be at least 1, got 0",
        "$.limits.url: must begin with http:// or https://",
    ]
    settings = {"patienceMs": 1, "namespace": "x", "request_timeout_ms": 1, "unreachable": "open"}
    assert problems_of({"define": [], "batch": {}, **settings}) == [
        "$.limits.batch: has no effect: limits in memory have no batch",
        "$.limits.namespace: has no effect: limits in memory have no namespace",
        "$.limits.patienceMs: has no effect: limits in memory have no patienceMs",
        "$.limits.request_timeout_ms: has no effect: limits in memory have no requestTimeoutMs",
        "$.limits.unreachable: has no effect: limits in memory have no unreachable",
    ]
    assert problems_of({"backend": "http", "url": "http://h", "namespace": "x"}) == [
        "$.limits.namespace: has no effect: only limits in Redis have a namespace"
    ]
    assert problems_of({"backend": "radis", "url": "x", "workers": 0}) == [
        '$.limits.backend: must be memory, redis or http, got the text "radis"',
        "$.limits.workers: must be at least 1, got 0",
    ]


def test_the_backend_of_limits_may_be_written_in_any_case() -> None:
    """Surrounding spaces are ignored; an unknown backend is shown as it is written."""
    settings = parsed({**REDIS, "backend": " Redis "}).limits
    assert settings is not None
    assert settings.backend == "redis"
    assert problems_of({"backend": "HTTP"}) == ["$.limits: limits with the backend http need a url"]
    wrong = '$.limits.backend: must be memory, redis or http, got the text "Radis "'
    assert problems_of({"backend": "Radis "}) == [wrong]


def test_qe_20_an_empty_list_of_limits_is_valid(tmp_path: Path) -> None:
    """So is an empty file of them."""
    (tmp_path / "limits.json").write_text("[]")
    assert parsed({"define": []}).limits == LimitsSettings(define=())
    file = tmp_path / "limits.json"
    assert parsed({"file": "limits.json"}, tmp_path).limits == LimitsSettings(file=file)


def test_all_mistakes_of_limits_are_reported_with_positions(tmp_path: Path) -> None:
    """Positions are in the suite, or in the file of limits with line and column."""
    wrong = [{**RPM, "capacity": 0}, {**HOLDS, "window_seconds": 1}, RPM, RPM]
    expected = [
        "[0].capacity: 0 is too small",
        "[1].window_seconds: is not allowed for a concurrency limit",
        '[3].key: [2] also has the key "m:rpm"',
    ]
    assert problems_of({"define": wrong}) == [f"$.limits.define{one}" for one in expected]
    text = ",\n ".join(map(json.dumps, wrong))
    (tmp_path / "limits.json").write_text(f"[{text}]")
    top = {"providers": ["echo"], "limits": {"file": "limits.json"}}
    (tmp_path / "s.json").write_text(json.dumps(top))
    with pytest.raises(SuiteError) as caught:
        load_suite(tmp_path / "s.json")
    places = ["1:50: ", "2:105: ", "4:10: "]
    problems = [str(one).partition("\n")[0] for one in caught.value.problems]
    assert problems == [
        f"{tmp_path}/limits.json:{place}${one}" for place, one in zip(places, expected, strict=True)
    ]


def test_a_lane_names_its_limits() -> None:
    """The unit is derived from the end of the key, unless it is given."""
    names = ("m:rpm", "m:tpm", "a:requests", "day_tokens", "m:concurrency", "run:1:cost_micro")
    units = ("requests", "tokens", "requests", "tokens", "slots", "cost_micro")
    assert [key.unit for key in lane_of(*names).limits] == list(units)
    own = lane_of({"key": "mine", "unit": "slots"}, {"key": "m:rpm", "unit": None})
    assert own.limits == (
        LimitKey(key="mine", unit="slots"),
        LimitKey(key="m:rpm", unit="requests"),
    )
    assert unit_of("m:rpms") is None
    assert lane_of().limits == ()


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (["mine"], '[0]: the end of "mine" does not imply a unit'),
        ([{"key": "mine"}], '[0].key: the end of "mine" does not imply a unit'),
        ([{"unit": "tokens"}], '[0]: "key" is missing'),
        ([{"key": 5}], "[0].key: must be text, got 5"),
        ([" "], "[0]: a key must not be blank"),
        ([5], "[0]: must be a key or an object with one, got 5"),
        (["a:rpm", "b:tpm", "a:rpm"], '[2]: duplicate key "a:rpm"'),
        (
            [{"key": "a:rpm", "unit": "money"}],
            '[0].unit: must be requests, tokens, cost_micro or slots, got the text "money"',
        ),
        ([{"key": "a:rpm"}, "a:rpm"], '[1]: duplicate key "a:rpm"'),
        ([f"{n}:rpm" for n in range(33)], ": must be at most 32 limits, got 33"),
        ("a:rpm", ': must be a list of keys, got the text "a:rpm"'),
    ],
)
def test_an_invalid_limit_of_a_lane_is_reported(keys: Any, problem: str) -> None:
    """The position is correct in lanes with and without a name."""
    lane = {"limits": keys}
    assert problems_of(REDIS, lanes={"wide": lane}) == [f"$.lanes.wide.limits{problem}"]
    assert problems_of(REDIS, providers=[{"echo": {"lane": lane}}]) == [
        f"$.providers[0].echo.lane.limits{problem}"
    ]


def test_all_mistakes_of_limits_of_a_lane_are_reported() -> None:
    """Duplicates are included."""
    keys = ["a:rpm", 5, "a:rpm", {"key": "b", "unit": "x"}]
    unit = 'must be requests, tokens, cost_micro or slots, got the text "x"'
    assert problems_of(REDIS, lanes={"wide": {"limits": keys}}) == [
        "$.lanes.wide.limits[1]: must be a key or an object with one, got 5",
        f"$.lanes.wide.limits[3].unit: {unit}",
        '$.lanes.wide.limits[2]: duplicate key "a:rpm"',
    ]


def test_limits_of_lanes_need_a_backend() -> None:
    """This also holds in a suite with tasks; an empty list needs no `limits`."""
    top: dict[str, Any] = {
        "providers": [{"echo": {"lane": {"limits": ["a:rpm"]}}}, {"id": "echo", "lane": "wide"}],
        "lanes": {"wide": {"limits": ["b:rpm"]}, "other": {"limits": []}},
    }
    expected = [
        "$.providers[0].echo.lane.limits: $.limits is missing",
        "$.lanes.wide.limits: $.limits is missing",
    ]
    assert problems_of(None, **top) == expected
    assert problems_of(None, **top, tasks=[{"type": "prompt_eval"}] * 2) == expected
    assert parsed(REDIS, **top).limits is not None


def test_all_tasks_share_the_limits_of_the_top(tmp_path: Path) -> None:
    """No task has its own limits."""
    question = {"question": "?", "answers": ["a"], "correctAnswers": ["a"]}
    (tmp_path / "q.json").write_text(json.dumps({"version": 1, "questions": [question]}))
    tasks = [{"type": "prompt_eval"}, {"type": "question_eval", "questionsFile": "q.json"}]
    suite = parsed(REDIS, tmp_path, tasks=tasks)
    assert suite.limits is not None
    assert [task.suite.limits for task in suite.tasks] == [suite.limits] * 2
    problems = problems_of(REDIS, tmp_path, tasks=[{**task, "limits": REDIS} for task in tasks])
    assert problems == [
        f'$.tasks[{place}].limits: "limits" is not a key here' for place in range(2)
    ]


def test_a_file_of_limits_is_relative_to_its_suite_file(tmp_path: Path) -> None:
    """Its path is relative to the file that names it."""
    below = tmp_path / "below"
    below.mkdir()
    (below / "limits.json").write_text(json.dumps([RPM]))
    (below / "more.json").write_text(json.dumps({"limits": {"file": "limits.json"}}))
    (tmp_path / "s.json").write_text(json.dumps({"providers": ["echo"]}))
    limits = load_suite(tmp_path / "s.json", below / "more.json").limits
    assert limits is not None
    assert limits.file == below / "limits.json"


def test_the_maximum_of_leases_per_request_is_that_of_servers() -> None:
    """Both constants are equal."""
    assert MOST_IN_BATCH == BATCH


def warned(*, limits: Any = None, **more: Any) -> list[tuple[str, str | None]]:
    suite = parsed({"define": [RPM, HOLDS]} if limits is None else limits, **more)
    return [(f"{one.path}: {one.message}", one.hint) for one in suite.warnings]


def idle(key: str, place: int) -> tuple[str, str | None]:
    """Return the warning about a limit that no lane counts against."""
    message = f'$.limits.define[{place}]: no lane counts against "{key}": it has no effect'
    return message, f'write limits: ["{key}"] in a lane'


def test_a_limit_without_a_lane_causes_a_warning(tmp_path: Path) -> None:
    """In memory each is reported; in shared backends only that the suite uses none."""
    assert warned() == [idle("m:rpm", 0), idle("m:concurrency", 1)]
    both = {"id": "echo", "lane": {"limits": ["m:rpm", "m:concurrency"]}}
    assert warned(providers=[both]) == []
    entry = {"type": "prompt_eval", "prompts": ["a"], "providers": [both]}
    assert warned(tasks=[entry, {**entry, "providers": ["echo"]}]) == []
    unused = "$.limits: no lane counts against a limit: the backend is never called, and no limit is created"
    of_workers = "$.limits: no lane counts against a limit: without --on the backend is never called"
    assert warned(limits={**REDIS, "define": [RPM]}) == [
        (of_workers, "write limits, with keys of limits, in a lane")
    ]
    (tmp_path / "limits.json").write_text(json.dumps([RPM, HOLDS]))
    file = {"file": "limits.json"}
    assert [message for message, _ in warned(limits=file, directory=tmp_path)] == [unused]
    other = {"id": "echo", "lane": {"limits": ["m:rpm"]}}
    assert warned(limits=file, directory=tmp_path, providers=[other]) == []
    assert warned(limits={"define": [], "workers": 3}) == []


def test_unusual_units_of_task_lanes_are_reported_once_each() -> None:
    """Warnings at the top have positions at the top, those of a task in the task."""

    def counting(unit: str) -> dict[str, Any]:
        return {"id": "echo", "lane": {"limits": [{"key": "m:concurrency", "unit": unit}]}}

    task = {"type": "prompt_eval", "prompts": ["a"]}
    found = warned(
        limits={"define": [HOLDS]},
        providers=[counting("tokens")],
        tasks=[task, task, {**task, "providers": [{**counting("cost_micro"), "label": "own"}]}],
    )
    assert [message.partition(": ")[0] for message, _ in found] == [
        "$.providers[0].lane.limits[0]",
        "$.tasks[2].providers[0].lane.limits[0]",
    ]


@pytest.mark.parametrize(
    ("limit", "unit", "warning"),
    [
        (HOLDS, "slots", None),
        (HOLDS, "requests", None),
        (
            HOLDS,
            "tokens",
            "limits concurrent calls: each takes 1 slot, not its tokens",
        ),
        (RPM, "slots", "is a rolling limit without slots: each call takes 1 unit"),
        (RPM, "tokens", None),
        ({**RPM, "unit": "calls"}, "tokens", None),
        ({**RPM, "unit": "requests"}, "slots", "is a rolling limit without slots"),
        ({**RPM, "unit": "tokens"}, "tokens", None),
        ({**RPM, "unit": "tokens"}, "requests", "whose unit is tokens"),
    ],
)
def test_a_unit_other_than_that_of_its_limit_causes_a_warning(
    limit: dict[str, Any], unit: str, warning: str | None
) -> None:
    """This also holds for a derived unit; otherwise the wrong quantity would be limited."""
    use = {"key": limit["key"], "unit": unit}
    found = warned(limits={"define": [limit]}, lanes={"l": {"limits": [use]}})
    assert len(found) == (warning is not None)
    for message, hint in found:
        assert message.startswith("$.lanes.l.limits[0]: ")
        assert str(warning) in message
        assert str(hint).startswith(f'write {{"key": "{limit["key"]}", "unit": "')
    remote = warned(limits={**REDIS, "define": [limit]}, lanes={"l": {"limits": [use]}})
    assert remote == found


def missing(key: str, at: str) -> str:
    return f'{at}: unknown limit "{key}": all calls of the lane will fail'


def test_an_unknown_limit_in_memory_causes_a_warning() -> None:
    """The position is correct in every notation, with a suggestion."""
    assert warned(
        providers=[
            {"id": "echo", "lane": {"limits": ["m:rpm", "m:rmp:rpm", {"key": "n:concurrency"}]}},
            {"echo": {"label": "other", "lane": "slow"}},
        ],
        lanes={"slow": {"limits": ["m:concurency:rpm"]}},
    ) == [
        (missing("m:rmp:rpm", "$.providers[0].lane.limits[1]"), 'did you mean "m:rpm"?'),
        (
            missing("n:concurrency", "$.providers[0].lane.limits[2].key"),
            'did you mean "m:concurrency"?',
        ),
        (missing("m:concurency:rpm", "$.lanes.slow.limits[0]"), 'did you mean "m:concurrency"?'),
        idle("m:concurrency", 1),
    ]
    assert warned(
        limits={"define": []}, providers=[{"id": "echo", "lane": {"limits": ["m:rpm"]}}]
    ) == [(missing("m:rpm", "$.providers[0].lane.limits[0]"), "there are none")]


def test_unknown_limits_in_a_shared_backend_cause_no_warning() -> None:
    """They may be created at any time, by any program."""
    lane = {"id": "echo", "lane": {"limits": ["x:rpm"]}}
    assert warned(limits=REDIS, providers=[lane]) == []
    assert warned(limits={**REDIS, "define": [RPM]}, providers=[lane]) == []


def test_limits_of_a_file_and_lanes_of_files_are_checked(tmp_path: Path) -> None:
    """A limit in the file is known; a lane in a file is reported where the file is named."""
    (tmp_path / "limits.json").write_text(json.dumps([RPM]))
    (tmp_path / "p.json").write_text(
        json.dumps([{"id": "echo", "lane": {"limits": ["m:rpm", "n:rpm"]}}])
    )
    assert warned(
        limits={"file": "limits.json"}, directory=tmp_path, providers="file://p.json"
    ) == [(missing("n:rpm", "$.providers"), 'did you mean "m:rpm"?')]


def test_settings_that_tasks_inherit_cause_one_warning(tmp_path: Path) -> None:
    """Warnings of a task itself are at its entry, with the line."""
    file = tmp_path / "suite.yaml"
    file.write_text(
        """\
limits: {define: [{key: "m:rpm", kind: rolling, capacity: 1, windowSeconds: 1}]}
lanes:
  slow: {limits: ["n:rpm"]}
providers: [{id: echo, lane: slow}]
tasks:
  - {type: prompt_eval, prompts: [a]}
  - type: prompt_eval
    prompts: [b]
    providers:
      - id: echo
        lane: {limits: ["o:rpm"]}
"""
    )
    found = [(one.path, one.line, one.column) for one in load_suite(file).warnings]
    assert found == [
        ("$.lanes.slow.limits[0]", 3, 19),
        ("$.tasks[1].providers[0].lane.limits[0]", 11, 25),
        ("$.limits.define[0]", 1, 19),
    ]


def test_unusual_options_of_a_task_are_reported_in_the_task() -> None:
    """They have positions, as all problems of the task."""
    task = {"type": "prompt_eval", "prompts": ["a"], "evaluateOptions": {"silent": True}}
    suite = parse_suite({"providers": ["echo"], "tasks": [task]})
    assert [one.path for one in suite.warnings] == ["$.tasks[0].evaluateOptions.silent"]
