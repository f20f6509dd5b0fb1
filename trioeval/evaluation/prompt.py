"""The steps between a test and a provider: variables, prompts, transforms, and data that rows share.

Everything here is part of the row's own work: it holds no slot of any lane.
"""

import copy
import json
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.documents.files import FileContext, names_file
from trioeval.documents.mistakes import MistakenError
from trioeval.documents.structure import camel
from trioeval.errors import InputError, ScriptError, TemplateError
from trioeval.evaluation.registers import CONVERSATION_VARIABLE, Sharing, conversation_of
from trioeval.evaluation.row import Row
from trioeval.evaluation.scripts import LIMIT, Scripts
from trioeval.evaluation.shared_data import SharedData, SharedPart
from trioeval.evaluation.transforms import OutputTransform, apply_transform
from trioeval.grading import output_text
from trioeval.providers import Reply
from trioeval.scripting import SCRIPTS
from trioeval.suite.expand import Expansion, Step
from trioeval.suite.model import Prompt, PromptFunction
from trioeval.suite.sources.values import VARIABLE_NAMES, load_file_value
from trioeval.templates import Templates
from trioeval.text import Verbatim, from_model, verbatim

# Prompts that the user's programs create when a row runs.


@attrs.frozen
class GeneratedPrompt:
    """The result of a prompt function for one row."""

    raw: str
    """A template, like the text of any other prompt; a list of messages as JSON."""
    config: Mapping[str, Any]
    """The config of the prompt, updated by the function's."""


async def render_function(
    prompt: Prompt,
    variables: Mapping[str, Any],
    provider: Mapping[str, Any],
    scripts: Scripts,
    limit: float = LIMIT,
) -> GeneratedPrompt:
    """Return the text of a prompt that has a function. Always a checkpoint.

    Args:
        prompt: A prompt with a function.
        variables: The variables of the row.
        provider: Its `id`, and its `label` if it has one.
        scripts: Runs the function.
        limit: Timeout in seconds, > 0; a `timeout` in the config of the prompt, in milliseconds, is
            for programs and takes precedence.

    Raises:
        ScriptError: It failed, timed out, or returned something that cannot be a prompt.
    """
    from trioeval.providers.generic.reply import plain

    if prompt.function is None:
        msg = "render_function was called for a prompt without a function; please report this"
        raise RuntimeError(msg)
    named = {key: value for key, value in provider.items() if value is not None}
    seen = plain({"vars": dict(variables), "provider": named, "config": dict(prompt.config)})
    value = await _made(prompt.function, seen, scripts, limit)
    match value:
        case str():
            return GeneratedPrompt(value, prompt.config)
        case {"prompt": made}:
            config = value.get("config") or {}
            if not isinstance(config, Mapping):
                raise ScriptError(f"{_name(prompt.function)}: config must be an object")
            return GeneratedPrompt(output_text(made), {**prompt.config, **config})
        case dict() | list():
            return GeneratedPrompt(output_text(value), prompt.config)
        case _:
            problem = (
                f"must return text, messages, or an object with prompt, got {json.dumps(value)}"
            )
            raise ScriptError(f"{_name(prompt.function)} {problem}")


async def _made(
    function: PromptFunction, seen: Mapping[str, Any], scripts: Scripts, limit: float
) -> Any:
    file = Path(function.target)
    if function.kind == "javascript":
        must_exist = function.function is not None
        return await scripts.call(
            file, function.function or "", [seen], limit, must_exist=must_exist
        )
    if function.kind == "python" and function.function:
        return await scripts.call(file, function.function, [seen], limit)
    argument = output_text(seen)
    if function.kind == "python":
        return await scripts.python_file(file, argument, limit)
    timeout_ms = seen["config"].get("timeout")
    if isinstance(timeout_ms, int | float) and timeout_ms > 0:
        limit = timeout_ms / 1000
    return await scripts.program(function.target, argument, limit)


def _name(function: PromptFunction) -> str:
    named = Path(function.target).name
    return f"{named}:{function.function}" if function.function else named


# The variables of a running row: those of its test, partly read from files, and those that other rows left.
#
# In order of increasing precedence: the test's own, the conversation, the registers, and runtime variables.
# Replies of models are data (see `history`), and so are rows of a dataset: neither names a file to be read,
# and neither is a template.
#
# A row gets the registers that its texts name. Where rows run in order anyway, hiding the others gains
# nothing, so it gets those as well, unless there are many: a thousand rows with a register each would pass
# half a million values between them.


_GET_VAR = "get_var"
_FEW = 64  # maximum number of registers for a row that does not name them


