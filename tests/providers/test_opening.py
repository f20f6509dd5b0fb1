"""Guarantees of all open providers: returned values contain no secret, and every reply is recorded."""

import json
import traceback
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio

from trioeval.errors import OutputError, Problem, ProviderError, SuiteError
from trioeval.providers import Provider, Reply, Request, Usage, open_providers, resolve
from trioeval.providers.base import Guardrails
from trioeval.providers.local.record import Recorder
from trioeval.providers.resolve import expand_env
from trioeval.templates import Templates

KEY = "sk-very-secret-1234"


def ask(
    function: Provider,
    recorder: Recorder | None = None,
    *,
    key: str = KEY,
    label: str | None = None,
    prompt: str = "Hi",
    overload_statuses: frozenset[int] = frozenset(),
) -> Reply:
    """Call a user's function, with another entry whose key is known."""

    async def main() -> Reply:
        specs = [
            resolve(
                entry_id,
                {},
                environ={"OPENAI_API_KEY": key},
                directory=Path(),
                templates=Templates(),
                custom={"mine": function},
                label=label,
                overload_statuses=overload_statuses,
            )
            for entry_id in ("mine", "openai:m")
        ]
        async with open_providers(specs, Templates(), recorder) as [provider, _]:
            return await provider(Request(prompt=prompt))

    return trio.run(main)


def test_a_label_is_the_name_of_a_function_in_errors() -> None:
    """The user's label, and not the id, begins the message."""

    async def mine(_request: Request) -> str:
        raise ValueError("no luck")

    with pytest.raises(ProviderError, match="unexpected: provider small: ValueError: no luck"):
        ask(mine, label="small")
    with pytest.raises(ProviderError, match="unexpected: provider mine: ValueError: no luck"):
        ask(mine)


@pytest.mark.parametrize(
    ("label", "name"), [("small", "small"), (None, "exec:sh -c 'exit 3'")], ids=["label", "id"]
)
def test_a_label_is_the_name_of_a_program_in_errors(label: str | None, name: str) -> None:
    """Without a label it is the command line."""

    async def main() -> None:
        spec = resolve(
            "exec:sh -c 'exit 3'",
            {},
            environ={"PATH": "/usr/bin:/bin"},
            directory=Path(),
            templates=Templates(),
            custom={},
            label=label,
        )
        async with open_providers([spec], Templates()) as [provider]:
            with pytest.raises(ProviderError) as caught:
                await provider(Request(prompt="Hi"))
        assert caught.value.message == f"{name} ended with exit code 3"

    trio.run(main)


def test_a_key_in_a_reply_is_hidden() -> None:
    """Servers that return their requests reveal no key, in values or names."""

    async def mine(_request: Request) -> Reply:
        return Reply(
            output={"seen": [f"Bearer {KEY}"], KEY: 1},
            raw={"a": KEY},
            metadata={"http": {"headers": {"x": KEY}}},
        )

    reply = ask(mine)
    assert reply.output == {"seen": ["Bearer [hidden]"], "[hidden]": 1}
    assert KEY not in repr((reply, reply.raw))


def test_a_key_in_a_failure_is_hidden_with_its_causes() -> None:
    """The error contains no key; its meaning is unchanged."""

    async def mine(_request: Request) -> str:
        raise ProviderError(
            "rate_limited",
            "slow down",
            status=429,
            retry_after=2,
            body_excerpt=f"you sent {KEY}",
            retries=1,
        ) from ValueError(f"header {KEY}")

    with pytest.raises(ProviderError) as caught:
        ask(mine)
    error = caught.value
    assert KEY not in "".join(traceback.format_exception(error))
    assert (error.kind, error.status, error.retry_after, error.retries) == (
        "rate_limited",
        429,
        2,
        1,
    )
    assert error.body_excerpt == "you sent [hidden]"


def test_a_failure_without_a_key_keeps_its_causes() -> None:
    """Without a secret nothing is removed."""

    async def mine(_request: Request) -> str:
        raise ValueError("no luck")

    with pytest.raises(ProviderError) as caught:
        ask(mine)
    assert isinstance(caught.value.__cause__, ValueError)


