"""Conversations of simulated users with providers under test, in virtual time."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
from journalled import Model, Notes, execute, shared_cache, without_times

import trioeval
from trioeval import Reply, Request, Row, Status, SuiteError, load_suite, parse_suite
from trioeval.errors import ProviderError
from trioeval.evaluation.identity import content_digest
from trioeval.providers import Usage
from trioeval.run import prepare
from trioeval.suite.expand import expand
from trioeval.suite.plain import plain_suite

FIRST = "Write your first message to the assistant."


def messages_of(prompt: str) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(prompt)
    return found


def spoken(prompt: str) -> list[str]:
    """The contents of the messages after the system message."""
    return [one["content"] for one in messages_of(prompt) if one["role"] != "system"]


def assistant(request: Request) -> str:
    said = [one for one in messages_of(request.prompt) if one["role"] == "user"]
    return f"answer {len(said)}"


def talker(*says: str) -> Any:
    """A user that says these one after another, and then stops."""

    def say(request: Request) -> str:
        number = sum(one["role"] == "assistant" for one in messages_of(request.prompt))
        return says[number] if number < len(says) else "Thank you. ###STOP###"

    return say


def document(config: Mapping[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A suite with one test and a user of these settings."""
    own = {"userProvider": "user", **(config or {})}
    return {
        "providers": ["model"],
        "prompts": ["You work for {{shop}}."],
        "defaultTest": {"provider": {"id": "promptfoo:simulated-user", "config": own}},
        "tests": [{"vars": {"shop": "Kiosk", "instructions": "Buy bread at {{shop}}."}}],
        **more,
    }


def models(*says: str, **how: Any) -> dict[str, Model]:
    return {
        "model": Model(says=assistant, **how),
        "user": Model(says=talker(*(says or ("Hello", "Bread, please"))), **how),
    }


def only(rows: list[Row]) -> Row:
    (row,) = rows
    return row


def test_user_and_provider_speak_in_turn_until_the_stop_marker() -> None:
    """Both see the whole conversation, with exchanged roles; the message with the marker is left out."""
    notes = Notes()
    row = only(execute(document(), models(), notes).rows)
    assert [(call.key.role, call.provider) for call in notes.calls] == [
        ("user", "user"),
        ("provider", "model"),
        ("user", "user"),
        ("provider", "model"),
        ("user", "user"),
    ]
    assert row.output == (
        "User: Hello\n---\nAssistant: answer 1\n---\nUser: Bread, please\n---\nAssistant: answer 2"
    )
    assert row.prompt == "You work for Kiosk."
    assert row.reply is not None
    assert row.reply.metadata == {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "answer 1"},
            {"role": "user", "content": "Bread, please"},
            {"role": "assistant", "content": "answer 2"},
        ]
    }
    first, _, second, to_model, last = (messages_of(call.prompt) for call in notes.calls)
    assert first[0]["role"] == "system"
    assert first[0]["content"].endswith("\n\nBuy bread at Kiosk.")
    assert first[1:] == [{"role": "user", "content": FIRST}]
    assert second[2:] == [
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "answer 1"},
    ]
    assert to_model == [
        {"role": "system", "content": "You work for Kiosk."},
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "answer 1"},
        {"role": "user", "content": "Bread, please"},
    ]
    assert [one["content"] for one in last[2:]] == [
        "Hello",
        "answer 1",
        "Bread, please",
        "answer 2",
    ]


def test_usage_cost_calls_and_time_are_those_of_all_calls() -> None:
    """Five calls of seven tokens, a quarter of a dollar and a second each."""
    row = only(execute(document(), models()).rows)
    assert row.reply is not None
    assert (row.reply.usage.total, row.reply.cost, row.calls) == (35, 1.25, 5)
    assert row.latency_ms == pytest.approx(5000)
    assert row.lane == "model"


@pytest.mark.parametrize(("most", "calls"), [(1, 2), (3, 6), (None, 20)])
def test_the_number_of_turns_is_bounded(most: int | None, calls: int) -> None:
    """By 10 if nothing else is configured."""
    config = {} if most is None else {"maxTurns": most}
    endless = models(*[f"more {number}" for number in range(30)])
    row = only(execute(document(config), endless).rows)
    assert row.calls == calls
    assert str(row.output).count("User: ") == calls / 2


def test_a_user_that_stops_at_once_leaves_an_empty_conversation() -> None:
    """The provider under test is not called."""
    found = {**models(), "user": Model(says=lambda _: "###STOP###")}
    row = only(execute(document(), found).rows)
    assert (row.output, row.calls, row.status) == ("", 1, Status.NOT_GRADED)


