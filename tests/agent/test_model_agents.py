"""Models that work in the workspace of a case: conversations with tools, real files, real processes."""

import json
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from journalled import Notes
from processes import alive

from trioeval import Reply, Request
from trioeval.agent.case_folder import CaseFiles
from trioeval.agent.model import AgentSettings
from trioeval.agent.model_agent import ModelAgent
from trioeval.agent.restarts import CONTINUATION, Attempt, AttemptEnd, AttemptFailure
from trioeval.agent.workspace_tools import WorkspaceTools
from trioeval.errors import LaneClosedError, ProviderError, ProviderErrorKind
from trioeval.evaluation.metering import CallMeter
from trioeval.evaluation.provider_calls import ReplySource
from trioeval.kernel import Calls, Done, Failed, Job, Lanes, LaneSpec, Outcome, Plan, collect
from trioeval.providers import OpenProvider, Provider, Usage
from trioeval.providers.local.custom import CustomProvider
from trioeval.providers.resolve import resolve
from trioeval.suite.model import ProviderEntry
from trioeval.templates import Templates

SETTINGS = AgentSettings(max_steps=6)


def chat(name: str, **arguments: Any) -> Any:
    """Return a call in the form of chat completions."""
    function = {"name": name, "arguments": json.dumps(arguments)}
    return [{"id": f"c-{name}", "type": "function", "function": function}]


def anthropic(name: str, **arguments: Any) -> Any:
    return json.dumps({"type": "tool_use", "id": f"t-{name}", "name": name, "input": arguments})


def gemini(name: str, **arguments: Any) -> Any:
    return [{"functionCall": {"name": name, "args": arguments}}]


def result(prompt: str) -> Any:
    """Return the last tool results that the model got, in chat form."""
    return json.loads(prompt)[-1]["content"]


@attrs.define
class Script:
    """A provider that returns scripted replies in order; an exception is raised."""

    says: Sequence[Any]
    requests: list[Request] = attrs.field(factory=list)
    takes: float = 0.0

    async def __call__(self, request: Request) -> Reply:
        self.requests.append(request)
        reply = self.says[len(self.requests) - 1]
        await trio.sleep(self.takes)
        if isinstance(reply, Exception):
            raise reply
        return Reply(output=reply, usage=Usage(total=10), cost=0.5)

    @property
    def results(self) -> list[Any]:
        return [result(request.prompt) for request in self.requests[1:]]


@attrs.define
class Bench:
    """One case and its agent."""

    folder: Path
    settings: AgentSettings = SETTINGS
    environ: Mapping[str, str] = attrs.field(factory=lambda: dict(os.environ))
    posted: list[tuple[str, str]] = attrs.field(factory=list)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    """The messages of the log; a message `cut` cancels the run."""
    config: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def files(self) -> CaseFiles:
        return CaseFiles(self.folder)

    def file(self, name: str) -> Path:
        return self.files.workspace / name

    def outcome(
        self,
        model: Provider,
        *,
        number: int = 0,
        prompt: str = "Repair it.",
        notes: Notes | None = None,
        is_resumed: bool = False,
        attempts: int = 1,
        busy: float = 0.0,
    ) -> Outcome[AttemptEnd] | None:
        """Return the ends of attempts, one after another; None for interrupted ones.

        Args:
            model: The agent.
            number: The number of the first attempt.
            prompt: The prompt of the case.
            notes: The journal, which is written and read again.
            is_resumed: Whether the attempt was interrupted before.
            attempts: The number of attempts.
            busy: The number of seconds for which the lane of the model is busy with other calls first.
        """
        self.files.workspace.mkdir(parents=True, exist_ok=True)
        entry = ProviderEntry(id="model", config=self.config)
        found = resolve(
            "model",
            {},
            environ={},
            directory=self.folder,
            templates=Templates(),
            custom={"model": model},
        )
        asker = ReplySource(
            providers=[OpenProvider(found, 0, CustomProvider("model", model), (), None)],
            entries=[entry],
            lanes=["m"],
            meter=CallMeter([found.metering], ["m"], bounds_only=False),
            row_ids=str,
            journal=notes,
        )

        async def post(kind: str, text: str) -> None:
            self.posted.append((kind, text))
            if text == "cut" and not is_resumed:
                self.scope.cancel()
            await trio.lowlevel.checkpoint()

        async def perform(job: Job[None], calls: Calls[None]) -> AttemptEnd:
            if job.index:
                await calls("m", trio.sleep, busy)
                return AttemptEnd()
            agent = ModelAgent(
                reply_source=asker,
                index=0,
                place=0,
                calls=calls,
                request=Request(prompt="", vars={"name": "calc"}),
                tools=WorkspaceTools(
                    files=self.files, settings=self.settings, environ=self.environ, post=post
                ),
            )
            with calls.waiting():  # like everything there that is not a call
                for place in range(number, number + attempts):
                    attempt = Attempt(
                        number=place, run_id="r", task_prompt=prompt, is_resumed=is_resumed
                    )
                    end = await agent(attempt)
            return end

        async def main() -> Outcome[AttemptEnd] | None:
            self.scope = trio.CancelScope()
            jobs = [Job(0, "cases", None), *([Job(1, "m", None)] if busy else [])]
            lanes = Lanes([LaneSpec("m", max_concurrency=1, max_retries=0), LaneSpec("cases")])
            with trio.fail_after(60), self.scope:
                outcome, *_ = await collect(Plan.of(jobs), perform, lanes=lanes)
                return outcome
            return None

        return trio.run(main)

    def end(self, model: Provider, **how: Any) -> AttemptEnd:
        """Return the end of one attempt."""
        outcome = self.outcome(model, **how)
        assert isinstance(outcome, Done), outcome
        return outcome.value


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path / "case")


