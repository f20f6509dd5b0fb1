# Separate from `cli.commands.simulate`: pure models from observations, without files and flags.
"""Models of providers from observed calls, or from given figures. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from trioeval.errors import FAULT_BY_KIND, Fault, UsageError
from trioeval.evaluation.metering import estimate_tokens
from trioeval.providers import ProviderSpec
from trioeval.providers.local.recordings import Recording
from trioeval.simulation.datasets import SimulatedDataset
from trioeval.simulation.model import ProviderModel, SampledCall, Spread
from trioeval.simulation.rows import SimulatedTask

_MOST = 1000
"""Calls of a sample; of more, evenly spaced quantiles are kept."""
_INSTANT = ProviderModel(calls=(SampledCall(0.0),), source="instant")

HINT = "pass --from RUN, --recording FILE or --latency 0.8±0.3"


@attrs.frozen(kw_only=True)
class ObservedCall:
    """One call of an earlier run."""

    provider: str | None
    """The label or id of the provider; None if it is unknown."""
    latency: float
    """Seconds."""
    prompt_tokens: int = 0
    reply_tokens: int = 0
    money: float = 0.0
    """US dollars."""
    fault: Fault | None = None
    """The kind of failure; None for a success."""
    row: tuple[str | None, int] | None = None
    """The task and the index of its row, if the row may have made several calls to the provider."""


@attrs.frozen(kw_only=True)
class GivenFigures:
    """Figures that a user gives instead of observations, or in addition to them."""

    latency: Mapping[str | None, Spread] = attrs.field(factory=dict)
    """Seconds, by the label or id of a provider; None for all others."""
    prompt_tokens: Spread | None = None
    """None measures some prompts of the suite."""
    reply_tokens: Spread = attrs.field(factory=lambda: Spread(150, 50))
    failure_share: float | None = None
    """Share of requests that fail; None uses the observed one."""
    agent_calls: Spread | None = None
    """Calls of a case of an agent; None uses the observed numbers."""


def recorded_calls(recordings: Iterable[Recording]) -> Iterator[ObservedCall]:
    """Yield the calls of a recording that have a latency."""
    for one in recordings:
        if one.latency_ms is None:
            continue
        usage, fault = one.usage, None
        if one.error is not None:
            fault = one.error.fault or FAULT_BY_KIND[one.error.kind]
        prompt, reply = usage.prompt, usage.completion
        if prompt is None:
            prompt = estimate_tokens(one.prompt)
        if reply is None:
            reply = 0 if usage.total is None else usage.total - prompt
            if usage.total is None and one.output is not None:
                reply = estimate_tokens(one.output)
        yield ObservedCall(
            provider=one.provider,
            latency=one.latency_ms / 1000,
            prompt_tokens=prompt,
            reply_tokens=max(0, reply),
            money=one.cost or 0.0,
            fault=fault,
        )


def observed_models(
    calls: Iterable[ObservedCall], source: str
) -> Mapping[str | None, ProviderModel]:
    """Return the model of each provider that was called successfully, and with None that of all calls.

    Example:
        >>> calls = [ObservedCall(provider="m", latency=n / 8, reply_tokens=5) for n in range(1, 4)]
        >>> calls.append(ObservedCall(provider="m", latency=1, fault=Fault.TRANSIENT))
        >>> model = observed_models(calls, "run a")["m"]
        >>> model.mean_latency, model.mean_tokens, model.failure_share
        (0.25, 5.0, 0.25)
    """
    by_name: defaultdict[str | None, list[ObservedCall]] = defaultdict(list)
    for call in calls:
        by_name[call.provider].append(call)
        if call.provider is not None:
            by_name[None].append(call)
    return {
        name: model
        for name, own in by_name.items()
        if (model := _observed(own, source)) is not None
    }


def provider_models(
    tasks: Sequence[SimulatedTask | SimulatedDataset],
    observed: Mapping[str | None, ProviderModel],
    given: GivenFigures,
) -> tuple[Mapping[str, ProviderModel], Sequence[str]]:
    """Return the model of each provider and judge of a suite by its label or id, and notes for people.

    Raises:
        UsageError: Nothing is known about a provider, or a figure is given for one that the suite lacks.
    """
    specs = {spec.name: (task, place) for task in tasks for place, spec in task.called()}
    if strange := [name for name in given.latency if name is not None and name not in specs]:
        named = ", ".join(specs)
        raise UsageError(f"--latency names {strange[0]!r}; the providers are {named}")
    models: dict[str, ProviderModel] = {}
    borrowed, unknown = [], []
    for name, (task, place) in specs.items():
        model = _model_of(name, task, place, observed, given)
        if model is None and None in observed:
            model = observed[None]
            borrowed.append(name)
        if model is None:
            unknown.append(name)
        else:
            models[name] = model
    if unknown:
        names = ", ".join(unknown)
        raise UsageError(f"the latency of {names} is not known: {HINT}")
    if given.failure_share is not None:
        share = given.failure_share
        models = {name: attrs.evolve(one, failure_share=share) for name, one in models.items()}
    models.update(_agent_models(tasks, models, given.agent_calls))
    notes = []
    if borrowed:
        notes.append(
            f"no calls of {', '.join(borrowed)} are known: those of all providers are used"
        )
    return models, notes


def _agent_models(
    tasks: Sequence[SimulatedTask | SimulatedDataset],
    models: Mapping[str, ProviderModel],
    given: Spread | None,
) -> Mapping[str, ProviderModel]:
    """Return the models of the providers of agents, with the number of calls of a case.

    Raises:
        UsageError: That number is not known.
    """
    found: dict[str, ProviderModel] = {}
    for task in tasks:
        if not isinstance(task, SimulatedTask) or not task.is_agent:
            continue
        for place in task.prepared.steps.used_providers:
            name = task.prepared.specs[place].name
            model = models[name]
            if given is not None:
                model = attrs.evolve(model, rounds=[max(1, round(n)) for n in given.sample()])
            elif not model.rounds:
                title = "the task" if task.part.id is None else f"task {task.part.id}"
                message = f"the number of calls of {name} for each case of {title} is not known"
                raise UsageError(f"{message}: pass --from RUN of that task, or --agent-calls 12±4")
            found[name] = model
    return found


def _model_of(
    name: str,
    task: SimulatedTask | SimulatedDataset,
    place: int,
    observed: Mapping[str | None, ProviderModel],
    given: GivenFigures,
) -> ProviderModel | None:
    """Return the model of a provider: the most specific one; None if only others are known."""
    spec = task.prepared.specs[place]
    if name in given.latency:
        return _given(task, place, spec, given.latency[name], given)
    if name in observed:
        return observed[name]
    if spec.is_instant_and_free:
        return _INSTANT
    if None in given.latency:
        return _given(task, place, spec, given.latency[None], given)
    return None


def _given(
    task: SimulatedTask | SimulatedDataset,
    place: int,
    spec: ProviderSpec,
    latency: Spread,
    given: GivenFigures,
) -> ProviderModel:
    prompts = given.prompt_tokens
    if prompts is None:
        is_judge = place >= len(task.prepared.steps.providers)
        lengths = [] if is_judge else [estimate_tokens(text) for text in task.prompts(place)]
        prompts = Spread(sum(lengths) / len(lengths)) if lengths else given.reply_tokens
    price = spec.metering.price
    calls = []
    size = max(len(latency.sample()), len(given.reply_tokens.sample()))
    for number in range(size):
        # Longer replies take longer.
        seconds, reply = (_nth(one.sample(), number, size) for one in (latency, given.reply_tokens))
        prompt, tokens = round(prompts.mean), round(reply)
        money = spec.metering.most_cost or 0.0
        if price is not None:
            money = price.most(prompt, tokens)
        calls.append(SampledCall(seconds, prompt, tokens, money))
    return ProviderModel(calls=tuple(calls), source="given figures")


def _nth(values: Sequence[float], number: int, size: int) -> float:
    return values[number * len(values) // size]


def _observed(calls: Sequence[ObservedCall], source: str) -> ProviderModel | None:
    served = sorted(
        (call for call in calls if call.fault is None),
        key=lambda call: (call.latency, call.reply_tokens),
    )
    if not served:
        return None
    size = min(_MOST, len(served))
    kept = (served[number * len(served) // size] for number in range(size))
    failures = [call for call in calls if call.fault is Fault.TRANSIENT]
    refusals = [call.latency for call in calls if call.fault is Fault.RATE_LIMITED]
    everything = len(served) + len(failures) + len(refusals)
    rounds = Counter(call.row for call in served if call.row is not None)
    model = ProviderModel(
        calls=tuple(
            SampledCall(call.latency, call.prompt_tokens, call.reply_tokens, call.money)
            for call in kept
        ),
        failure_share=len(failures) / everything,
        refusal_share=len(refusals) / everything,
        rounds=sorted(rounds.values()),
        source=f"{len(served):,} calls of {source}",
    )
    if not refusals:
        return model
    return attrs.evolve(model, refusal_latency=sum(refusals) / len(refusals))


def without_random_refusals(model: ProviderModel) -> ProviderModel:
    """Return a model whose requests are refused by limits only."""
    return attrs.evolve(model, refusal_share=0.0)
