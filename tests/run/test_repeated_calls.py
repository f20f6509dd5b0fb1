"""Replies without a result are requested again, and all calls of a row that is run again; no others."""

import itertools
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

import pytest
from journalled import Model, Notes, Ran, execute, shared_cache

from trioeval import Reply, Request, Row, Status
from trioeval.errors import ProviderError
from trioeval.store.cache.cache import Cache

GOOD = json.dumps({"pass": True, "score": 1, "reason": "r"})
RUBRIC = {"type": "llm-rubric", "value": "x", "provider": "judge"}
EQUALS = {"type": "equals", "value": "good"}


def one_row(*assertions: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "providers": ["model"],
        "prompts": ["a"],
        "tests": [{"assert": list(assertions)}],
        **more,
    }


def saying(*texts: str) -> Model:
    """A judge with several replies in order; it repeats the last one."""
    left = itertools.chain(texts, itertools.repeat(texts[-1]))
    return Model(cacheable=True, says=lambda _: next(left))


def has_verdict(row: Row) -> bool:
    return row.status is not Status.ERROR


class Cached:
    """Executions with a shared cache, or without one."""

    def __init__(self, cache: Cache | None) -> None:
        self.cache = cache

    def __call__(self, *args: Any) -> Ran:
        return execute(*args, around=None if self.cache is None else self._context)

    async def _context(self, go: Callable[..., Awaitable[None]]) -> None:
        await go(cache=self.cache)


@pytest.fixture(params=[True, False], ids=["cache", "no cache"])
def run(request: pytest.FixtureRequest) -> Iterator[Cached]:
    with shared_cache() as cache:
        yield Cached(cache if request.param else None)


def test_a_row_that_is_run_again_ignores_the_cache(run: Cached) -> None:
    """Its judges ignore the cache as well; new replies replace the cached ones."""
    model, judge, notes = saying("bad", "good"), saying(GOOD), Notes()
    models = {"model": model, "judge": judge}
    document = one_row(EQUALS, RUBRIC)
    assert run(document, models, notes).rows[0].status is Status.FAIL
    again = notes.next(keeps=lambda _: False, anew={0})
    assert run(document, models, again).rows[0].status is Status.PASS
    assert (model.requests, judge.requests) == (2, 2)
    assert run(document, models).rows[0].status is Status.PASS
    assert model.requests == (2 if run.cache is not None else 3)


def test_other_rows_of_the_same_run_get_cached_replies(run: Cached) -> None:
    model, notes = saying("bad", "good"), Notes()
    run(one_row(EQUALS), {"model": model}, notes)
    again = notes.next(keeps=lambda _: False, anew={1})
    assert run(one_row(EQUALS), {"model": model}, again).rows[0].status is Status.FAIL
    assert model.requests == 1


def test_a_judge_with_an_unreadable_reply_is_called_again(run: Cached) -> None:
    """Only that judge is called again, not others, nor the tested model."""
    model, judge, notes = saying("good"), saying("?", "??", GOOD), Notes()
    sure = saying(GOOD)
    models = {"model": model, "judge": judge, "sure": sure}
    document = one_row(RUBRIC | {"provider": "sure", "value": "y"}, RUBRIC)
    assert run(document, models, notes).rows[0].status is Status.ERROR
    unreadable = judge.requests
    assert run(document, models, notes.next(keeps=has_verdict)).rows[0].status is Status.PASS
    assert (model.requests, sure.requests, judge.requests) == (1, 1, unreadable + 1)


@pytest.mark.parametrize("run", [True], indirect=True)
def test_an_unreadable_reply_is_not_stored_for_other_runs(run: Cached) -> None:
    """This applies to an assertion without weight too."""
    judge = saying("?", "??", GOOD)
    models = {"model": saying("good"), "judge": judge}
    assert run(one_row(RUBRIC | {"weight": 0}), models).rows[0].status is Status.PASS
    unreadable = judge.requests
    row = run(one_row(RUBRIC), models).rows[0]
    assert row.status is Status.PASS
    assert judge.requests == unreadable + 1
    assert run(one_row(RUBRIC), models).rows[0].status is Status.PASS
    assert judge.requests == unreadable + 1


def test_a_failed_call_discards_no_other_reply(run: Cached) -> None:
    """Only missing replies are requested again."""
    failures = [None, ProviderError("bad_request", "no"), None]
    judge = Model(says=lambda _: GOOD, fails=lambda _: failures.pop(0) if failures else None)
    model, notes = saying("good"), Notes()
    models = {"model": model, "judge": judge}
    document = one_row(RUBRIC | {"config": {"repeat": 3}})
    assert run(document, models, notes).rows[0].status is Status.ERROR
    good = sum(isinstance(one.answer, Reply) for one in notes.calls) - 1
    assert good
    requests = judge.requests
    assert run(document, models, notes.next(keeps=has_verdict)).rows[0].status is Status.PASS
    assert (model.requests, judge.requests) == (1, requests + 3 - good)


def test_an_invalid_vector_is_requested_again(run: Cached) -> None:
    """The other text of the comparison is requested again as well."""

    class Embedder(Model):
        async def __call__(self, request: Request) -> Reply:
            reply = await super().__call__(request)
            is_bad = self.counts == {"x": 1, "good": 1} and request.prompt == "x"
            return Reply(output="?" if is_bad else [1.0, 0.0], usage=reply.usage)

    embedder, model, notes = Embedder(cacheable=True), saying("good"), Notes()
    models = {"model": model, "embedder": embedder}
    document = one_row(
        {"type": "similar", "value": "x", "provider": {"embedding": {"id": "embedder"}}}
    )
    assert run(document, models, notes).rows[0].status is Status.ERROR
    assert run(document, models, notes.next(keeps=has_verdict)).rows[0].status is Status.PASS
    assert model.requests == 1
    assert run(document, models).rows[0].status is Status.PASS


def test_a_comparison_with_an_unreadable_reply_is_made_again(run: Cached) -> None:
    model, judge, notes = saying("good"), saying("?", "??", "0"), Notes()
    models = {"model": model, "judge": judge}
    best = {"type": "select-best", "value": "short", "provider": "judge"}
    document = one_row(best, prompts=["a", "b"])
    first = run(document, models, notes)
    assert not any(map(has_verdict, first.rows))
    requests = judge.requests
    again = run(document, models, notes.next(keeps=has_verdict))
    assert [row.status for row in again.rows] == [Status.PASS, Status.FAIL]
    assert (model.requests, judge.requests) == (2, requests + 1)


def test_a_reply_without_an_output_is_not_recalled(run: Cached) -> None:
    model, notes = Model(says=lambda _: None if model.requests == 1 else "good"), Notes()  # type: ignore[arg-type, return-value]
    assert run(one_row(EQUALS), {"model": model}, notes).rows[0].status is Status.ERROR
    again = notes.next(keeps=has_verdict)
    assert run(one_row(EQUALS), {"model": model}, again).rows[0].status is Status.PASS
