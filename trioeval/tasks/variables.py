"""The variables of a row when it runs: those of its test, from files where they say so, and what others left.

In this order, so that what comes later wins: the test's own, the conversation, the registers, and what the
run itself tells. What models answered is data (see `history`), and so are rows of a dataset: neither names
a file that is read, and neither is a template.

A row gets the registers that it may look at. Where rows run in order anyway nothing is gained by leaving out
the others, so it gets those as well, unless they are many: a thousand rows with a register each would show
each other half a million.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs
import trio

from trioeval.errors import InputError
from trioeval.suite import Around, MistakenError, Step, load_file_value
from trioeval.suite.sources.around import names_file
from trioeval.suite.sources.computed import JAVASCRIPT
from trioeval.suite.sources.variables import VARIABLE_NAMES
from trioeval.tasks.access import CONVERSATION_VARIABLE, Sharing, conversation_of
from trioeval.tasks.history import History
from trioeval.tasks.scripts import Scripts
from trioeval.verbatim import from_model, verbatim

_GET_VAR = "get_var"
_FEW = 64  # registers that a row may get without looking at them


@attrs.frozen(kw_only=True)
class Found:
    """The variables of a row, not rendered."""

    own: Mapping[str, Any]
    """Those of its test, and its conversation."""
    seen: Mapping[str, Any]
    """The registers that it may look at."""
    others: Mapping[str, Any]
    """Registers that it is given though it does not name them."""
    runtime: Mapping[str, Any]
    """What the run tells."""

    @property
    def named(self) -> dict[str, Any]:
        """What the row needs."""
        return {**self.own, **self.seen, **self.runtime}

    @property
    def everything(self) -> dict[str, Any]:
        """All of it."""
        return {**self.own, **self.seen, **self.others, **self.runtime}


@attrs.frozen(kw_only=True)
class Variables:
    """Finds the variables of rows."""

    around: Around
    scripts: Scripts
    history: History
    sharing: Sharing
    visible: Callable[[Step, Mapping[str, Any]], Mapping[str, Any]]
    """Those of some registers that a row may look at; it is not concerned by what is in others."""
    in_order: bool
    """Whether rows run one after another."""
    provider_names: Sequence[str]
    """Label or id of each provider of the suite."""
    run_id: str | None = None

    async def of(self, step: Step) -> Found:
        """The variables of a row. A checkpoint if a file is read.

        Raises:
            InputError: A file cannot be read, or its function gives no text.
            ScriptError: Its function failed.
        """
        found = {
            name: copy.deepcopy(value) if isinstance(value, dict | list) else value
            for name, value in step.vars.items()
        }
        for name, value in step.vars.items():
            if name == CONVERSATION_VARIABLE:
                found[name] = from_model(value)
            elif step.test.is_data:
                found[name] = verbatim(value)
            elif names_file(value):
                found[name] = await self._from_file(name, value, step, found)
        if step.prompt_idx in self.sharing.conversations and not (
            step.test.options.disable_conversation_var
        ):
            found[CONVERSATION_VARIABLE] = self.history.turns(step, self.conversation(step))
        registers = self.history.registers(step)
        seen = self.visible(step, registers)
        others: Mapping[str, Any] = {}
        if self.in_order and len(registers) <= _FEW:
            others = {name: value for name, value in registers.items() if name not in seen}
        return Found(own=found, seen=seen, others=others, runtime=self.runtime(step))

    def runtime(self, step: Step) -> dict[str, Any]:
        """What the run tells of a step, for templates and providers; rows do not keep it."""
        number = f"test-{step.test_idx}-prompt-{step.prompt_idx}-repeat-{step.repeat_index}"
        own = {} if self.run_id is None else {"__evalId": self.run_id}
        return {**own, "__evalStepId": number, "__repeatIndex": step.repeat_index}

    def conversation(self, step: Step) -> Any:
        """Which conversation a step is a turn of."""
        return conversation_of(step, self.provider_names[step.column.provider_index])

    async def _from_file(
        self, name: str, reference: str, step: Step, variables: Mapping[str, Any]
    ) -> str:
        try:
            # Whoever made the value: a hook is not asked when the suite is loaded.
            path = self.around.file(reference)
            suffix = path.suffix.lower()
            if suffix != ".py" and suffix not in JAVASCRIPT:
                return await trio.to_thread.run_sync(
                    load_file_value, path, self.around, abandon_on_cancel=True
                )
        except MistakenError as error:
            raise InputError(f"variable {name}: {error}") from error
        arguments = [name, step.column.prompt.raw, dict(variables)]
        if suffix == ".py":
            answer = await self.scripts.call(path, _GET_VAR, arguments)
            return _output(answer, name, f"{_GET_VAR} of {reference}")
        answer = await self.scripts.javascript_file(path, None, VARIABLE_NAMES, arguments)
        return _output(answer, name, f"the function of {reference}")


def _output(answer: Any, name: str, function: str) -> str:
    """What the function of a file gives, if it is as it has to be."""
    match answer:
        case {"error": error} if error:
            raise InputError(f"variable {name}: {function} says: {error}")
        case {"output": str(output)} if output:
            return output.strip()
        case _:
            msg = f'variable {name}: {function} must return {{"output": text}}'
            raise InputError(msg)