@pytest.mark.parametrize("form", [chat, anthropic, gemini])
def test_a_model_repairs_a_file_and_is_done(bench: Bench, form: Callable[..., Any]) -> None:
    """This works in every form in which models call tools; the usage of all replies is added up."""
    bench.files.workspace.mkdir(parents=True)
    bench.file("calc.py").write_text("def add(a, b):\n    return a - b\n")
    model = Script(
        [
            form("list_files"),
            form("read_file", path="calc.py"),
            form("edit_file", path="calc.py", old="a - b", new="a + b"),
            form("write_file", path="notes/what.md", content="plus"),
            form("done", summary="It adds now."),
        ]
    )
    end = bench.end(model)
    assert (end.failure, end.output) == (None, "It adds now.")
    assert bench.file("calc.py").read_text() == "def add(a, b):\n    return a + b\n"
    assert bench.file("notes/what.md").read_text() == "plus"
    assert bench.files.done.read_text() == "It adds now.\n"
    assert (end.usage.total, end.cost) == (50, 2.5)
    assert end.metadata["steps"] == 5
    assert end.metadata["toolCalls"] == {
        "list_files": 1,
        "read_file": 1,
        "edit_file": 1,
        "write_file": 1,
        "done": 1,
    }
    assert "return a - b" in model.requests[2].prompt
    assert model.requests[0].prompt == "Repair it."


def test_agent_tools_follow_the_tools_of_the_provider(bench: Bench) -> None:
    """The command tool is offered only if the suite allows it."""
    own = {"type": "web_search"}
    bench.config = {"tools": [own]}
    model = Script(["Nothing to do."])
    bench.end(model)
    first, *others = model.requests[0].options["tools"]
    assert first == own
    names = [tool["function"]["name"] for tool in others]
    assert names == ["list_files", "read_file", "write_file", "edit_file", "post_message", "done"]
    bench.settings = AgentSettings(allow_commands=True)
    model = Script(["Nothing to do."])
    bench.end(model)
    assert "run_command" in [
        tool.get("function", {}).get("name") for tool in model.requests[0].options["tools"]
    ]


@pytest.mark.parametrize("output", ["I give up.", {"status": "tired"}])
def test_an_attempt_ends_with_a_reply_without_tool_calls(bench: Bench, output: Any) -> None:
    """One reply of any kind is enough.

    The provider gets the path of the workspace, so that it may work there itself.
    """

    async def worker(request: Request) -> Reply:
        assert request.vars["name"] == "calc"
        assert await trio.Path(request.vars["promptFile"]).read_text() == "Repair it."
        await trio.Path(request.vars["workspace"], "x").write_text(str(request.vars["attempt"]))
        await trio.Path(request.vars["done"]).write_text("")
        return Reply(output=output)

    end = bench.end(worker, number=0)
    assert (end.output, end.failure, end.metadata["steps"]) == (output, None, 1)
    assert bench.file("x").read_text() == "0"
    assert bench.files.done.exists()


