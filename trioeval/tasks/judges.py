"""What judges the rows of one run: makes of a row and its reply what its assertions are judged with."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import attrs

from trioeval.errors import GradingError
from trioeval.grading import KINDS, Assertion, Kinds, Subject, Verdict
from trioeval.grading.grade import with_code_as_written
from trioeval.grading.outside import Outside
from trioeval.providers import Reply
from trioeval.providers.programs.workers import Encoded
from trioeval.suite import Expansion, MistakenError, Step
from trioeval.tasks.grader_calls import OpenGraders, RowGraders
from trioeval.tasks.judging import WIDTH, Bench, Consulted, Judging
from trioeval.tasks.means import Means
from trioeval.tasks.scoring import Scoring
from trioeval.tasks.script_context import row_context, with_more
from trioeval.tasks.scripts import Scripts
from trioeval.tasks.together import together
from trioeval.tasks.tools import Asked, kept
from trioeval.tasks.transforms import OutputTransform, apply_transform


@attrs.frozen(kw_only=True)
class Judges:
    """What judges the rows of one run."""

    steps: Expansion
    scripts: Scripts
    means: Means
    graders: OpenGraders
    read_transform: Callable[[str], OutputTransform]
    scoring: Scoring
    kinds: Kinds = KINDS
    width: int = WIDTH
    """Assertions of one row that ask outside at once, ≥ 1."""
    short_circuit: bool = False
    """Whether the first assertion of a row that fails decides."""

    def of(
        self,
        graders: RowGraders,
        reply: Reply,
        output: Any,
        latency_ms: float | None,
        workspace: Path | None = None,
    ) -> Judging:
        """What judges one row.

        Args:
            graders: The models that judge it, who know what it asked.
            reply: What was answered.
            output: What became of that after all transforms.
            latency_ms: Of the provider's call.
            workspace: The folder that an agent has worked in; None where there was no agent.

        Raises:
            GradingError: The output is not JSON data.
        """
        step, asked = graders.step, graders.asked
        entry = self.steps.providers[step.provider_index]
        config = {**entry.config, **asked.options}
        subject = Subject.of(
            output,
            vars=kept(asked.vars),
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
            workspace=workspace,
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
                raise GradingError(f"transform: {error}") from error
            return await apply_transform(found, judged.output, context, self.scripts)

        async def find_context(text: str) -> Any:
            early = subject.with_output(reply.output)
            if entry.transform is not None:
                early = subject.with_output(await transform(entry.transform, early))
            return await transform(text, early)

        told: Encoded | None = None

        def context() -> Encoded:
            nonlocal told  # made for the first script, and the same for all
            if told is None:
                told = row_context(step, asked, reply, output, entry, latency_ms=latency_ms)
            return told

        def consult(assertion: Assertion) -> Consulted:
            config = {"config": assertion.config} if assertion.config else {}
            grader = graders.of(assertion)
            outside = Outside(
                grader=grader,
                code=self.means.code(lambda: with_more(context(), config)),
                post=self.means.webhooks.post,
                run=self.means.commands,
                together=together,
                lenient=self.steps.suite.evaluate_options.grading == "lenient",
                factuality=step.test.options.factuality or {},
            )
            return Consulted(outside, grader.spent, grader.replies, grader.reject)

        bench = Bench(
            subject=subject,
            render=asked.fill if workspace is None else self._with_places(asked, workspace).fill,
            kinds=self.kinds,
            consult=consult,
            transform=transform,
            context=find_context,
            rescore=self._rescore(step),
            width=self.width,
            short_circuit=self.short_circuit,
        )
        assertions: Sequence[Assertion] = step.test.assertions
        if step.test.is_data:
            assertions = with_code_as_written(assertions, self.kinds)
        return Judging(bench, assertions, step.test.threshold)

    def _with_places(self, asked: Asked, workspace: Path) -> Asked:
        """The same with what an agent is told of places as well: a test's own variables come first."""
        places = {"suite": str(self.means.directory), "workspace": str(workspace)}
        return attrs.evolve(asked, vars={**places, **asked.vars}, named={**places, **asked.named})

    def _rescore(self, step: Step) -> Callable[[Verdict], Awaitable[Verdict]] | None:
        """The scoring function of a test."""
        function, threshold = step.test.assert_scoring_function, step.test.threshold
        if function is None:
            return None
        return lambda verdict: self.scoring(function, verdict, threshold)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()
