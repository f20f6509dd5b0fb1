"""RESUME, ONCE: a run of agents that is interrupted anywhere and resumed equals an uninterrupted one.

The agents are callables that play scripts and work on real files, whose state is that of the interruption.
Time is therefore real, and examples are few.
"""

import math
import re
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trioeval import ProviderError, Reply, Request, Row, parse_suite
from trioeval.agent.open import AgentOptions
from trioeval.evaluation.journal import CallRecord
from trioeval.run import RunOptions, run_with_options
from trioeval.run.prepare import prepare
from trioeval.testing.journals import MemoryJournal, Write

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

NAMES = "abcd"
COLUMNS = ("one", "two")
MOST = 3
"""Attempts of a case."""
WIDTH = 3
"""Concurrent calls of a column."""


@attrs.define(eq=False)
class CutJournal(MemoryJournal):
    """A journal whose program ends at one of its writes."""

    dies_after: float = math.inf
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    def call(self, call: CallRecord) -> None:
        super().call(call)
        self._look()

    def row(self, row: Row) -> None:
        super().row(row)
        self._look()

    def _look(self) -> None:
        if len(self.writes) >= self.dies_after:
            self.scope.cancel()


@attrs.define(eq=False)
class Player:
    """An agent with scripts, a letter for each attempt: `o` success, `x` failure, `p` permanent, `d` done."""

    scripts: Mapping[str, str]
    played: Counter[tuple[str, int]] = attrs.field(factory=Counter)
    """Number of executions of each attempt of each case."""

    async def __call__(self, request: Request) -> Reply:
        case, attempt = request.vars["name"], request.vars["attempt"]
        self.played[case, attempt] += 1
        await trio.lowlevel.checkpoint()
        letter = (self.scripts[case] + "o" * MOST)[attempt]
        if letter == "x":
            raise ProviderError("bad_exit", f"failure of {case} in {attempt}")
        if letter == "p":
            raise ProviderError("auth", "a wrong key")
        if letter == "d":
            Path(request.vars["done"]).touch()  # noqa: ASYNC240 - at once with its reply
        return Reply(output=f"{case} {attempt}", cost=0.5)


def document(scripts: Mapping[str, str], needs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    tests = [{"id": case, "vars": {"name": case}, **needs.get(case, {})} for case in scripts]
    task = {
        "id": "work",
        "type": "agent",
        "prompts": ["Do {{name}}."],
        "providers": [*COLUMNS],
        "maxRestarts": MOST,
        "identicalFailures": MOST,
        "restartDelay": 0,
        "tests": tests,
    }
    return {"tasks": [task], "evaluateOptions": {"maxConcurrency": WIDTH}}


def play(
    suite: Mapping[str, Any], players: Mapping[str, Player], journal: CutJournal, folder: Path
) -> None:
    """Run a suite until it ends or is interrupted."""

    async def nobody(_row: Row) -> None:
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        prepared = prepare(parse_suite(suite), providers=players, environ={})
        terms = AgentOptions(folder=folder / "run")
        with trio.fail_after(60), journal.scope:
            await run_with_options(prepared, RunOptions(emit=nobody, journal=journal, agents=terms))

    trio.run(main)


def ended_in(writes: Sequence[Write]) -> Counter[tuple[str, str]]:
    """Return the attempts of each column and prompt whose ends are recorded."""
    return Counter(
        (write.provider, write.prompt)
        for write in writes
        if isinstance(write, CallRecord)
        and isinstance(write.answer, Reply)
        and "attempt" in write.answer.metadata
    )


def story(record: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a row without times, ids, paths, and the first of several cases that blocked it."""
    reply = record["response"]
    agent = None if reply is None else reply["metadata"]["agent"]
    details: tuple[Any, ...] = ()
    if agent is not None:
        attempts = [(one["ok"], one.get("failure", {}).get("message")) for one in agent["attempts"]]
        details = (
            agent["outcome"],
            agent.get("gaveUp"),
            agent["message"],
            attempts,
            reply["output"],
        )
    outcome = record["metadata"]["trioeval"]["outcome"]
    error = re.sub(r"\bcase \w+, which", "a case, which", record["error"] or "")
    return record["success"], record["failureReason"], outcome, error, details


SCRIPTS = st.text("oxd", max_size=MOST) | st.sampled_from(["p", "xp", "d", "od", "xd"])
POLICIES = st.sampled_from(["skip", "block", "fail", "run"])


@st.composite
def suites(draw: st.DrawFn) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Draw scripts and their dependencies, which are only on cases of earlier letters, so without cycles."""
    cases = NAMES[: draw(st.integers(1, len(NAMES)))]
    scripts = {case: draw(SCRIPTS) for case in draw(st.permutations(cases))}
    needs = {}
    for place, case in enumerate(cases):
        on = draw(st.lists(st.sampled_from(cases[:place]), max_size=2)) if place else []
        if on:
            needs[case] = {"dependsOn": on, "onFailedDependency": draw(POLICIES)}
    return scripts, needs


def alike(found: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Return whether two rows are equal.

    An agent may have reported that it is done in the attempt that was interrupted, which is not recorded.
    """
    if found == right or not (found[-1] and right[-1]):
        return found == right
    attempts = found[-1][3]
    is_cut = attempts == right[-1][3][:-1] and found[-1][0] == "done"
    return is_cut and found[:-1] == right[:-1]


@settings(max_examples=min(10, settings().max_examples // 10))
@given(suites(), st.lists(st.integers(1, 25), min_size=1, max_size=2))
@example(({"a": "xod", "b": "d"}, {"b": {"dependsOn": ["a"]}}), [3])
def test_a_resumed_run_of_agents_equals_an_uninterrupted_one(
    drawn: tuple[Mapping[str, str], Mapping[str, Mapping[str, Any]]], deaths: list[int]
) -> None:
    """RESUME: no recorded attempt is executed again; only interrupted ones are."""
    scripts, needs = drawn
    suite = document(scripts, needs)
    with tempfile.TemporaryDirectory() as name:
        whole, uncut = CutJournal(), {one: Player(scripts) for one in COLUMNS}
        play(suite, uncut, whole, Path(name) / "whole")
        right = {index: story(one) for index, one in whole.records("work").items()}
        assert len(right) == len(COLUMNS) * len(scripts)

        journal = CutJournal()
        made = 0
        for dies_after in [*deaths, math.inf]:
            journal.dies_after, known = dies_after, ended_in(journal.earlier)
            players = {one: Player(scripts) for one in COLUMNS}
            play(suite, players, journal, Path(name) / "cut")
            for column, player in players.items():
                assert all(number >= known[column, f"Do {case}."] for case, number in player.played)
                assert set(player.played.values()) <= {1}
                made += player.played.total()
            there = (*journal.earlier, *journal.writes)
            if dies_after < math.inf:
                journal = CutJournal(there[: len(journal.earlier) + int(dies_after)])
        found = {index: story(one) for index, one in journal.records("work").items()}
        assert found.keys() == right.keys()
        assert all(alike(found[index], right[index]) for index in right), (found, right)
        most = sum(player.played.total() for player in uncut.values())
        assert made <= most + WIDTH * len(COLUMNS) * len(deaths)