def test_replies_and_failures_are_recorded(tmp_path: Path) -> None:
    """Replies and failures are recorded in order, without secrets."""
    answers: list[str | ProviderError] = [
        f"the key is {KEY}",
        ProviderError("server", "down", status=500),
    ]

    async def mine(_request: Request) -> str:
        answer = answers.pop(0)
        if isinstance(answer, ProviderError):
            raise answer
        return answer

    with Recorder.create(tmp_path / "r.jsonl") as recorder:
        ask(mine, recorder)
        with pytest.raises(ProviderError):
            ask(mine, recorder)
    first, second = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert (first["prompt"], first["provider"], first["output"]) == (
        "Hi",
        "mine",
        "the key is [hidden]",
    )
    assert second["error"] == {"kind": "server", "message": "down", "status": 500}


def test_a_call_that_was_cancelled_is_not_recorded(tmp_path: Path) -> None:
    """It has no reply that could be replayed."""

    async def mine(_request: Request) -> NoReturn:
        await trio.sleep_forever()

    async def main(recorder: Recorder) -> None:
        spec = resolve(
            "mine",
            {},
            environ={},
            directory=Path(),
            templates=Templates(),
            custom={"mine": mine},
        )
        async with open_providers([spec], Templates(), recorder) as [provider]:
            with trio.move_on_after(0):
                await provider(Request(prompt="Hi"))

    with Recorder.create(tmp_path / "r.jsonl") as recorder:
        trio.run(main, recorder)
    assert (tmp_path / "r.jsonl").read_text() == ""


def test_a_full_disk_loses_no_reply() -> None:
    """The reply still arrives, and the first error is stored."""

    async def mine(_request: Request) -> str:
        return "fine"

    recorder = Recorder(Path("/dev/full"), Path("/dev/full").open("w"))  # noqa: SIM115 - closed below
    with recorder:
        assert ask(mine, recorder).output == "fine"
        assert ask(mine, recorder).output == "fine"
    assert isinstance(recorder.error, OutputError)
    assert "No space left on device" in str(recorder.error)


def test_references_to_the_environment_are_resolved() -> None:
    """They are replaced at any depth; secret variables have secret values; all missing ones are reported."""
    config = {
        "headers": {"authorization": "Bearer {{ env.MY_TOKEN }}", "x-region": "{{env.REGION}}"},
        "list": ["{{env.GONE}}", {"b": "{{-env.LOST-}}"}],
        "body": "{{prompt}} {{env.REGION}}",
    }
    expanded = expand_env(config, {"MY_TOKEN": "t0ken", "REGION": "eu"}, Templates())
    assert expanded.value["headers"] == {"authorization": "Bearer t0ken", "x-region": "eu"}
    assert expanded.value["body"] == "{{prompt}} eu"
    assert expanded.secrets == ["t0ken"]
    assert expanded.problems == [
        Problem(".config.list[0]", "the environment variable GONE is not set", "set GONE"),
        Problem(".config.list[1].b", "the environment variable LOST is not set", "set LOST"),
    ]


@pytest.mark.parametrize("value", [-1, 1.5, "3", True])
def test_max_retries_of_a_config_is_checked(value: Any) -> None:
    """Every provider's config may limit the retries of its lane."""
    context: dict[str, Any] = {
        "environ": {},
        "directory": Path(),
        "templates": Templates(),
        "custom": {},
    }
    assert resolve("echo", {"maxRetries": 2}, **context).max_retries == 2
    with pytest.raises(SuiteError, match="must be a whole number of at least 0"):
        resolve("echo", {"max_retries": value}, **context)


def test_parts_of_a_secret_variable_are_secrets() -> None:
    """A variable may contain a whole header; other names add no secrets."""
    config = {"a": "{{env.MY_AUTH}} {{env.AUTHOR}} {{env.MAX_TOKENS}}"}
    environ = {"MY_AUTH": "Bearer sk-1234", "AUTHOR": "John", "MAX_TOKENS": "1000"}
    assert expand_env(config, environ, Templates()).secrets == ["sk-1234"]


def test_references_with_a_filter_are_resolved() -> None:
    """Such a variable may be unset; a value made from a secret is a secret, and errors are reported."""
    environ = {"MY_TOKEN": " t0ken-1234 "}
    config = {
        "apiKey": "{{ env['MY_TOKEN'] | trim }}",
        "region": "{{ env.REGION | default('eu') }} {{ prompt | trim }}",
        "bad": "{{ env.REGION | nothing }}",
    }
    expanded = expand_env(config, environ, Templates(env=environ))
    assert expanded.value["apiKey"] == "t0ken-1234"
    assert expanded.value["region"] == "eu {{ prompt | trim }}"
    assert {" t0ken-1234 ", "t0ken-1234"} & set(expanded.secrets)
    (problem,) = expanded.problems
    assert problem.path == ".config.bad"
    assert "nothing" in problem.message


