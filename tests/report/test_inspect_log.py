"""Logs for Inspect AI: the contents of the files. `inspect_package.py` reads them with its own package."""

import json
import tracemalloc
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
from finished import results_of

import trioeval
from trioeval.columns.result import DatasetResult
from trioeval.errors import OutputError
from trioeval.report.files import write_results
from trioeval.report.formats.inspect_log import logs_of
from trioeval.report.results import Results
from trioeval.report.strip import Strip

CHAT = json.dumps([{"role": "system", "content": "be"}, {"role": "user", "content": "{{word}}"}])
SUITE: Mapping[str, Any] = {
    "description": "words",
    "providers": [{"id": "mine", "label": "my model"}],
    "prompts": [CHAT],
    "evaluateOptions": {"repeat": 2},
    "tests": [
        {"vars": {"word": "a"}, "assert": [{"type": "contains", "value": "a", "metric": "has"}]},
        {"vars": {"word": "down"}, "assert": [{"type": "equals", "value": "x"}]},
        {
            "description": "third",
            "vars": {"word": "b"},
            "assert": [{"type": "equals", "value": "x"}],
        },
        {"vars": {"word": "a"}, "assert": [{"type": "contains-any", "value": ["a", "z"]}]},
    ],
}


async def mine(request: trioeval.Request) -> trioeval.Reply:
    if "down" in request.prompt:
        raise trioeval.ProviderError("server", "it is down")
    usage = trioeval.Usage(prompt=9, completion=3, total=12, cached=4, reasoning=1)
    return trioeval.Reply(output="a", usage=usage, cost=0.25, finish_reason="length")


def written(path: Path, results: Results) -> dict[str, Any]:
    """Return the files of a log by name."""
    write_results(path, [results])
    with zipfile.ZipFile(path) as log:
        assert log.testzip() is None
        return {name: json.loads(log.read(name)) for name in log.namelist()}


def test_a_log_contains_the_results_of_the_rows(tmp_path: Path) -> None:
    """Repeats are epochs, equal tests are separate samples, an error has no score."""
    found = written(tmp_path / "run.eval", results_of(SUITE, mine))
    assert sorted(found) == [
        "header.json",
        "reductions.json",
        *(f"samples/{test}_epoch_{epoch}.json" for test in (0, 2, 4, 6) for epoch in (1, 2)),
        "summaries.json",
    ]
    sample = found["samples/0_epoch_2.json"]
    assert (sample["target"], sample["metadata"]["vars"]) == ("a", {"word": "a"})
    assert sample["input"] == json.loads(CHAT.replace("{{word}}", "a"))
    assert [message["role"] for message in sample["messages"]] == ["system", "user", "assistant"]
    used = {
        "input_tokens": 5,
        "output_tokens": 3,
        "total_tokens": 12,
        "input_tokens_cache_read": 4,
        "reasoning_tokens": 1,
        "total_cost": 0.25,
    }
    assert sample["model_usage"] == {"mine": used}
    assert sample["output"]["usage"] == used
    assert sample["output"]["choices"][0]["stop_reason"] == "max_tokens"
    assert {name: score["value"] for name, score in sample["scores"].items()} == {
        "verdict": "C",
        "score": 1.0,
        "metric:has": 1.0,
    }
    failed, lost = found["samples/4_epoch_1.json"], found["samples/2_epoch_1.json"]
    assert failed["description"] == "third"
    assert failed["scores"]["verdict"]["value"] == "I"
    assert "does not equal" in failed["scores"]["verdict"]["explanation"]
    assert (failed["scores"]["verdict"]["answer"], failed["error"]) == ("a", None)
    assert lost["scores"] is None
    assert "it is down" in lost["error"]["message"]
    assert found["samples/6_epoch_1.json"]["target"] == ["a", "z"]
    header = found["header.json"]
    assert (header["status"], header["eval"]["model"]) == ("success", "mine")
    assert header["eval"]["task"] == "words"
    assert header["eval"]["config"]["epochs"] == 2
    assert header["eval"]["dataset"]["sample_ids"] == [0, 2, 4, 6]
    results = header["results"]
    assert (results["total_samples"], results["completed_samples"]) == (8, 6)
    verdict, score, has = results["scores"]
    assert verdict["metrics"]["accuracy"]["value"] == pytest.approx(2 / 3)
    assert verdict["metrics"]["stderr"]["value"] == pytest.approx(1 / 3)
    assert (verdict["scored_samples"], verdict["unscored_samples"]) == (6, 2)
    assert score["metrics"]["mean"]["value"] == pytest.approx(2 / 3)
    assert (has["scored_samples"], has["unscored_samples"]) == (2, 6)
    assert header["stats"]["model_usage"]["mine"]["total_tokens"] == 72
    assert header["stats"]["model_usage"]["mine"]["total_cost"] == 1.5
    assert header["stats"]["started_at"] == "2026-01-01T00:00:00+00:00"
    assert header["stats"]["completed_at"] == "2026-01-01T00:00:01.000+00:00"
    reduced = {one["scorer"]: one["samples"] for one in found["reductions.json"]}
    assert reduced["verdict"] == [
        {"sample_id": sample, "value": value} for sample, value in ((0, 1.0), (4, 0.0), (6, 1.0))
    ]
    summaries = {(one["id"], one["epoch"]): one for one in found["summaries.json"]}
    assert len(summaries) == 8
    assert summaries[2, 1]["error"] == lost["error"]["message"]
    assert summaries[0, 1]["message_count"] == 3