@pytest.mark.parametrize("in_variable", [False, True])
def test_initial_messages_begin_the_conversation(*, in_variable: bool) -> None:
    """After a last one of the user, the provider under test replies first; this is not a turn."""
    initial = [
        {"role": "system", "content": "note"},
        {"role": "assistant", "content": "Welcome to {{shop}}"},
        {"role": "user", "content": "Hi"},
    ]
    config: dict[str, Any] = {"maxTurns": 1, "initialMessages": initial}
    suite = document(config)
    if in_variable:
        config["initialMessages"] = [{"role": "user", "content": "not this"}]
        suite = document(config)
        suite["tests"][0]["vars"]["initialMessages"] = json.dumps(initial)
    notes = Notes()
    row = only(execute(suite, models("Bread, please", "more", "more"), notes).rows)
    assert [call.key.role for call in notes.calls] == ["provider", "user", "provider"]
    assert str(row.output).split("\n---\n")[:4] == [
        "User: note",
        "Assistant: Welcome to Kiosk",
        "User: Hi",
        "Assistant: answer 1",
    ]
    assert messages_of(notes.calls[1].prompt)[1:] == [
        {"role": "user", "content": "note"},
        {"role": "user", "content": "Welcome to Kiosk"},
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "answer 1"},
    ]


