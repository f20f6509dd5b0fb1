"""A suite that is ready to run, and its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from trioeval.documents.files import FileContext
from trioeval.errors import Problem
from trioeval.evaluation.graders import Graders
from trioeval.evaluation.registers import CellReadiness, FindAccess, SerialReadiness, Sharing
from trioeval.kernel import LaneSpec, Readiness
from trioeval.limits.model import LimitKey
from trioeval.providers import ProviderSpec
from trioeval.providers.http.wire import TlsSettings
from trioeval.providers.programs import AGENT_RUNS
from trioeval.suite.dependencies import FailedDependency
from trioeval.suite.expand import Expansion
from trioeval.suite.model import Suite, TaskType
from trioeval.templates import Templates

if TYPE_CHECKING:
    from trioeval.suite.extensions import Extension


@attrs.frozen(kw_only=True)
class PreparedSuite:
    """A suite with checked providers; nothing is open yet."""

    suite: Suite
    steps: Expansion = attrs.field(repr=False)
    """Its expansion."""
    specs: tuple[ProviderSpec, ...]
    """In the order of `steps.providers`, followed by those of `graders.entries`."""
    lane_names: tuple[str, ...]
    """The lane of each, in the same order."""
    graders: Graders = attrs.field(factory=Graders)
    """The judges."""
    lane_specs: tuple[LaneSpec, ...]
    """The lanes that it uses, with their settings."""
    lane_rooms: Mapping[str, int] = attrs.field(factory=dict)
    """The rows that should be in flight at once on lanes without a max concurrency."""
    lane_limits: Mapping[str, tuple[LimitKey, ...]] = attrs.field(factory=dict)
    """The shared limits that calls count against, by lane."""
    templates: Templates = attrs.field(repr=False)
    context: FileContext = attrs.field(repr=False)
    sharing: Sharing
    """The data that its steps leave for each other."""
    trust: TlsSettings = attrs.field(factory=TlsSettings)
    """Default TLS settings, for providers without their own."""
    hosts: frozenset[str] | None = None
    """The only hosts that it calls, if it is not trusted."""
    unknown: tuple[str, ...] = ()
    """Facts that only a run will show, if no code could run when it was prepared."""
    one_by_one: bool = False
    """True if its steps run one after another, whatever they share."""
    has_own_providers: bool = False
    """True if some providers are callables of the program, which no file can name."""
    extensions: tuple[Extension, ...] = ()
    """Called for its rows, and at its end."""
    warnings: tuple[Problem, ...] = ()
    """Problems that are not errors."""
    tasks: tuple[PreparedTask, ...] = ()
    """Its tasks, if it has several; all steps belong to them then."""
    opened: object = attrs.field(default=None, repr=False)
    """Files that a task type has opened before the run, in that type's own format; None without any."""

    @property
    def parts(self) -> tuple[PreparedTask, ...]:
        """Its tasks; a suite without them is one unnamed task."""
        return self.tasks or (PreparedTask(prepared=self),)

    @property
    def task_types(self) -> frozenset[TaskType]:
        """The types of its tasks."""
        return frozenset(part.prepared.suite.settings.type for part in self.parts)

    @property
    def size(self) -> int:
        """The known number of rows of all of its tasks."""
        return sum(part.rows or 0 for part in self.parts)

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The label, or else the id, of each provider of the suite."""
        return tuple(entry.name for entry in self.suite.providers)

    @property
    def has_simulated_users(self) -> bool:
        """True if some tests are conversations with a simulated user."""
        return any(stretch.shape.user is not None for stretch in self.steps.stretches)

    @property
    def judge_lanes(self) -> tuple[str, ...]:
        """The lanes of its judges."""
        return self.lane_names[len(self.steps.providers) :]

    @property
    def lane_labels(self) -> Mapping[str, str]:
        """The label of each lane that has a labelled provider; of a lane with several, all of their names.

        A lane that the suite names itself has no label.
        """
        names: dict[str, dict[str, None]] = {}
        labelled: set[str] = set()
        for part in self.parts:
            providers, lanes = part.prepared.steps.providers, part.prepared.lane_names
            for entry, lane in zip(providers, lanes, strict=False):  # lanes of judges follow
                is_named = isinstance(entry.lane, str) or (
                    entry.lane is not None and entry.lane.key
                )
                if is_named or lane == AGENT_RUNS:
                    continue
                names.setdefault(lane, {})[entry.name] = None
                if entry.label is not None:
                    labelled.add(lane)
        return {lane: ", ".join(names[lane]) for lane in names if lane in labelled}

    @property
    def access(self) -> FindAccess:
        """Finds the shared data that its steps read, and that they leave themselves."""
        opaque = (place for place, spec in enumerate(self.specs) if not spec.ignores_variables)
        return FindAccess(
            self.steps, self.sharing, self.templates, self.provider_names, frozenset(opaque)
        )

    @property
    def in_order(self) -> bool:
        """True if its steps run one after another."""
        return self.why_in_order is not None

    @property
    def why_in_order(self) -> str | None:
        """The reason why its steps run one after another, as text; None if they do not."""
        sharing, mode = self.sharing, self.suite.evaluate_options.serialize
        if self.one_by_one:
            return "a delay is set"
        # A hook may change what a test reads, and that is not known before.
        is_hooked = bool(self.extensions)
        if sharing.conversations and (is_hooked or mode not in {"conversation", "auto"}):
            speaking = [
                str(number)
                for number, prompt in enumerate(self.steps.suite.prompts, 1)
                if any(
                    column.prompt == prompt and column.prompt_idx in sharing.conversations
                    for column in self.steps.columns
                )
            ]
            several = "prompts {} use" if len(speaking) > 1 else "prompt {} uses"
            return f"{several.format(', '.join(speaking))} _conversation"
        if sharing.registers and (is_hooked or mode not in {"register", "auto"}):
            return f"tests use storeOutputAs ({', '.join(sorted(sharing.registers))})"
        if self.extensions:
            from trioeval.evaluation.hooks import may_set_register

            if any(map(may_set_register, self.extensions)):
                return "an extension may change what rows store for each other"
        return None

    @property
    def order(self) -> Callable[[], Readiness] | None:
        """Decides which steps may start; None if all of them may at once."""
        return self.order_among(range(len(self.steps)))

    def order_among(self, steps: Sequence[int]) -> Callable[[], Readiness] | None:
        """Return what decides which of some steps may start, by their positions among them.

        Args:
            steps: Indices of steps, ascending. All others on which they depend have ended.
        """
        if not (self.in_order or self.sharing.any):
            return None
        serial: Sequence[int] = self.steps.serial_indices
        if len(steps) < len(self.steps):
            places = {step: place for place, step in enumerate(steps)}
            serial = [places[step] for step in serial if step in places]
        if self.in_order:
            return lambda: SerialReadiness.of(len(steps), serial)
        access = self.access
        return lambda: CellReadiness.of(len(steps), serial, lambda place: access(steps[place]))


@attrs.frozen(kw_only=True)
class PreparedTask:
    """One of the tasks of a prepared suite."""

    id: str | None = None
    """None if the suite is a single task."""
    place: int | None = None
    """Its index among the tasks of the file."""
    depends_on: tuple[str, ...] = ()
    """Ids of the tasks that must run before it."""
    when_failed: FailedDependency = "skip"
    """The action if one of those is not complete."""
    prepared: PreparedSuite
    prepare_with_rows: Callable[[Sequence[Mapping[str, Any]]], PreparedSuite] | None = attrs.field(
        default=None, eq=False, repr=False
    )
    """Prepares it with its tests when they are another task's rows; `prepared` has one placeholder test
    until then. Raises the exceptions of `prepare`, and `InputError`. None if its tests are known."""
    source_rows: Sequence[Mapping[str, Any]] | None = attrs.field(
        default=None, eq=False, repr=False
    )
    """The rows of another task that its tests are; None while they are not known, and for other tests."""

    @property
    def rows(self) -> int | None:
        """The number of rows; None if it is not known yet, and for a dataset."""
        is_known = self.prepare_with_rows is None and self.prepared.suite.settings.type != "columns"
        return len(self.prepared.steps) if is_known else None
