"""Changes of extensions before a run: they are made once, and workers get them."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from trioeval.errors import UsageError
from trioeval.loading.load import load_suite
from trioeval.run import prepare
from trioeval.scaleout.before_all import suite_changes, with_changes
from trioeval.scaleout.facts import refusals, suite_digest
from trioeval.scaleout.private_files import Location
from trioeval.scaleout.run_keys import RunKeys
from trioeval.scaleout.sent_keys import check_sent
from trioeval.scaleout.workers import SourceLoader

API_KEY = "sk-scaleout-0123456789abcdef"
HOOKS = """
def beforeAll(context, _hook):
    with open("events.txt", "a") as file:
        file.write("x")
    suite = context["suite"]
    suite["tests"] = [*suite["tests"], {"vars": {"word": "added"}, ADDED}]
    return {"suite": suite}
"""
BASE: dict[str, Any] = {
    "providers": ["echo"],
    "prompts": ["say {{word}}"],
    "tests": [{"vars": {"word": "first"}}],
}
EXTENSIONS = {"extensions": ["file://hooks.py:beforeAll"]}


def written(folder: Path, suite: dict[str, Any], added: str = "") -> Path:
    (folder / "hooks.py").write_text(HOOKS.replace("ADDED", added))
    path = folder / "suite.json"
    path.write_text(json.dumps(suite | EXTENSIONS))
    return path


@pytest.mark.parametrize("has_tasks", [False, True])
def test_a_worker_has_the_changed_suite_without_calling_the_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_tasks: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    tasks = [{"id": name, "type": "prompt_eval", **BASE} for name in ("a", "b")]
    path = written(tmp_path, {"tasks": tasks} if has_tasks else BASE)
    prepared = prepare(path)
    calls = Path("events.txt").read_text()
    assert len(calls) == 1 + has_tasks
    changes = pickle.loads(pickle.dumps(suite_changes(prepared)))  # noqa: S301 - its own bytes
    sent = prepare(with_changes(load_suite(path), changes))
    assert Path("events.txt").read_text() == calls
    assert suite_digest(sent) == suite_digest(prepared)
    assert [len(part.prepared.steps) for part in sent.parts] == [2] * (1 + has_tasks)
    assert not [*refusals(prepared)]


JUDGE = (
    """{"id": "openai:chat:m", "config": {"apiBaseUrl": "http://127.0.0.1:9", "apiKey": "KEY"}}"""
)


@pytest.mark.parametrize(
    ("added", "place"),
    [
        ('"provider": JUDGE', "provider.config.apiKey"),
        (
            '"assert": [{"type": "llm-rubric", "value": "x", "provider": JUDGE}]',
            "assert[0].provider.config.apiKey",
        ),
        (
            '"assert": [{"type": "llm-rubric", "value": "x"}], "options": {"provider": JUDGE}',
            "options.provider.config.apiKey",
        ),
        ('"metadata": {"note": "uses KEY"}, "provider": JUDGE', "metadata.note"),
    ],
)
def test_a_change_with_a_provider_is_sent_unless_it_contains_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, added: str, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("A_KEY", API_KEY)

    def refusal(key: str) -> str:
        path = written(tmp_path, BASE, added.replace("JUDGE", JUDGE).replace("KEY", key))
        prepared = prepare(path)
        assert not [*refusals(prepared)]
        loader = SourceLoader(path).for_workers(prepared)
        sent = pickle.loads(pickle.dumps(loader))  # noqa: S301 - its own bytes
        assert suite_digest(sent(Location())) == suite_digest(prepared)
        try:
            check_sent((loader,), RunKeys.of(prepared))
        except UsageError as error:
            return str(error)
        return ""

    assert f"\n  $.tests[1].{place}, as changed by beforeAll\n" in refusal(API_KEY)
    if "note" not in place:
        assert not refusal("{{env.A_KEY}}")


def test_changes_that_come_late_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    later = {**BASE, "id": "b", "type": "prompt_eval", "tests": {"fromTask": "a"}}
    tasks = [{"id": "a", "type": "prompt_eval", **BASE}, later]
    (found,) = refusals(prepare(written(tmp_path, {"tasks": tasks})))
    assert found == "extensions with tests from the rows of another task of task b"