def test_a_provider_with_a_session_gets_only_the_last_message() -> None:
    """The prompt is sent until it has opened a session, which is a variable of later calls."""
    seen: list[tuple[str, Any]] = []

    async def model(request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        seen.append((request.prompt, request.vars.get("sessionId")))
        return Reply(output=f"answer {len(seen)}", metadata={"sessionId": "s-1"})

    found = {**models(), "model": model}
    row = only(execute(document({"stateful": True}), found).rows)
    assert [(len(messages_of(prompt)), session) for prompt, session in seen] == [
        (2, None),
        (1, "s-1"),
    ]
    assert spoken(seen[1][0]) == ["Bread, please"]
    assert row.reply is not None
    assert row.reply.metadata["sessionId"] == "s-1"


def test_a_prompt_of_messages_begins_the_conversation() -> None:
    """A text is the system message."""
    prompt = json.dumps([{"role": "developer", "content": "Be brief, {{shop}}."}])
    notes = Notes()
    execute(document({"maxTurns": 1}, prompts=[prompt]), models(), notes)
    assert messages_of(notes.calls[1].prompt) == [
        {"role": "developer", "content": "Be brief, Kiosk."},
        {"role": "user", "content": "Hello"},
    ]


def test_assertions_see_the_conversation() -> None:
    """As one output, with the cost and the time of all calls."""
    suite = document()
    suite["tests"][0]["assert"] = [
        {"type": "contains", "value": "User: Bread, please\n---\nAssistant: answer 2"},
        {"type": "cost", "threshold": 1.25},
        {"type": "latency", "threshold": 5000},
    ]
    row = only(execute(suite, models()).rows)
    assert (row.status, row.error) == (Status.PASS, None)


def test_each_call_goes_through_the_lane_of_its_provider() -> None:
    """Two conversations at once: the rate of each lane holds for the calls of all rows."""
    starts: dict[str, list[float]] = {"model": [], "user": []}

    def timed(name: str, says: Any) -> Any:
        async def call(request: Request) -> Reply:
            starts[name].append(trio.current_time())
            await trio.sleep(1)
            return Reply(output=says(request))

        return call

    user = {"id": "user", "lane": {"rpm": 6, "maxConcurrency": 5}}
    suite = document({"userProvider": user, "maxTurns": 2})
    suite["providers"] = [{"id": "model", "lane": {"rpm": 12, "maxConcurrency": 5}}]
    suite["tests"] = [{"vars": {"instructions": str(number)}} for number in range(3)]
    found = {
        "model": timed("model", assistant),
        "user": timed("user", talker("a", "b", "c")),
    }
    ran = execute(suite, found)
    assert [row.status for row in ran.rows] == [Status.NOT_GRADED] * 3
    for name, gap in (("model", 5), ("user", 10)):
        assert len(starts[name]) == 6
        gaps = [
            after - before for before, after in zip(starts[name], starts[name][1:], strict=False)
        ]
        assert min(gaps) >= gap - 1e-6


def test_a_conversation_goes_on_before_the_next_one_begins() -> None:
    """The next message of a row waits for no first message of a later one."""
    order: list[str] = []

    def says(request: Request) -> str:
        order.append(str(request.vars["instructions"]))
        return str(talker("a", "b")(request))

    suite = document(
        {"userProvider": {"id": "user", "lane": {"maxConcurrency": 1}}},
        tests=[{"vars": {"instructions": f"{number}"}} for number in range(4)],
        providers=[{"id": "model", "lane": {"maxConcurrency": 1}}],
    )
    execute(suite, {"model": Model(says=assistant, takes=0.25), "user": Model(says=says)})
    assert order.index("2") > max(place for place, one in enumerate(order[:-6]) if one == "0")
    assert [order.count(str(number)) for number in range(4)] == [3] * 4


@pytest.mark.parametrize("at", [0.5, 1.5, 2.5, 3.5, 4.5, 5.5])
def test_a_resumed_conversation_requests_no_recorded_reply_again(at: float) -> None:
    """After any cut, every call that was answered is paid for once (law RESUME)."""
    whole = execute(document(), models(), Notes())
    notes, before, after = Notes(), models(), models()
    execute(document(), before, notes, cut_at=at)
    ran = execute(document(), after, notes.next())
    answered = min(5, int(at))
    assert len(notes.calls) == answered
    made = sum(model.requests for model in after.values())
    assert made == 5 - answered
    if made:
        assert without_times(only(ran.rows)) == without_times(only(whole.rows))


def test_equal_messages_of_a_session_are_separate_calls() -> None:
    """A resumed conversation recalls each of them."""
    says = talker("yes", "yes", "yes")
    config = {"stateful": True, "maxTurns": 3}
    found = {"model": Model(says=lambda _: "ok"), "user": Model(says=says)}
    notes = Notes()
    execute(document(config), found, notes, cut_at=4.5)
    assert len({call.key for call in notes.calls}) == 4
    again = {"model": Model(says=lambda _: "ok"), "user": Model(says=says)}
    execute(document(config), again, notes.next())
    assert (again["model"].requests, again["user"].requests) == (1, 1)


@pytest.mark.parametrize("failing", ["user", "model"])
def test_after_a_transient_failure_no_reply_is_requested_again(failing: str) -> None:
    """A final retry round continues where the conversation failed; the row reports all of its calls."""
    failures = [ProviderError("server", "503")]
    found = models()

    def fails(request: Request) -> Exception | None:
        is_second = len(messages_of(request.prompt)) == 4
        return failures.pop() if failures and is_second else None

    found[failing] = Model(
        says=talker("Hello", "Bread, please") if failing == "user" else assistant, fails=fails
    )
    suite = document(evaluateOptions={"salvageRounds": 1})
    suite["providers"] = [{"id": "model", "lane": {"retries": 0}}]
    suite["defaultTest"]["provider"]["config"]["userProvider"] = {
        "id": "user",
        "lane": {"retries": 0},
    }
    row = only(execute(suite, found).rows)
    assert row.status is Status.NOT_GRADED
    assert (found["user"].requests, found["model"].requests) == (
        (4, 2) if failing == "user" else (3, 3)
    )
    assert row.calls == 6
    assert row.reply is not None
    assert (row.reply.usage.total, row.reply.cost) == (35, 1.25)


def test_a_failed_conversation_reports_what_it_has_cost() -> None:
    """Its row is an error, with the messages so far."""
    found = models()
    found["model"] = Model(says=assistant, fails=lambda _: ProviderError("bad_request", "no"))
    row = only(execute(document(), found).rows)
    assert (row.status, row.error_kind) == (Status.ERROR, "bad_request")
    assert row.reply is not None
    assert (row.reply.output, row.reply.cost, row.calls) == ("User: Hello", 0.25, 2)


def test_an_empty_reply_ends_the_conversation_with_an_error() -> None:
    """As for rows without a conversation; it is not recalled, and the replies before it are."""

    async def model(_request: Request) -> Reply:
        await trio.lowlevel.checkpoint()
        return Reply(usage=Usage(total=3))

    notes = Notes()
    row = only(execute(document(), {**models(), "model": model}, notes).rows)
    assert (row.status, row.error_kind) == (Status.ERROR, "empty_reply")
    assert row.reply is not None
    assert row.reply.usage.total == 10
    again = models()
    resumed = only(execute(document(), again, notes.next(keeps=lambda _: False)).rows)
    assert resumed.status is Status.NOT_GRADED
    assert (again["user"].requests, again["model"].requests) == (2, 2)


def test_the_timeout_of_a_row_counts_all_of_its_calls() -> None:
    """2.5 seconds are two calls of one second, and a third that is cut."""
    notes = Notes()
    suite = document(evaluateOptions={"timeoutMs": 2500})
    row = only(execute(suite, models(), notes).rows)
    assert (row.outcome, len(notes.calls)) == ("timed_out", 2)
    assert row.reply is not None
    assert row.reply.output == "User: Hello\n---\nAssistant: answer 1"


def test_the_budget_counts_the_calls_of_both() -> None:
    """Four requests leave the conversation before its last call."""
    suite = document(evaluateOptions={"budget": {"requests": 4}})
    row = only(execute(suite, models()).rows)
    assert (row.outcome, row.calls) == ("interrupted", 4)


def test_replies_of_both_come_from_the_cache() -> None:
    """They cost nothing, and do not count as calls."""
    with shared_cache() as cache:
        first = only(execute(document(), models(cacheable=True), cache=cache).rows)
        found = models(cacheable=True)
        row = only(execute(document(), found, cache=cache).rows)
    assert row.reply is not None
    assert (row.output, row.calls, row.reply.cost) == (first.output, 0, 0.0)
    assert (first.cached, row.cached) == (False, True)
    assert sum(model.requests for model in found.values()) == 0


def test_replies_of_a_session_do_not_come_from_the_cache() -> None:
    """The same message has other replies in other places of a conversation."""
    found = models("yes", "yes", cacheable=True)
    with shared_cache() as cache:
        for _ in range(2):
            execute(document({"stateful": True}), found, cache=cache)
    assert (found["user"].requests, found["model"].requests) == (3, 4)


def test_messages_are_data() -> None:
    """Marks of templates in a reply have no meaning in later prompts."""
    notes = Notes()
    execute(document({"maxTurns": 1}), models("{{ shop }} {% if %}"), notes)
    assert spoken(notes.calls[1].prompt) == ["{{ shop }} {% if %}"]


def test_recorded_conversations_need_no_turn_on_a_lane() -> None:
    """A resumed row whose replies are all recorded does not wait for the rate of its lane."""
    suite = document(tests=[{"vars": {"instructions": f"{number}"}} for number in range(3)])
    suite["providers"] = [{"id": "model", "lane": {"rpm": 1}}]
    notes = Notes()
    execute(suite, models(), notes)
    ran = execute(suite, models(), notes.next(keeps=lambda _: False))
    assert max(ran.at.values()) < 1
    assert [row.calls for row in ran.rows] == [5] * 3


def test_a_test_may_replace_the_user_of_the_default_test() -> None:
    """With another user, or with a provider that replies itself."""
    other = {"id": "promptfoo:simulated-user", "config": {"userProvider": "user", "maxTurns": 1}}
    tests = [
        {"vars": {"instructions": "x"}},
        {"vars": {"instructions": "y"}, "provider": other},
        {"vars": {"instructions": "z"}, "provider": "own"},
    ]
    found = {**models("a", "b"), "own": Model(says=lambda request: f"own: {request.prompt}")}
    rows = execute(document(tests=tests, prompts=["p"]), found).rows
    assert [str(row.output).count("\n---\n") for row in rows] == [3, 1, 0]
    assert rows[2].output == "own: p"


@pytest.mark.parametrize("named", ["options", "default", "label", "both"])
def test_the_player_is_named_in_several_ways(named: str) -> None:
    """In the config; there by the label of a provider of the suite; or as the judge of the test."""
    suite = document()
    config = suite["defaultTest"]["provider"]["config"]
    found = models()
    if named == "label":
        suite["providers"] = ["model", {"id": "user", "label": "customer"}]
        suite["tests"][0]["providers"] = ["model"]
        config["userProvider"] = "customer"
    elif named == "both":
        suite["tests"][0]["options"] = {"provider": "missing"}
    else:
        del config["userProvider"]
        owner = suite["tests"][0] if named == "options" else suite["defaultTest"]
        owner["options"] = {"provider": {"text": "user"}}
    row = only(execute(suite, found).rows)
    assert (row.status, found["user"].requests) == (Status.NOT_GRADED, 3)


def test_the_id_alone_is_a_user_of_default_settings() -> None:
    """In the default test as in a test; the judge of the test plays it."""
    suite = document(defaultTest={"provider": "promptfoo:simulated-user"})
    suite["tests"][0]["options"] = {"provider": "user"}
    row = only(execute(suite, models("Hello")).rows)
    assert row.output == "User: Hello\n---\nAssistant: answer 1"


def problems(suite: dict[str, Any]) -> list[str]:
    async def model(_request: Request) -> str:
        await trio.lowlevel.checkpoint()
        return ""

    with pytest.raises(SuiteError) as caught:
        prepare(parse_suite(suite, environ={}), providers={"model": model, "user": model})
    return [str(problem).partition("\n")[0] for problem in caught.value.problems]


def test_a_user_without_a_player_is_refused() -> None:
    """Before anything is paid for, with its place."""
    suite = document()
    del suite["defaultTest"]["provider"]["config"]["userProvider"]
    assert problems(suite) == ["$.defaultTest.provider: no provider plays the simulated user"]
    suite["defaultTest"]["provider"] = "promptfoo:simulated-user"
    assert problems(suite) == ["$.defaultTest.provider: no provider plays the simulated user"]
    own = {"id": "promptfoo:simulated-user"}
    tests = [{"vars": {"x": "1"}}, {"provider": own}]
    assert problems(document(defaultTest={}, tests=tests)) == [
        "$.tests[1].provider: no provider plays the simulated user"
    ]


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"maxTurns": 1.5}, ".maxTurns: must be a whole number, got 1.5"),
        ({"maxTurns": -1}, ".maxTurns: must be at least 0, got -1"),
        ({"maxturn": 1}, '.maxturn: "maxturn" is not a key here'),
        ({"userProvder": "file://a.py"}, '.userProvder: "userProvder" is not a key here'),
        ({"stateful": "yes"}, '.stateful: must be true or false, got the text "yes"'),
        ({"instructions": 1}, ".instructions: must be text, got 1"),
        ({"targetId": "x"}, ".targetId: targetId is not supported yet"),
        (
            {"initialMessages": [{"role": "tool", "content": "x"}]},
            '.initialMessages[0].role: "tool" is not a role of a message',
        ),
        ({"initialMessages": [{"role": "user"}]}, '.initialMessages[0]: "content" is missing'),
        (
            {"userProvider": {"id": "promptfoo:simulated-user"}},
            ".userProvider: a simulated user cannot be played by a simulated user",
        ),
    ],
)
def test_mistakes_in_the_config_have_their_place(config: dict[str, Any], problem: str) -> None:
    """All of them are found when the suite is loaded."""
    (found,) = problems(document(config))
    assert found.startswith(f"$.defaultTest.provider.config{problem}")