@attrs.define(kw_only=True)  # not frozen: every row has one
class RowVariables:
    """The variables of a row, not rendered."""

    own: Mapping[str, Any]
    """The variables of its test, and its conversation."""
    seen: Mapping[str, Any]
    """The registers that its texts may name."""
    others: Mapping[str, Any]
    """Registers that it is given although it does not name them."""
    runtime: Mapping[str, Any]
    """The runtime variables."""

    @property
    def named(self) -> dict[str, Any]:
        """The variables that the row needs."""
        return {**self.own, **self.seen, **self.runtime}

    @property
    def everything(self) -> dict[str, Any]:
        """All variables."""
        return {**self.own, **self.seen, **self.others, **self.runtime}


@attrs.frozen(kw_only=True)
class VariableSource:
    """Source of the variables of rows."""

    context: FileContext
    scripts: Scripts
    history: SharedData
    sharing: Sharing
    visible: Callable[[Step, Mapping[str, Any]], Mapping[str, Any]]
    """Returns the registers that a row's texts may name; the row does not depend on the others."""
    in_order: bool
    """True if rows run one after another."""
    provider_names: Sequence[str]
    """The label or id of each provider of the suite."""
    run_id: str | None = None

    async def of(self, step: Step) -> RowVariables:
        """Return the variables of a row. A checkpoint if a file is read.

        Raises:
            InputError: A file cannot be read, or its function returns no text.
            ScriptError: Its function failed.
        """
        found = self._plain(step)
        for name in _files_of(step):
            found[name] = await self._from_file(name, step.vars[name], step, found)
        return self._beside(step, found)

    def now(self, step: Step) -> RowVariables | None:
        """Return the variables of a row without waiting; None if a file must be read."""
        return None if _files_of(step) else self._beside(step, self._plain(step))

    def _plain(self, step: Step) -> dict[str, Any]:
        """Return the variables of its test, with unread file references."""
        found = {
            name: copy.deepcopy(value) if isinstance(value, dict | list) else value
            for name, value in step.vars.items()
        }
        if step.test.is_data:
            found = {name: verbatim(value) for name, value in step.vars.items()}
        if CONVERSATION_VARIABLE in found:
            found[CONVERSATION_VARIABLE] = from_model(step.vars[CONVERSATION_VARIABLE])
        return found

    def _beside(self, step: Step, found: dict[str, Any]) -> RowVariables:
        """Return all variables of a row, given its own."""
        if step.prompt_idx in self.sharing.conversations and not (
            step.test.options.disable_conversation_var
        ):
            found[CONVERSATION_VARIABLE] = self.history.turns(step, self.conversation(step))
        registers = self.history.registers(step)
        seen = self.visible(step, registers)
        others: Mapping[str, Any] = {}
        if self.in_order and len(registers) <= _FEW:
            others = {name: value for name, value in registers.items() if name not in seen}
        return RowVariables(own=found, seen=seen, others=others, runtime=self.runtime(step))

    def runtime(self, step: Step) -> dict[str, Any]:
        """Return the runtime variables of a step, for templates and providers; rows do not store them."""
        number = f"test-{step.test_idx}-prompt-{step.prompt_idx}-repeat-{step.repeat_index}"
        own = {} if self.run_id is None else {"__evalId": self.run_id}
        return {**own, "__evalStepId": number, "__repeatIndex": step.repeat_index}

    def conversation(self, step: Step) -> Any:
        """Return the conversation that a step is a turn of."""
        return conversation_of(step, self.provider_names[step.column.provider_index])

    async def _from_file(
        self, name: str, reference: str, step: Step, variables: Mapping[str, Any]
    ) -> Any:
        try:
            # A hook may have made the value, so it cannot be checked when the suite is loaded.
            path = self.context.file(reference)
            suffix = path.suffix.lower()
            if suffix != ".py" and suffix not in SCRIPTS:
                return await trio.to_thread.run_sync(
                    load_file_value, path, self.context, abandon_on_cancel=True
                )
        except MistakenError as error:
            raise InputError(f"variable {name}: {error}") from error
        arguments = [name, step.column.prompt.raw, dict(variables)]
        if suffix == ".py":
            answer = await self.scripts.call(path, _GET_VAR, arguments)
            return _output(answer, name, f"{_GET_VAR} of {reference}")
        arguments.append({"id": self.provider_names[step.column.provider_index]})
        answer = await self.scripts.javascript_file(path, None, VARIABLE_NAMES, arguments)
        return _output(answer, name, f"the function of {reference}", of_python=False)


def _files_of(step: Step) -> Sequence[str]:
    """Return the variables of a row that reference files."""
    if step.test.is_data:
        return ()
    named = (name for name, value in step.vars.items() if names_file(value))
    return [name for name in named if name != CONVERSATION_VARIABLE]