def test_later_attempts_get_a_note_about_the_earlier_one(bench: Bench) -> None:
    """The note is appended if the prompt is a conversation."""
    model = Script(["a", "b"])
    bench.end(model, number=1)
    assert model.requests[0].prompt == f"{CONTINUATION}\n\nRepair it."
    bench.end(model, number=1, prompt='[{"role": "system", "content": "s"}]')
    assert json.loads(model.requests[1].prompt) == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": CONTINUATION},
    ]


def test_a_conversation_continues_after_the_messages_of_its_prompt(bench: Bench) -> None:
    """The first request is that prompt, and the next ones begin with it."""
    opening = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    model = Script([chat("list_files"), "ok"])
    bench.end(model, prompt=json.dumps(opening))
    assert json.loads(model.requests[0].prompt) == opening
    assert json.loads(model.requests[1].prompt)[:2] == opening


SINGLE = '[{"role": "user", "content": "Fix it."}]'
SHIELDED = json.dumps([{"role": "user", "content": SINGLE}])


@pytest.mark.parametrize(
    ("prompt", "first", "second"),
    [
        (SINGLE, "Fix it.", f"{CONTINUATION}\n\nFix it."),
        ("- role: user\n  content: Fix it.\n", "Fix it.", f"{CONTINUATION}\n\nFix it."),
        (SHIELDED, SHIELDED, f"{CONTINUATION}\n\n{SINGLE}"),
    ],
)
def test_a_prompt_with_one_message_is_sent_as_its_text(
    bench: Bench, prompt: str, first: str, second: str
) -> None:
    """It is sent so also after a note; a text that would be parsed as messages is sent unchanged."""
    model = Script(["ok", "ok"])
    bench.end(model, prompt=prompt, attempts=2)
    assert [request.prompt for request in model.requests] == [first, second]


def test_calls_after_a_successful_done_are_ignored(bench: Bench) -> None:
    """Later calls of the turn are ignored; if `done` failed, they are made."""
    bench.files.workspace.mkdir(parents=True)
    bench.files.done.mkdir()
    both = [*chat("done"), *chat("write_file", path="late", content="x")]
    bench.end(Script([both, "ok"]))
    assert bench.file("late").exists()
    bench.file("late").unlink()
    bench.files.done.rmdir()
    end = bench.end(Script([both]))
    assert (end.failure, end.metadata["toolCalls"]) == (None, {"done": 1})
    assert not bench.file("late").exists()


@pytest.mark.parametrize("put", [os.mkfifo, lambda file: file.symlink_to("../mine")])
def test_special_files_in_place_of_our_files_are_errors_without_blocking(
    bench: Bench, put: Callable[[Path], object]
) -> None:
    """A model that runs commands may have put them there; links are not followed."""
    prompt_file, log = bench.files.attempt_prompt(0), bench.files.logs / "attempt-000.tools.jsonl"
    mine = bench.folder / "mine"

    class Putting(Script):
        async def __call__(self, request: Request) -> Reply:
            if len(self.requests) == 1:
                log.unlink()
                put(log)
            return await super().__call__(request)

    bench.files.logs.mkdir(parents=True)
    mine.write_text("mine")
    for file in (log, log.with_name(f"{log.name}.new")):
        put(file)
    assert bench.end(Script([chat("list_files"), "ok"])).failure is None
    assert log.is_file()
    end = bench.end(Putting([chat("list_files"), chat("list_files"), "ok"]))
    trouble = f"the files of the attempt cannot be written: {log}: "
    assert end.failure is not None
    assert (end.failure.kind, end.failure.message[: len(trouble)]) == ("unexpected", trouble)
    assert end.usage.total == 20
    prompt_file.unlink()
    put(prompt_file)
    end = bench.end(Script([]))
    assert end.failure is not None
    assert end.failure.message.startswith(
        f"the files of the attempt cannot be written: {prompt_file}: "
    )
    assert mine.read_text() == "mine"