def test_instructions_of_an_untrusted_suite_do_not_see_the_environment() -> None:
    """As in prompts; those of a trusted one do."""
    suite = document({"instructions": "{{ env.TOWN }}"})
    environ = {"TOWN": "Ys"}
    with pytest.raises(SuiteError) as caught:
        parse_suite(suite, environ=environ, trusted=False)
    (problem,) = caught.value.problems
    assert problem.path == "$.defaultTest.provider.config.instructions"
    assert problem.message == "an untrusted suite does not see the environment variable TOWN"
    default = parse_suite(suite, environ=environ).default_test
    assert default is not None
    assert default.provider is not None
    assert default.provider.user is not None
    assert default.provider.user.instructions == "Ys"


def test_an_unknown_player_is_refused_where_it_is_named() -> None:
    """Like any other provider."""
    (found,) = problems(document({"userProvider": "missing"}))
    assert found.startswith("$.defaultTest.provider.config.userProvider")


def test_a_simulated_user_cannot_be_tested() -> None:
    """It needs a provider to talk to."""
    (found,) = problems({"providers": ["promptfoo:simulated-user"], "prompts": ["x"]})
    assert found.startswith('$.providers[0].id: "promptfoo:simulated-user" talks to the providers')


def test_initial_messages_of_a_test_that_are_none_fail_its_row() -> None:
    """Without any call."""
    suite = document()
    suite["tests"][0]["vars"]["initialMessages"] = "no messages"
    found = models()
    row = only(execute(suite, found).rows)
    assert row.status is Status.ERROR
    assert str(row.error).startswith("variable initialMessages: must be a list of messages")
    assert sum(model.requests for model in found.values()) == 0


