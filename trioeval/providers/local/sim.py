# Separate from `providers.abilities`: one module for each built-in provider.
"""A simulated model with configurable speed, faults and quality, equal in every run.

The result of a call depends on the seed, the model, the prompt, the test, prompt and repeat of the suite, and
on the number of equal calls before, and on nothing else: not on the order of calls, so a wider lane gives the
same results sooner. For a cell of a dataset the variables are the columns that it needs, the test is the row,
and a restart is a repeat. Config keys:

* `latencyMs`: the median time of a call, in milliseconds (default 200).
* `spread`: the variation of times: the standard deviation of their natural logarithm (default 0).
* `tokensPerSecond`: the speed of writing a reply, after the latency; unlimited by default.
* `errorRate`, `throttleRate`, `refusalRate`: shares of calls that fail with a transient server failure,
  fail with "too many requests", or are refused (default 0).
* `retryAfterMs`: the wait that "too many requests" asks for; none by default.
* `quality`: share of right answers, 0 to 1 (default 1). A wrong one stays wrong when it is called again.
* `answer`: template of the right answer (default: the prompt); it can use the variables and `prompt`.
* `wrongAnswer`: template of the wrong answers.
* `seed`: seed of all random numbers (default 0).
* `price`: US dollars per million tokens, as for any other provider.
"""

import math
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import attrs
import trio
import trio.lowlevel

from trioeval.errors import Problem, ProviderError, TemplateError
from trioeval.providers.base import Reply, Request
from trioeval.providers.config import (
    PRICE,
    EntryContext,
    Key,
    ProviderResources,
    ProviderSettings,
    TemplateRenderer,
    config_path,
    is_amount,
    is_integer,
    is_number,
    is_positive,
    is_text,
    read_config,
)
from trioeval.providers.metering import Metering
from trioeval.providers.prices import Price, read_price
from trioeval.text import verbatim
from trioeval.usage import Usage

CHARACTERS_PER_TOKEN = 4
"""Characters of one of this model's tokens."""

REFUSAL = "I cannot help with that."