def test_an_edit_with_a_result_that_is_too_large_is_rejected_before_it_is_made(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few calls could otherwise create a file that exceeds the memory."""
    monkeypatch.setattr("trioeval.agent.workspace_tools.LARGEST", 100)
    bench.files.workspace.mkdir(parents=True)
    bench.file("x").write_text("é" * 10)
    texts = ("éééééa", "ééééé")
    edits = [chat("edit_file", path="x", old="é", new=text, all=True) for text in texts]
    model = Script([*edits, "ok"])
    bench.end(model)
    assert model.results == [
        '"x" would have 110 bytes; at most 100 are allowed',
        '10 occurrences in "x" replaced',
    ]


def test_an_attempt_fails_after_the_maximum_number_of_steps(bench: Bench) -> None:
    """The tool calls of the last reply are still made."""
    bench.settings = AgentSettings(max_steps=2)
    model = Script([chat("list_files"), chat("write_file", path="x", content="y"), "more"])
    end = bench.end(model)
    message = "reached 2 steps (maxSteps)"
    assert end.failure == AttemptFailure("timeout", message)
    assert len(model.requests) == 2
    assert bench.file("x").exists()


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("read_file", {"path": "/etc/passwd"}, '"/etc/passwd" is absolute'),
        ("read_file", {"path": "../prompt.md"}, '"../prompt.md" leads out of the workspace'),
        ("read_file", {"path": "out"}, '"out" is a link, or beneath one, that leads out'),
        ("read_file", {"path": "none"}, 'file "none" not found'),
        ("read_file", {"path": "pipe"}, '"pipe" is not a file but a pipe or a device'),
        ("read_file", {"path": "bytes"}, '"bytes" is not text; it has 3 bytes'),
        ("list_files", {"path": "up"}, '"up" is a link, or beneath one, that leads out'),
        ("list_files", {"path": "none"}, '"none" cannot be listed: No such file'),
        ("write_file", {"path": "up/x", "content": ""}, '"up/x" is a link, or beneath one'),
        ("write_file", {"path": "out", "content": ""}, '"out" is a link, or beneath one'),
        ("write_file", {"path": "../x", "content": ""}, '"../x" leads out of the workspace'),
        ("write_file", {"path": "pipe", "content": ""}, '"pipe" cannot be written: '),
        ("write_file", {"path": ".", "content": ""}, '"." cannot be written: Is a directory'),
        ("write_file", {"path": "text/x", "content": ""}, '"text/x" cannot be written: '),
        ("edit_file", {"path": "out", "old": "a", "new": "b"}, '"out" is a link, or beneath one'),
        ("edit_file", {"path": "text", "old": "x", "new": "b"}, "the old text does not occur in"),
        ("edit_file", {"path": "text", "old": "", "new": "b"}, "the old text does not occur in"),
        ("edit_file", {"path": "text", "old": "a", "new": "b"}, "the old text occurs 2 times in"),
        ("edit_file", {"path": "latin", "old": "a", "new": "b"}, '"latin" is not UTF-8'),
        ("read_file", {}, "the call of read_file has arguments that do not match: "),
        ("read_file", {"path": "text", "x": 1}, "the call of read_file has arguments"),
        ("run_command", {"command": "true"}, "the call of run_command names an unknown function"),
    ],
)
def test_failed_tool_calls_are_reported_to_the_model(
    bench: Bench, name: str, arguments: dict[str, Any], message: str
) -> None:
    """The model continues; nothing outside of the workspace is read or written."""
    workspace = bench.files.workspace
    workspace.mkdir(parents=True)
    secret = bench.folder / "secret"
    secret.write_text("secret")
    (workspace / "out").symlink_to(secret)
    (workspace / "up").symlink_to(bench.folder)
    (workspace / "text").write_text("a a")
    (workspace / "bytes").write_bytes(b"a\0b")
    (workspace / "latin").write_bytes(b"a\xff")
    os.mkfifo(workspace / "pipe")
    model = Script([chat(name, **arguments), "ok"])
    end = bench.end(model)
    assert end.output == "ok"
    (answer,) = model.results
    assert answer.startswith(message)
    assert secret.read_text() == "secret"
    assert not (bench.folder / "x").exists()


def test_long_files_are_read_in_parts(bench: Bench) -> None:
    """Each part names the start of the next one; a line that is too long is truncated."""
    bench.files.workspace.mkdir(parents=True)
    bench.file("long").write_text("".join(f"{n}\n" for n in range(1, 20_001)))
    bench.file("wide").write_text("x" * 60_000)
    model = Script(
        [
            chat("read_file", path="long"),
            chat("read_file", path="long", offset=19_999),
            chat("read_file", path="long", offset=3, limit=2),
            chat("read_file", path="long", offset=30_000),
            chat("read_file", path="wide"),
            "ok",
        ]
    )
    bench.end(model)
    whole, last, some, beyond, wide = model.results
    *_, before, note = whole.split("\n")
    assert len(whole) < 51_000
    assert note == f"[lines 1 to {before} of 20000; continue with offset {int(before) + 1}]"
    assert last == "19999\n20000\n[lines 19999 to 20000 of 20000]"
    assert some == "3\n4\n[lines 3 to 4 of 20000; continue with offset 5]"
    assert beyond == "[there are 20000 lines]"
    assert wide.endswith("[line 1 has 60,000 characters, and is cut]\n[lines 1 to 1 of 1]")


def test_folders_are_listed_by_name(bench: Bench) -> None:
    """Large folders are listed in parts."""
    bench.file("many").mkdir(parents=True)
    for n in range(501):
        bench.file(f"many/{n:03}").touch()
    bench.file("link").symlink_to("many")
    model = Script(
        [
            chat("list_files"),
            chat("list_files", path="many"),
            chat("list_files", path="many", offset=501),
            "ok",
        ]
    )
    bench.end(model)
    top, first, rest = model.results
    assert top == "link (a link)\nmany/"
    assert first.endswith("\n499\n[entries 1 to 500 of 501; continue with offset 501]")
    assert rest == "500\n[entries 501 to 501 of 501]"


def test_a_text_may_be_replaced_everywhere(bench: Bench) -> None:
    """Line ends are not changed."""
    bench.files.workspace.mkdir(parents=True)
    bench.file("x").write_bytes(b"a\r\na\r\n")
    model = Script([chat("edit_file", path="x", old="a", new="b", all=True), "ok"])
    bench.end(model)
    assert bench.file("x").read_bytes() == b"b\r\nb\r\n"
    assert model.results == ['2 occurrences in "x" replaced']


def test_messages_are_posted_on_the_bus_of_the_case(bench: Bench) -> None:
    """Only known types are accepted."""
    model = Script(
        [chat("post_message", text="hi"), chat("post_message", text="42", type="FACT"), "ok"]
    )
    bench.end(model)
    assert bench.posted == [("INFO", "hi"), ("FACT", "42")]


@pytest.mark.slow  # processes
def test_commands_run_in_the_workspace_and_end(bench: Bench) -> None:
    """They have a time limit and no keys, and no process that they start is left."""
    bench.settings = AgentSettings(allow_commands=True)
    mark = uuid.uuid4().hex
    keys = {"MY_API_KEY": "sk-0123456789", "SESSION_CLASS": "user"}
    bench.environ = {**os.environ, "OUR_MARK": mark, **keys}
    model = Script(
        [
            chat("run_command", command="pwd; echo user key=$MY_API_KEY; exit 3"),
            chat("run_command", command="sleep 60 & sleep 60", timeout=1),
            chat("run_command", command="seq 10000"),
            "ok",
        ]
    )
    bench.end(model)
    first, second, third = model.results
    assert first == f"the command ended with exit code 3\n{bench.files.workspace}\nuser key="
    # A shell that is the last to end may report the others.
    assert second.startswith("the command did not end within 1 seconds, and was killed")
    assert third.startswith("the command ended with exit code 0\n[only the end of its output:]")
    assert third.endswith("\n9999\n10000")
    assert not alive(mark)


@pytest.mark.parametrize(
    ("kind", "failed_as", "is_permanent"),
    [
        ("auth", "auth", True),
        ("permission", "permission", True),
        ("not_found", "not_found", True),
        ("quota_exhausted", "quota_exhausted", True),
        ("bad_request", "invalid", True),
        ("attempt_timeout", "timeout", False),
        ("server", "unexpected", False),
        ("context_window", "unexpected", False),
    ],
)
def test_a_failure_of_the_provider_is_a_failure_of_the_attempt(
    bench: Bench,
    kind: ProviderErrorKind,
    failed_as: str,
    is_permanent: bool,  # noqa: FBT001
) -> None:
    """The usage so far is not lost."""
    model = Script([chat("list_files"), ProviderError(kind, "no")])
    end = bench.end(model)
    assert end.failure is not None
    assert (end.failure.kind, end.failure.message) == (failed_as, f"{kind}: no")
    assert end.failure.is_permanent is is_permanent
    assert (end.cost, end.metadata["steps"]) == (0.5, 1)


def test_a_closed_lane_is_not_a_failure_of_an_attempt(bench: Bench) -> None:
    """The next attempt has no failed predecessor: the run itself cannot continue."""
    bench.settings = AgentSettings(attempt_timeout=30)
    outcome = bench.outcome(Script([ProviderError("auth", "no")] * 20), attempts=20)
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, LaneClosedError)


def test_a_reply_without_output_is_a_failure(bench: Bench) -> None:
    """It was paid for, and is not reused."""
    notes = Notes()
    end = bench.end(Script([None]), notes=notes)
    assert end.failure == AttemptFailure("unexpected", "empty_reply: the reply has no output")
    assert end.cost == 0.5
    assert len(notes.rejected) == 1


def test_an_attempt_that_works_too_long_is_ended(bench: Bench) -> None:
    """It is ended during a reply; the usage of the previous steps counts."""
    bench.settings = AgentSettings(attempt_timeout=3.0)  # the first step takes a part of it
    model = Script([chat("list_files"), "late"], takes=0.0)

    async def slow(request: Request) -> Reply:
        if model.requests:
            await trio.sleep(60)
        return await model(request)

    end = bench.end(slow)
    message = "exceeded 3 seconds of work (attemptTimeout)"
    assert end.failure == AttemptFailure("timeout", message)
    assert (end.cost, end.metadata["steps"]) == (0.5, 1)
    assert 3 <= end.duration_s < 30


def test_waiting_time_does_not_count_as_working_time(bench: Bench) -> None:
    """The attempt waits for a lane that is busy with other calls."""
    bench.settings = AgentSettings(attempt_timeout=4.0)
    end = bench.end(Script(["ok"]), busy=4.5)
    assert (end.failure, end.output) == (None, "ok")
    assert end.duration_s < 4


def test_an_interrupted_attempt_continues_at_its_last_step(bench: Bench) -> None:
    """Recorded replies are reused, and their tools are not run twice."""
    says = [
        chat("write_file", path="x", content="1"),
        [*chat("post_message", text="hi"), *chat("edit_file", path="x", old="1", new="11")],
        chat("post_message", text="cut"),
        chat("read_file", path="x"),
        "ok",
    ]
    notes, first = Notes(), Script(says)
    assert bench.outcome(first, notes=notes) is None
    assert bench.posted == [("INFO", "hi"), ("INFO", "cut")]
    bench.posted.clear()
    assert {call.key.role for call in notes.calls} == {"attempt"}
    second = Script(says[3:])
    end = bench.end(second, notes=notes.next(), is_resumed=True)
    assert bench.posted == [("INFO", "cut")]  # made again: its progress is unknown
    assert result(second.requests[1].prompt) == "11"
    assert (end.output, end.metadata["steps"]) == ("ok", 5)
    assert (end.usage.total, end.cost) == (50, 2.5)
    log = (bench.files.logs / "attempt-000.tools.jsonl").read_text().splitlines()
    assert [json.loads(line)["tool"] for line in log] == [
        "write_file",
        "post_message",
        "edit_file",
        "post_message",
        "read_file",
    ]


def test_an_attempt_without_a_record_gets_a_note_that_it_started(bench: Bench) -> None:
    """An attempt that was interrupted before its first reply was recorded may have done something."""
    model = Script(["ok", "ok"])
    notes = Notes()
    bench.end(model, notes=notes, is_resumed=True)
    assert model.requests[0].prompt == f"{CONTINUATION}\n\nRepair it."
    end = bench.end(model, notes=notes.next(), is_resumed=True)
    assert (end.output, len(model.requests)) == ("ok", 1)


def test_tool_results_of_another_conversation_are_not_reused(bench: Bench) -> None:
    """With new replies their tools run, ignoring the file of an earlier execution."""
    says = [chat("write_file", path="x", content="1"), "ok"]
    bench.end(Script(says), notes=Notes())
    bench.file("x").unlink()
    bench.end(Script(says), notes=Notes())
    assert bench.file("x").exists()


def test_complete_lines_of_a_truncated_log_are_used(bench: Bench) -> None:
    """The call of an incomplete line is made again."""
    says = [
        [*chat("post_message", text="a"), *chat("post_message", text="b")],
        chat("post_message", text="cut"),
        "ok",
    ]
    notes = Notes()
    assert bench.outcome(Script(says), notes=notes) is None
    log = bench.files.logs / "attempt-000.tools.jsonl"
    log.write_text(log.read_text()[:-20])
    bench.posted.clear()
    bench.end(Script(says[2:]), notes=notes.next(), is_resumed=True)
    assert [text for _, text in bench.posted] == ["b", "cut"]
    assert len(log.read_text().splitlines()) == 3