def test_instructions_may_use_the_output_of_an_earlier_row() -> None:
    """Then the conversation waits for that row."""
    config = {"userProvider": "user", "maxTurns": 1, "instructions": "Live in {{town}}."}
    own = {"id": "promptfoo:simulated-user", "config": config}
    tests = [
        {"provider": "slow", "options": {"storeOutputAs": "town"}},
        {"provider": own, "vars": {"x": "y"}},
    ]
    suite = document(defaultTest={}, tests=tests, prompts=["p"], serialize="auto")
    notes = Notes()
    found = {**models("Hello"), "slow": Model(takes=60, says=lambda _: "Ys")}
    execute(suite, found, notes)
    (call,) = (call for call in notes.calls if call.key.role == "user")
    assert messages_of(call.prompt)[0]["content"].endswith("Live in Ys.")


def test_scenarios_have_their_own_users() -> None:
    """Settings of one scenario may differ in the judge that plays the user."""
    own = {"id": "promptfoo:simulated-user", "config": {"maxTurns": 1, "instructions": "x"}}
    config = [{"options": {"provider": name}} for name in ("one", "two")]
    suite = document(defaultTest={"provider": own}, scenarios=[{"config": config}], prompts=["p"])
    del suite["tests"]
    found = {
        "model": Model(says=assistant),
        **{name: Model(says=talker(name)) for name in ("one", "two")},
    }
    rows = execute(suite, found).rows
    assert [str(row.output).partition("\n")[0] for row in rows] == ["User: one", "User: two"]