def _output(answer: Any, name: str, function: str, *, of_python: bool = True) -> Any:
    """Return the output of a variable function, if it is valid; that of JavaScript is any value, as it is."""
    match answer:
        case {"error": error} if error:
            raise InputError(f"variable {name}: {function} returned an error: {error}")
        case {"output": str(output)} if output and of_python:
            return output.strip()
        case {"output": output} if output and not of_python:
            return output
        case _:
            right = "text" if of_python else "a value"
            msg = f'variable {name}: {function} must return {{"output": {right}}}'
            raise InputError(msg)


_LONGEST_LABEL = 40  # characters of a prompt's label in messages
_RUNTIME = frozenset({"__evalId", "__evalStepId", "__repeatIndex"})


@attrs.define(kw_only=True)  # not frozen: every row has one
class RenderedPrompt:
    """The rendered prompt of a row, with its variables and options."""

    prompt: str
    vars: Mapping[str, Any]
    """The rendered variables, including those that earlier rows left."""
    options: Mapping[str, Any]
    """Keys of the provider's config that are overridden for this row."""
    templates: Templates
    """Renders its texts."""
    named: Mapping[str, Any]
    """The variables that its texts may name, not rendered."""

    def fill(self, text: str) -> str:
        """Render a text of an assertion with the variables.

        Raises:
            TemplateError: It cannot be rendered; the message about variables is the same in every mode.
        """
        try:
            return self.templates.fill(text, self.vars)
        except TemplateError:
            return self.templates.fill(text, self.templates.rendered_variables(self.named))


@attrs.frozen(kw_only=True)
class PromptBuilder:
    """Builds the prompts of the rows of one run."""

    steps: Expansion
    templates: Templates
    variables: VariableSource
    scripts: Scripts
    read_transform: Callable[[str], OutputTransform]
    """Parses the text of a transform; an equal text is parsed once."""
    hooked: bool = False
    """True if extensions may change the registers and conversations of rows."""

    async def build(self, step: Step) -> RenderedPrompt:
        """Return the prompt of a row, with its variables.

        Raises:
            InputError: A variable cannot be used.
            ScriptError: A function of the user's failed.
            TemplateError: The prompt cannot be rendered.
        """
        found = await self.variables.of(step)
        if step.column.prompt.function is None:
            return self._asked_of(step, found)
        if found.others:
            try:
                rendered = await self._made(step, found.everything)
                return attrs.evolve(rendered, named=found.named)
            except TemplateError:
                pass  # perhaps because of a register that the row does not depend on
        return await self._made(step, found.named)

    def build_now(self, step: Step) -> RenderedPrompt | None:
        """Return the prompt without waiting; None if a user's function makes it, or a file must be read.

        Raises:
            InputError: A variable cannot be used.
            TemplateError: The prompt cannot be rendered.
        """
        if step.column.prompt.function is not None or (found := self.variables.now(step)) is None:
            return None
        return self._asked_of(step, found)

    def _asked_of(self, step: Step, found: RowVariables) -> RenderedPrompt:
        """Return the prompt of a row that is a text."""
        template, config = step.template, step.column.prompt.config
        if found.others:
            try:
                rendered = self._rendered(step, template, config, found.everything)
                return attrs.evolve(rendered, named=found.named)
            except TemplateError:
                pass  # as above
        return self._rendered(step, template, config, found.named)

    async def _made(self, step: Step, found: Mapping[str, Any]) -> RenderedPrompt:
        """Return the prompt of a row that a function makes."""
        entry = self.steps.suite.providers[step.column.provider_index]
        named = {"id": entry.shown_id, "label": entry.label}
        made = await render_function(step.column.prompt, found, named, self.scripts)
        template = from_model(made.raw) if self._sees_data(step, found) else made.raw
        return self._rendered(step, template, made.config, found)

    def _rendered(
        self, step: Step, template: str, config: Mapping[str, Any], found: Mapping[str, Any]
    ) -> RenderedPrompt:
        templates = self.templates.for_data() if step.test.is_data else self.templates
        try:
            prompt, variables = templates.render_row(template, found)
        except TemplateError as error:
            raise type(error)(f"{_described(step.column.prompt)}: {error}") from error
        return RenderedPrompt(
            prompt=prompt,
            vars=variables,
            options={**config, **step.test.options.overrides},
            templates=templates,
            named=found,
        )

    def _sees_data(self, step: Step, found: Mapping[str, Any]) -> bool:
        """Return whether code that gets the variables may see models' replies, in this row or another."""
        sharing = self.variables.sharing
        return (
            step.test.is_data
            or bool(sharing.registers)
            or step.prompt_idx in sharing.conversations
            or any(isinstance(value, Verbatim) for value in found.values())
        )

    async def transform(self, step: Step, rendered: RenderedPrompt, reply: Reply) -> Any:
        """Return the output of a reply after the provider's transform and the test's.

        Raises:
            InputError: A transform is invalid.
            ScriptError: One failed, or returned nothing.
        """
        output = reply.output
        entry = self.steps.providers[step.column.provider_index]
        if entry.transform is None and step.test.options.transform is None:
            return output
        prompt = {"label": step.column.prompt.label, "raw": rendered.prompt}
        early: dict[str, Any] = {"vars": without_runtime_variables(rendered.vars), "prompt": prompt}
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

    def remember_turn(self, step: Step, rendered: RenderedPrompt, reply: Reply) -> None:
        """Add an answered call to its conversation."""
        self._add_turn(step, rendered.prompt, reply)

    def _add_turn(self, step: Step, prompt: str, reply: Reply) -> None:
        if step.prompt_idx in self.variables.sharing.conversations:
            conversation = self.variables.conversation(step)
            self.variables.history.add_turn(step, conversation, _turn(prompt, reply))

    def store(self, step: Step, output: Any) -> None:
        """Store a non-empty output in the register that the test names."""
        name = step.test.options.store_output_as
        if name and output not in ("", 0, False):
            self.variables.history.store(step, name, output)

    def on_row_end(self, step: Step) -> None:
        """Handle the end of a row; all rows with a lower index have ended."""
        self.variables.history.on_row_end(step)

    @property
    def shares_data(self) -> bool:
        """True if any row may leave data for later ones."""
        return self.hooked or self.variables.sharing.any

    def may_store(self, step: Step) -> bool:
        """Return whether a row may store its output in a register."""
        return self.hooked or bool(step.test.options.store_output_as)

    def may_share(self, step: Step) -> bool:
        """Return whether a row may leave data for later ones."""
        return self.may_store(step) or step.prompt_idx in self.variables.sharing.conversations

    def restore(self, step: Step, record: Mapping[str, Any]) -> None:
        """Restore the data that a recorded row left, from its record as made by `trioeval.report.row_json`.

        Args:
            step: The row, as written in the suite.
            record: Its record.
        """
        response = record.get("response")
        if response is None:
            return
        if self.hooked:
            step = _as_recorded(step, record["testCase"])
        output = response.get("output")
        sent = response.get("raw", output)
        if sent is not None:
            prompt = record["prompt"]["raw"]
            self._add_turn(step, prompt, Reply(output=sent, metadata=response["metadata"]))
        if record.get("gradingResult") is not None:
            self.store(step, output)

    def remember(self, row: Row) -> None:
        """Restore the data that a row left which has ended in another process, as `restore` does."""
        if row.reply is None or row.prompt is None or not self.shares_data:
            return
        if row.reply.output is not None:
            self._add_turn(row.step, row.prompt, row.reply)
        if row.verdict is not None:
            self.store(row.step, row.output)

    def part(self, steps: Iterable[Step]) -> SharedPart | None:
        """Return the data that some rows need in another process; None without any."""
        if not self.shares_data:
            return None
        # An extension may change the conversation of a row.
        conversation = None if self.hooked else self._conversation
        return self.variables.history.part(steps, conversation)

    def add(self, part: SharedPart) -> None:
        """Add the data of another process. Called before any row starts."""
        self.variables.history.add(part)

    def _conversation(self, step: Step) -> Hashable | None:
        is_turn = step.prompt_idx in self.variables.sharing.conversations
        return self.variables.conversation(step) if is_turn else None


