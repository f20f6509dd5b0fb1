"""What holds for all open providers: no secret in what comes back, and every answer is recorded."""

import json
import traceback
from pathlib import Path
from typing import Any, NoReturn

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from trioeval.errors import OutputError, Problem, ProviderError, SuiteError
from trioeval.providers import Provider, Recorder, Reply, Request, open_providers, resolve
from trioeval.providers.env_references import expand_env
from trioeval.providers.secrets import hide, hide_in
from trioeval.suite import Templates

KEY = "sk-very-secret-1234"


def ask(function: Provider, recorder: Recorder | None = None) -> Reply:
    """Ask a function of the user's, beside an entry whose key is known."""

    async def main() -> Reply:
        specs = [
            resolve(
                entry_id,
                {},
                environ={"OPENAI_API_KEY": KEY},
                directory=Path(),
                templates=Templates(),
                custom={"mine": function},
            )
            for entry_id in ("mine", "openai:m")
        ]
        async with open_providers(specs, Templates(), recorder) as [provider, _]:
            return await provider(Request(prompt="Hi"))

    return trio.run(main)


def test_a_reply_that_holds_a_key_is_cleaned() -> None:
    """Servers that say what they were sent give no key away, in values or names."""

    async def mine(_request: Request) -> Reply:
        return Reply(
            output={"seen": [f"Bearer {KEY}"], KEY: 1},
            raw={"a": KEY},
            metadata={"http": {"headers": {"x": KEY}}},
        )

    reply = ask(mine)
    assert reply.output == {"seen": ["Bearer [hidden]"], "[hidden]": 1}
    assert KEY not in repr((reply, reply.raw))


def test_a_failure_that_holds_a_key_is_cleaned_with_its_causes() -> None:
    """What a person or a log sees of an error has no key; what it means stays."""

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
    """Cleaning takes nothing that helps."""

    async def mine(_request: Request) -> str:
        raise ValueError("no luck")

    with pytest.raises(ProviderError) as caught:
        ask(mine)
    assert isinstance(caught.value.__cause__, ValueError)


def test_what_was_answered_and_what_failed_is_recorded(tmp_path: Path) -> None:
    """In the step in which it came, without secrets."""
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
    """It has no answer that could be repeated."""

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


def test_a_disk_that_fills_up_costs_no_reply() -> None:
    """The reply arrives all the same, and the first error is kept."""

    async def mine(_request: Request) -> str:
        return "fine"

    recorder = Recorder(Path("/dev/full"), Path("/dev/full").open("w"))  # noqa: SIM115 - closed below
    with recorder:
        assert ask(mine, recorder).output == "fine"
        assert ask(mine, recorder).output == "fine"
    assert isinstance(recorder.error, OutputError)
    assert "No space left on device" in str(recorder.error)


JSON = st.recursive(
    st.none() | st.booleans() | st.text(alphabet="ab1", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet="ab1", max_size=8), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(value=JSON, secrets=st.lists(st.text(alphabet="ab1", min_size=4, max_size=6), max_size=3))
def test_no_secret_survives_and_nothing_else_changes(value: Any, secrets: list[str]) -> None:
    """Wherever it stands; a value without one comes back as the very same object."""
    text = json.dumps(value)
    clean = hide_in(value, secrets)
    if any(secret in text for secret in secrets):
        assert not any(secret in json.dumps(clean) for secret in secrets)
    else:
        assert clean is value


def test_short_texts_are_no_secrets() -> None:
    """A key of one letter would blank every word."""
    assert hide("abc a", ["a", ""]) == "abc a"


def test_references_to_the_environment_are_filled_in() -> None:
    """At any depth; values of variables that are called secret are secrets; all that lack are told."""
    config = {
        "headers": {"authorization": "Bearer {{ env.MY_TOKEN }}", "x-region": "{{env.REGION}}"},
        "list": ["{{env.GONE}}", {"b": "{{-env.LOST-}}"}],
        "body": "{{prompt}} {{env.REGION}}",
    }
    expanded = expand_env(config, {"MY_TOKEN": "t0ken", "REGION": "eu"})
    assert expanded.value["headers"] == {"authorization": "Bearer t0ken", "x-region": "eu"}
    assert expanded.value["body"] == "{{prompt}} eu"
    assert expanded.secrets == ["t0ken"]
    assert expanded.problems == [
        Problem(".config.list[0]", "the environment variable GONE is not set", "set GONE"),
        Problem(".config.list[1].b", "the environment variable LOST is not set", "set LOST"),
    ]


@pytest.mark.parametrize("value", [-1, 1.5, "3", True])
def test_max_retries_of_a_config_is_checked(value: Any) -> None:
    """Every provider's config may bound the retries of its lane."""
    around: dict[str, Any] = {
        "environ": {},
        "directory": Path(),
        "templates": Templates(),
        "custom": {},
    }
    assert resolve("echo", {"maxRetries": 2}, **around).max_retries == 2
    with pytest.raises(SuiteError, match="must be a whole number of at least 0"):
        resolve("echo", {"max_retries": value}, **around)