@pytest.mark.parametrize("by_label", [False, True])
def test_another_player_is_another_row(*, by_label: bool) -> None:
    """A resumed run whose player has changed does not keep the rows of the old one."""

    def content(model: str) -> str:
        entry = {"id": "sim:user", "label": "customer", "config": {"name": model}}
        suite = document({"userProvider": "customer" if by_label else entry})
        suite["providers"] = ["echo", *([entry] if by_label else [])]
        steps = expand(parse_suite(suite, environ={}))
        return content_digest(steps[0], steps.providers[0])

    assert content("a") == content("a") != content("b")


def test_a_user_survives_the_plain_form_of_its_test() -> None:
    """Hooks get it as it is written, and return it."""
    suite = parse_suite(document({"userProvider": {"id": "echo"}, "maxTurns": 3}), environ={})
    again = parse_suite(json.loads(json.dumps(plain_suite(suite))), environ={})
    assert again.default_test == suite.default_test
    assert again.default_test is not None
    assert again.default_test.provider is not None
    assert again.default_test.provider.user is not None
    assert again.default_test.provider.user.max_turns == 3


def test_only_prompts_have_simulated_users() -> None:
    """A task of agents would ignore it."""
    agent = {"id": "a", "type": "agent", "tests": [{"id": "case"}], "prompts": ["x"]}
    own = document()
    suite = {"providers": ["model"], "defaultTest": own["defaultTest"], "tasks": [agent]}
    found = problems(suite)
    assert any("a task of type agent has no simulated users" in problem for problem in found)


SCRIPTED_USER = """
import json

def call_api(prompt, options, context):
    said = sum(one["role"] == "assistant" for one in json.loads(prompt))
    name = context["vars"]["name"]
    return {"output": f"I am {name}" if said < 1 else "###STOP###"}
"""


@pytest.mark.slow
def test_a_script_plays_the_user(tmp_path: Path) -> None:
    """Any provider can; initial messages may be in a file, and assertions see those of the conversation."""
    (tmp_path / "start.yaml").write_text("- {role: assistant, content: Good morning}\n")
    (tmp_path / "user.py").write_text(SCRIPTED_USER)
    config = {"userProvider": "file://user.py", "initialMessages": "file://start.yaml"}
    value = "[one['role'] for one in context['metadata']['messages']] == ['assistant', 'user', 'assistant']"
    suite = {
        "providers": ["echo"],
        "prompts": ["Be kind."],
        "defaultTest": {"provider": {"id": "promptfoo:simulated-user", "config": config}},
        "tests": [{"vars": {"name": "Ann"}, "assert": [{"type": "python", "value": value}]}],
    }
    (tmp_path / "suite.json").write_text(json.dumps(suite))
    row = only(trio.run(trioeval.collect, load_suite(tmp_path / "suite.json")))
    assert (row.status, row.error) == (Status.PASS, None)
    assert row.output == (
        "Assistant: Good morning\n---\nUser: I am Ann\n---\nAssistant: "
        '[{"role":"system","content":"Be kind."},{"role":"assistant","content":"Good morning"},'
        '{"role":"user","content":"I am Ann"}]'
    )
