"""What stands between a test and a provider: variables, prompts, transforms, and what rows leave each other.

Everything here is the row's own work: it holds no slot of any lane.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from trioeval.errors import InputError, TemplateError
from trioeval.providers import Reply
from trioeval.suite import Expansion, MistakenError, Step, Templates
from trioeval.suite.strict import camel
from trioeval.tasks.prompt_functions import render_function
from trioeval.tasks.scripts import Scripts
from trioeval.tasks.transforms import OutputTransform, apply_transform
from trioeval.tasks.variables import Variables
from trioeval.verbatim import Verbatim, from_model

_RUNTIME = frozenset({"__evalId", "__evalStepId", "__repeatIndex"})


@attrs.frozen(kw_only=True)
class Asked:
    """What a row asks."""

    prompt: str
    vars: Mapping[str, Any]
    """The variables, rendered, and with what earlier rows left."""
    options: Mapping[str, Any]
    """Keys of the provider's config that are different for this row."""
    templates: Templates
    """What renders its texts."""
    named: Mapping[str, Any]
    """The variables that its texts may name, not rendered."""

    def fill(self, text: str) -> str:
        """A text of an assertion, with the variables.

        Raises:
            TemplateError: It cannot be rendered; what is told of variables is the same in every mode.
        """
        try:
            return self.templates.fill(text, self.vars)
        except TemplateError:
            return self.templates.fill(text, self.templates.rendered_variables(self.named))


@attrs.frozen(kw_only=True)
class Tools:
    """What the rows of one run are made with."""

    steps: Expansion
    templates: Templates
    variables: Variables
    scripts: Scripts
    read_transform: Callable[[str], OutputTransform]
    """From the text of a transform to what can be applied; the same text is read once."""
    hooked: bool = False
    """Whether extensions may give rows other registers and conversations than their tests have."""

    async def ask(self, step: Step) -> Asked:
        """What a row asks: its variables, and the prompt that they make.

        Raises:
            InputError: A variable cannot be used.
            ScriptError: A function of the user's failed.
            TemplateError: The prompt cannot be rendered.
        """
        found = await self.variables.of(step)
        templates = self.templates.for_data() if step.test.is_data else self.templates
        if found.others:
            try:
                asked = await self._asked(step, found.everything, templates)
                return attrs.evolve(asked, named=found.named)
            except TemplateError:
                pass  # perhaps of a register that the row has nothing to do with
        return await self._asked(step, found.named, templates)

    async def _asked(self, step: Step, found: Mapping[str, Any], templates: Templates) -> Asked:
        prompt = step.column.prompt
        template, config = step.template, prompt.config
        if prompt.function is not None:
            entry = self.steps.suite.providers[step.column.provider_index]
            named = {"id": entry.id, "label": entry.label}
            made = await render_function(prompt, found, named, self.scripts)
            template, config = made.raw, made.config
            if self._sees_data(step, found):
                template = from_model(template)
        return Asked(
            prompt=templates.render_prompt(template, found),
            vars=templates.rendered_variables(found),
            options={**config, **step.test.options.overrides},
            templates=templates,
            named=found,
        )

    def _sees_data(self, step: Step, found: Mapping[str, Any]) -> bool:
        """Whether code that is given the variables may be given what models wrote, in this row or another."""
        sharing = self.variables.sharing
        return (
            step.test.is_data
            or bool(sharing.registers)
            or step.prompt_idx in sharing.conversations
            or any(isinstance(value, Verbatim) for value in found.values())
        )

    async def transform(self, step: Step, asked: Asked, reply: Reply) -> Any:
        """The output of a reply after the provider's transform and the test's.

        Raises:
            InputError: A transform is not what one can be.
            ScriptError: One failed, or gave nothing.
        """
        output = reply.output
        entry = self.steps.providers[step.column.provider_index]
        if entry.transform is None and step.test.options.transform is None:
            return output
        prompt = {"label": step.column.prompt.label, "raw": asked.prompt}
        early: dict[str, Any] = {"vars": kept(asked.vars), "prompt": prompt}
        late = {**early, "metadata": dict(reply.metadata)}
        for text, context in ((entry.transform, early), (step.test.options.transform, late)):
            if text is None:
                continue
            try:
                transform = self.read_transform(text)
            except MistakenError as error:
                raise InputError(f"transform: {error}") from error
            output = await apply_transform(transform, output, context, self.scripts)
        return output

    def remember_turn(self, step: Step, asked: Asked, reply: Reply) -> None:
        """Add an answered call to its conversation."""
        self._add_turn(step, asked.prompt, reply)

    def _add_turn(self, step: Step, prompt: str, reply: Reply) -> None:
        if step.prompt_idx in self.variables.sharing.conversations:
            conversation = self.variables.conversation(step)
            self.variables.history.add_turn(step, conversation, _turn(prompt, reply))

    def store(self, step: Step, output: Any) -> None:
        """Leave an output in the register that the test names, unless it is empty."""
        name = step.test.options.store_output_as
        if name and output not in ("", 0, False):
            self.variables.history.store(step, name, output)

    def over(self, step: Step) -> None:
        """A row is over, and all with a lower index."""
        self.variables.history.over(step)

    @property
    def remembers(self) -> bool:
        """Whether any row may leave something for later ones."""
        return self.hooked or self.variables.sharing.any

    def stores(self, step: Step) -> bool:
        """Whether a row may leave its output in a register."""
        return self.hooked or bool(step.test.options.store_output_as)

    def leaves(self, step: Step) -> bool:
        """Whether a row may leave anything for later ones."""
        return self.stores(step) or step.prompt_idx in self.variables.sharing.conversations

    def restore(self, step: Step, record: Mapping[str, Any]) -> None:
        """Leave what a row left that was recorded, as `trioeval.report.row_json` has it.

        Args:
            step: The row, as the suite has it.
            record: What was recorded of it.
        """
        response = record.get("response")
        if response is None:
            return
        if self.hooked:
            step = _as_recorded(step, record["testCase"])
        output = response.get("output")
        sent = response.get("raw", output)
        if sent is not None:
            asked = record["prompt"]["raw"]
            self._add_turn(step, asked, Reply(output=sent, metadata=response["metadata"]))
        if record.get("gradingResult") is not None:
            self.store(step, output)


def _as_recorded(step: Step, test: Mapping[str, Any]) -> Step:
    """A step with the register and the conversation that extensions gave it."""
    register = test["options"].get(camel("store_output_as"))
    options = attrs.evolve(step.test.options, store_output_as=register)
    found = attrs.evolve(step.test, options=options, metadata=test["metadata"])
    return attrs.evolve(step, test=found)


def kept(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Variables without what only the run itself is told."""
    return {name: value for name, value in variables.items() if name not in _RUNTIME}


def _turn(prompt: str, reply: Reply) -> Mapping[str, Any]:
    """What later turns see of a call."""
    try:
        parsed = json.loads(prompt)
    except (ValueError, RecursionError):
        parsed = None
    asked = parsed or prompt
    last = parsed[-1] if isinstance(parsed, list) and parsed else None
    content = last.get("content") or last if isinstance(last, dict) else last
    return {
        "prompt": asked,
        "input": content or asked,
        "output": reply.output or "",
        "metadata": dict(reply.metadata),
    }
