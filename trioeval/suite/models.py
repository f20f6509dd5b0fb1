"""What a suite file means, as frozen data.

Field names are the keys of the file in snake_case. These classes can be made directly in Python as well;
a suite that was loaded from a file and one that was built by hand are the same thing.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import attrs

from trioeval.grading import Assertion
from trioeval.suite.bounds import Count, ErrorStatus, NotNegative, Number, Positive


@attrs.frozen(kw_only=True)
class LaneSettings:
    """How hard one provider key may be used."""

    key: str | None = None
    """The rate-limit scope, where it is another than the provider's; equal keys share a lane."""
    max_concurrency: Count | None = None
    """Calls in flight at once, ≥ 1; None takes the suite's `max_concurrency`."""
    rpm: Positive | None = None
    """Requests per minute, > 0; None does not limit them."""
    burst: Count = 1
    """Requests that may start together before the pace of `rpm` holds, ≥ 1."""
    tpm: Positive | None = None
    """Tokens per minute, > 0; None does not limit them."""
    delay: NotNegative | None = None
    """Least gap between two starts in milliseconds, ≥ 0; None takes the suite's `delay`."""
    adaptive: Literal["aimd", "latency", "off"] = "aimd"
    """What the calls in flight follow: refusals, latency as well, or nothing."""
    retries: Number = 3
    """How often a call that failed by mishap is made again, ≥ 0."""
    max_retries: Number | None = None
    """How often a call is made again for whatever reason, ≥ 0; None leaves refusals to the patience."""
    lane_patience: Positive = 300
    """Seconds of trouble without one success after which the lane is closed, > 0."""
    overload_statuses: tuple[ErrorStatus, ...] = ()
    """HTTP statuses that mean "too many calls" here, besides 429 and 529; ≥ 400."""
    breaker_threshold: Count = 3
    """Refusals for good in a row after which the lane is closed, ≥ 1."""


@attrs.frozen(kw_only=True)
class BudgetSettings:
    """The most that a run may use."""

    requests: Number | None = None
    """Requests, retries among them, ≥ 0; None does not bound them."""
    tokens: Number | None = None
    """Tokens of prompts and replies, ≥ 0; None does not bound them."""
    usd: NotNegative | None = None
    """US dollars, ≥ 0; None does not bound them. Every provider then needs a known price."""


@attrs.frozen(kw_only=True)
class ProviderEntry:
    """One provider as a suite names it."""

    id: str
    """`echo`, `openai:chat:gpt-4.1-mini`, `replay:file.jsonl`, or a name the caller passes a callable for."""
    label: str | None = None
    config: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    lane: LaneSettings | str | None = None
    """Settings of the provider's lane, or the name of an entry in the suite's `lanes`."""
    prompts: tuple[str, ...] | None = None
    """Labels or ids of the prompts it gets, beginnings of them with `*`, or groups; None is all of them."""
    delay: NotNegative | None = None
    """Short for the `delay` of its lane, where the lane gives none."""


@attrs.frozen(kw_only=True)
class Prompt:
    """One prompt template."""

    raw: str
    label: str
    """What tables and files call it; the raw text where nothing else is given."""
    id: str
    """Digest of label, else given id, else raw text: it stays the same from run to run."""
    given_id: str | None = None
    """The id that the file gives, by which a provider's `prompts` may name it."""


@attrs.frozen(kw_only=True)
class TestOptions:
    """Switches of one test."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    run_serially: bool | None = None
    """Run alone, before everything that may run side by side. None is as `default_test` says, else false."""
    repeat: Count | None = None
    """Replaces the suite's `repeat` for this test, ≥ 1."""


@attrs.frozen(kw_only=True)
class Test:
    """One set of variables and what is expected of the replies to it."""

    __test__ = False

    description: str | None = None
    vars: Mapping[str, Any] = attrs.field(factory=dict)
    assertions: tuple[Assertion, ...] = ()
    """The key `assert` of the file."""
    threshold: float | None = None
    """Least weighted score to pass; replaces "no assertion failed"."""
    metadata: Mapping[str, Any] = attrs.field(factory=dict)
    options: TestOptions = TestOptions()


@attrs.frozen(kw_only=True)
class EvaluateOptions:
    """How a suite is run."""

    max_concurrency: Count = 4
    """Width of every lane that names none of its own, ≥ 1."""
    timeout_ms: Positive | None = None
    """Working time of one row in milliseconds, > 0."""
    max_eval_time_ms: Positive | None = None
    """Time of the whole run in milliseconds, > 0."""
    repeat: Count = 1
    """How often each test is asked, ≥ 1."""
    delay: NotNegative = 0
    """Least gap between two starts on a lane in milliseconds, ≥ 0."""
    salvage_rounds: Number = 0
    """How often rows that failed by mishap are run once more at the end, ≥ 0."""
    budget: BudgetSettings | None = None
    """The most that the run may use; None does not bound it."""


@attrs.frozen(kw_only=True)
class Suite:
    """A whole suite."""

    providers: tuple[ProviderEntry, ...]
    prompts: tuple[Prompt, ...]
    tests: tuple[Test, ...] = (Test(),)
    """One test without variables if there are none."""
    description: str | None = None
    default_test: Test | None = None
    evaluate_options: EvaluateOptions = EvaluateOptions()
    lanes: Mapping[str, LaneSettings] = attrs.field(factory=dict)
    """Lane settings by name, for providers that share one lane."""
    directory: Path = attrs.field(factory=Path.cwd)
    """What relative paths of the suite are relative to."""
    file: Path | None = None
    """Where it was loaded from; None for a suite made in Python."""