def test_each_column_has_its_own_log(tmp_path: Path) -> None:
    """A single log has the requested path; several have safe names next to it."""
    one, two = results_of(SUITE, mine), results_of()
    assert list(logs_of(tmp_path / "r.eval", [one])) == [tmp_path / "r.eval"]
    data = attrs.evolve(one, dataset=DatasetResult(task="d", requested=1, written=1))
    paths = write_results(tmp_path / "r.eval", [one, data, two])
    names = ["r-1-my-model.eval", "r-2-mine.eval", "r-3-back.eval"]
    assert [path.name for path in paths] == names
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with pytest.raises(OutputError, match=r".*x\.eval: no task has rows"):
        write_results(tmp_path / "x.eval", [data])


def test_a_row_that_never_started_is_not_a_sample(tmp_path: Path) -> None:
    """The log is marked as cancelled."""
    whole = results_of(SUITE, mine)

    def cut(column: int | None) -> Iterator[Mapping[str, Any]]:
        for record in whole.records(column):
            if record["testIdx"] > 5:
                own = {**record["metadata"]["trioeval"], "outcome": "not_run"}
                yield {**record, "metadata": {"trioeval": own}, "failureReason": 2}
            else:
                yield record

    found = written(tmp_path / "run.eval", attrs.evolve(whole, records=cut))
    assert found["header.json"]["status"] == "cancelled"
    assert found["header.json"]["eval"]["dataset"]["sample_ids"] == [0, 2, 4]


def test_every_sample_has_a_unique_id(tmp_path: Path) -> None:
    """This includes names that look like numbers, and equal names."""
    whole = results_of({**SUITE, "evaluateOptions": {}}, mine)
    names = {0: "2", 1: "same/one", 3: "same/one"}

    def named(column: int | None) -> Iterator[Mapping[str, Any]]:
        for record in whole.records(column):
            case = names.get(record["testIdx"])
            yield {**record, "testCase": {**record["testCase"], "case": case}}

    found = written(tmp_path / "run.eval", attrs.evolve(whole, records=named))
    ids = ["2", "same_one", "2-2", 3]
    assert found["header.json"]["eval"]["dataset"]["sample_ids"] == ids
    samples = [name for name in found if name.startswith("samples/")]
    assert samples == [f"samples/{one}_epoch_1.json" for one in ids]


def test_stripped_parts_are_not_in_logs(tmp_path: Path) -> None:
    """Stripped prompts, outputs, variables and reasons are not in a log; samples stay separate."""
    strip = Strip(prompt_text=True, response_output=True, test_vars=True, grading_result=True)
    found = written(tmp_path / "run.eval", results_of(SUITE, mine, strip=strip))
    assert len(found["summaries.json"]) == 8
    sample = found["samples/0_epoch_1.json"]
    assert (sample["input"], sample["metadata"]["vars"]) == ("[prompt stripped]", {})
    assert sample["output"]["completion"] == "[output stripped]"


def test_a_log_of_many_rows_is_streamed(tmp_path: Path) -> None:
    """Memory holds the score and the directory entry of each row only."""
    small = results_of({**SUITE, "evaluateOptions": {}}, mine)
    [record, *_] = small.records(0)
    long = {**record, "prompt": {**record["prompt"], "raw": "p" * 5000}}
    count = 500

    def many(_column: int | None) -> Iterator[Mapping[str, Any]]:
        for index in range(count):
            vars_ = {"word": index}
            yield {
                **long,
                "testIdx": index,
                "vars": vars_,
                "testCase": {**record["testCase"], "vars": vars_},
            }

    tracemalloc.start()
    write_results(tmp_path / "run.eval", [attrs.evolve(small, records=many)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000 * count  # of about 17,000 bytes that are written for each row
