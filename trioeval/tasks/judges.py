"""What judges the rows of one run: makes of a row and its reply what its assertions are judged with."""

from collections.abc import Callable, Sequence
from typing import Any

import attrs

from trioeval.errors import GradingError, InputError
from trioeval.grading import KINDS, Assertion, Kinds, Subject
from trioeval.providers import Reply
from trioeval.suite import Expansion, MistakenError, Step
from trioeval.tasks.judging import WIDTH, Bench, Consulted, Judging
from trioeval.tasks.scripts import Scripts
from trioeval.tasks.tools import Asked, kept
from trioeval.tasks.transforms import OutputTransform, apply_transform


@attrs.frozen(kw_only=True)
class Judges:
    """What judges the rows of one run."""

    steps: Expansion
    scripts: Scripts
    read_transform: Callable[[str], OutputTransform]
    kinds: Kinds = KINDS
    width: int = WIDTH
    """Assertions of one row that ask outside at once, ≥ 1."""
    short_circuit: bool = False
    """Whether the first assertion of a row that fails decides."""

    def of(
        self, step: Step, asked: Asked, reply: Reply, output: Any, latency_ms: float | None
    ) -> Judging:
        """What judges one row.

        Raises:
            GradingError: The output is not JSON data.
        """
        entry = self.steps.providers[step.provider_index]
        config = {**entry.config, **asked.options}
        subject = Subject.of(
            output,
            vars=asked.vars,
            prompt=asked.prompt,
            latency_ms=latency_ms,
            cost=reply.cost,
            log_probs=reply.log_probs,
            finish_reason=reply.finish_reason,
            is_refusal=reply.is_refusal,
            flagged=None if reply.guardrails is None else reply.guardrails.flagged,
            tools=_listed(config.get("tools")),
            functions=_listed(config.get("functions")),
            metadata=reply.metadata,
        )

        async def transform(text: str, judged: Subject) -> Any:
            context = {
                "vars": kept(asked.vars),
                "prompt": {"label": step.column.prompt.label, "raw": asked.prompt},
                "metadata": dict(reply.metadata),
            }
            try:
                found = self.read_transform(text)
            except MistakenError as error:
                raise InputError(f"transform: {error}") from error
            return await apply_transform(found, judged.output, context, self.scripts)

        def consult(assertion: Assertion) -> Consulted:
            msg = f"{assertion.type} asks outside, which is not supported yet"
            raise GradingError(msg)

        bench = Bench(
            subject=subject,
            render=asked.fill,
            kinds=self.kinds,
            consult=consult,
            transform=transform,
            width=self.width,
            short_circuit=self.short_circuit,
        )
        return Judging(bench, step.test.assertions, step.test.threshold)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