def test_replies_are_graded_unchanged() -> None:
    """A key that is a word is hidden in data about the call, but not in the reply."""

    async def mine(_request: Request) -> Reply:
        return Reply(
            output="this is a test",
            raw={"content": "this is a test"},
            finish_reason="test",
            guardrails=Guardrails(flagged=True, reason="a test"),
            metadata={"x": "a test"},
        )

    reply = ask(mine, key="test")
    assert (reply.output, reply.raw) == ("this is a test", {"content": "this is a test"})
    assert (reply.finish_reason, reply.metadata) == ("test", {"x": "a [hidden]"})
    assert reply.guardrails == Guardrails(flagged=True, reason="a test")

    async def fail(_request: Request) -> str:
        raise ProviderError("server", "this is a test")

    with pytest.raises(ProviderError, match=r"this is a \[hidden\]"):
        ask(fail, key="test")


def test_every_field_of_a_reply_is_cleaned() -> None:
    """No field contains a key."""

    async def mine(_request: Request) -> Reply:
        text = f"no {KEY}"
        return Reply(
            output=text.encode(),
            finish_reason=text,
            guardrails=Guardrails(flagged=True, reason=text),
        )

    reply = ask(mine)
    assert reply.output == b"no [hidden]"
    assert reply.finish_reason == "no [hidden]"
    assert reply.guardrails == Guardrails(flagged=True, reason="no [hidden]")


def test_a_clean_failure_has_no_cause_with_a_secret() -> None:
    """Neither its cause nor its context, which a debugger shows, contains the secret."""

    def fail() -> str:
        raise ValueError(f"inner {KEY}")

    async def mine(_request: Request) -> str:
        try:
            return fail()
        except ValueError as error:
            raise ProviderError("server", f"outer {KEY}") from error

    with pytest.raises(ProviderError) as caught:
        ask(mine)
    assert str(caught.value) == "server: outer [hidden]"
    assert caught.value.__cause__ is caught.value.__context__ is None


def nested(inner: Any, depth: int) -> Any:
    for _ in range(depth):
        inner = [inner]
    return inner


def circular() -> list[Any]:
    ring: list[Any] = [KEY]
    ring.append(ring)
    return ring


@pytest.mark.parametrize("output", [nested(KEY, 700), nested(KEY, 100_000), circular()])
def test_a_key_that_is_nested_too_deeply_makes_a_reply_unreadable(output: Any) -> None:
    """Nothing is revealed, and nothing crashes; the usage of the call is known."""

    async def mine(_request: Request) -> Reply:
        return Reply(output=output, usage=Usage(total=5), cost=0.25)

    with pytest.raises(ProviderError) as caught:
        ask(mine)
    assert (caught.value.kind, caught.value.tokens, caught.value.money) == (
        "malformed_reply",
        5,
        0.25,
    )
    assert caught.value.__context__ is None


def test_a_deep_reply_without_a_key_is_accepted() -> None:
    """The search does not need to walk through the value."""
    output = nested("a", 700)

    async def mine(_request: Request) -> Reply:
        return Reply(output=output)

    assert ask(mine).output is output


def test_names_and_prompts_are_recorded_without_keys(tmp_path: Path) -> None:
    """An id may be a URL with a key; a prompt is found again by its text."""

    async def mine(_request: Request) -> str:
        return "fine"

    with Recorder.create(tmp_path / "r.jsonl") as recorder:
        ask(mine, recorder, label=f"as {KEY}", prompt=f"is {KEY} a key")
        ask(mine, recorder, label="a test", prompt="a test", key="test")
    first, second = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert (first["provider"], first["prompt"]) == ("as [hidden]", "is [hidden] a key")
    assert (second["provider"], second["prompt"]) == ("a [hidden]", "a test")


def test_an_overloaded_failure_keeps_its_details() -> None:
    """Usage and limits are preserved."""

    async def mine(_request: Request) -> str:
        raise ProviderError("server", "busy", status=503, tokens=3, money=0.5, hint="h")

    with pytest.raises(ProviderError) as caught:
        ask(mine, overload_statuses=frozenset({503}))
    error = caught.value
    assert (error.kind, error.tokens, error.money, error.hint) == ("overloaded", 3, 0.5, "h")
    assert isinstance(error.__cause__, ProviderError)