def _described(prompt: Prompt) -> str:
    """Return a prompt as messages name it: its label, and its place in the suite file if that is known."""
    label = " ".join(prompt.label.split())
    if len(label) > _LONGEST_LABEL:
        label = f"{label[: _LONGEST_LABEL - 1]}…"
    origin = "" if prompt.find_origin is None else prompt.find_origin()
    return f'prompt "{label}" ({origin})' if origin else f'prompt "{label}"'


def _as_recorded(step: Step, test: Mapping[str, Any]) -> Step:
    """Return a step with the register and the conversation that extensions gave it."""
    register = test["options"].get(camel("store_output_as"))
    options = attrs.evolve(step.test.options, store_output_as=register)
    found = attrs.evolve(step.test, options=options, metadata=test["metadata"])
    return attrs.evolve(step, test=found)


def without_runtime_variables(variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return variables without runtime variables."""
    return {name: value for name, value in variables.items() if name not in _RUNTIME}


def _turn(prompt: str, reply: Reply) -> Mapping[str, Any]:
    """Return the data of a call that later turns see."""
    try:
        parsed = json.loads(prompt)
    except (ValueError, RecursionError):
        parsed = None
    question = parsed or prompt
    last = parsed[-1] if isinstance(parsed, list) and parsed else None
    content = last.get("content") or last if isinstance(last, dict) else last
    return {
        "prompt": question,
        "input": content or question,
        "output": reply.output or "",
        "metadata": dict(reply.metadata),
    }