def _is_spread(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 10  # noqa: PLR2004 - e**10 times the median is too long


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


_SHARE = "a number from 0 to 1"
_AMOUNT = "a number of at least 0"

KEYS = (
    Key("latencyMs", _AMOUNT, is_amount),
    Key("spread", "a number from 0 to 10", _is_spread),
    Key("tokensPerSecond", "a number above 0", is_positive),
    Key("errorRate", _SHARE, _is_share),
    Key("throttleRate", _SHARE, _is_share),
    Key("refusalRate", _SHARE, _is_share),
    Key("retryAfterMs", _AMOUNT, is_amount),
    Key("quality", _SHARE, _is_share),
    Key("answer", "text", is_text),
    Key("wrongAnswer", "text", is_text),
    Key("seed", "a whole number", is_integer),
    PRICE,
)


@attrs.frozen(kw_only=True)
class SimSettings(ProviderSettings):
    """The settings of a simulated model."""

    model: str
    latency: float = 0.2
    """Median seconds of a call, ≥ 0."""
    spread: float = 0.0
    tokens_per_second: float = math.inf
    error_rate: float = 0.0
    throttle_rate: float = 0.0
    refusal_rate: float = 0.0
    retry_after: float | None = None
    """Seconds; None for no hint."""
    quality: float = 1.0
    answer: str = "{{prompt}}"
    wrong_answer: str = "I do not know."
    seed: int = 0
    price: Price | None = None

    @property
    def lane_key(self) -> str:
        """One lane for each model."""
        return f"sim:{self.model}"

    @property
    def metering(self) -> Metering:
        """The price of its tokens."""
        return Metering(price=self.price)

    @asynccontextmanager
    async def open(self, shared: ProviderResources) -> AsyncGenerator["SimProvider"]:
        """Open a model that has had no calls."""
        yield SimProvider(self, shared.templates)


@attrs.define(eq=False, repr=False)
class SimProvider:
    """Replies according to the settings."""

    settings: SimSettings
    _templates: TemplateRenderer
    _counts: Counter[tuple[int, int, int, str]] = attrs.field(factory=Counter)
    """Number of calls for each key; there are as many keys as rows, because only a retry repeats one."""

    async def __call__(self, request: Request, /) -> Reply:
        """Send one request. Always a checkpoint.

        Raises:
            ProviderError: `server` or `rate_limited`, at the configured rates; `bad_request` if the
                answer's template cannot be rendered.
        """
        settings = self.settings
        place = (request.test_idx, request.prompt_idx, request.repeat_index)
        turn = self._counts[*place, request.prompt]
        self._counts[*place, request.prompt] += 1
        about = "|".join(map(str, (settings.seed, settings.model, *place, request.prompt)))
        chance = Random(f"{about}|{turn}")  # noqa: S311 - repeatable, no secret
        is_right = Random(about).random() < settings.quality  # noqa: S311
        latency = settings.latency * math.exp(settings.spread * chance.gauss(0, 1))
        fate = chance.random()
        if fate < settings.throttle_rate:
            await trio.lowlevel.checkpoint()
            wait = settings.retry_after
            raise ProviderError("rate_limited", "simulated", status=429, retry_after=wait)
        if fate < settings.throttle_rate + settings.error_rate:
            await trio.sleep(latency)
            raise ProviderError("server", "simulated", status=500)
        refused = chance.random() < settings.refusal_rate
        output = REFUSAL if refused else self._say(request, is_right=is_right)
        usage = _usage(request.prompt, output)
        await trio.sleep(latency + (usage.completion or 0) / settings.tokens_per_second)
        return Reply(
            output=output,
            usage=usage,
            cost=None if settings.price is None else settings.price.cost(usage),
            finish_reason="stop",
            refusal=output if refused else None,
            metadata={"model": settings.model},
        )

    def _say(self, request: Request, *, is_right: bool) -> str:
        text = self.settings.answer if is_right else self.settings.wrong_answer
        try:
            return self._templates.render(
                text, {**request.vars, "prompt": verbatim(request.prompt)}
            )
        except TemplateError as error:
            msg = f"the simulated answer cannot be rendered: {error}"
            raise ProviderError("bad_request", msg) from error


def read(
    _prefix: str, model: str, config: Mapping[str, Any], context: EntryContext
) -> SimSettings | list[Problem]:
    """Read an entry; see `Reader`."""
    values, problems = read_config(config, KEYS)
    if not model.strip():
        hint = "any name is valid, for example sim:clever"
        problems.append(Problem(".id", '"sim" has no model name', hint))
    for key in ("answer", "wrongAnswer"):
        fault = context.templates.syntax_error(config[key]) if is_text(config.get(key)) else None
        if fault is not None:
            problems.append(Problem(config_path(key), fault))
    rates = [values.get(name) or 0.0 for name in ("error_rate", "throttle_rate")]
    if sum(rates) > 1:
        fault = f"errorRate and throttleRate together must be at most 1, got {sum(rates):g}"
        problems.append(Problem(".config.errorRate", fault))
    if problems:
        return problems
    given = {name: value for name, value in values.items() if value is not None}
    if "latency_ms" in given:
        given["latency"] = given.pop("latency_ms") / 1000
    if "retry_after_ms" in given:
        given["retry_after"] = given.pop("retry_after_ms") / 1000
    if "price" in given:
        given["price"] = read_price(given["price"])
    return SimSettings(model=model, **given)


def _usage(prompt: str, output: str) -> Usage:
    prompt_tokens, completion = (-(-len(text) // CHARACTERS_PER_TOKEN) for text in (prompt, output))
    return Usage(prompt=prompt_tokens, completion=completion, total=prompt_tokens + completion)
