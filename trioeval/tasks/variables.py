"""The variables of a row when it runs: those of its test, from files where they say so, and what others left.

In this order, so that what comes later wins: the test's own, the conversation, the registers, and what the
run itself tells. Files are read first: what a model answered must never name a file that is read.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import trio

from trioeval.errors import InputError
from trioeval.suite import Around, MistakenError, Step, load_file_value
from trioeval.tasks.access import CONVERSATION_VARIABLE, Sharing, conversation_of
from trioeval.tasks.history import History
from trioeval.tasks.scripts import Scripts

_FILE = "file://"
_GET_VAR = "get_var"


@attrs.frozen(kw_only=True)
class Variables:
    """Finds the variables of rows."""

    around: Around
    scripts: Scripts
    history: History
    sharing: Sharing
    may_read: Callable[[Step], bool]
    """Whether a row may look at a register; one that does not is not concerned by what is in it."""
    provider_names: Sequence[str]
    """Label or id of each provider of the suite."""
    run_id: str | None = None

    async def of(self, step: Step) -> dict[str, Any]:
        """The variables of a row, not rendered. A checkpoint if a file is read.

        Raises:
            InputError: A file cannot be read, or its function gives no text.
            ScriptError: Its function failed.
        """
        found = {
            name: copy.deepcopy(value) if isinstance(value, dict | list) else value
            for name, value in step.vars.items()
        }
        for name, value in step.vars.items():
            if isinstance(value, str) and value.startswith(_FILE):
                found[name] = await self._from_file(name, value, step, found)
        if step.prompt_idx in self.sharing.conversations and not (
            step.test.options.disable_conversation_var
        ):
            found[CONVERSATION_VARIABLE] = self.history.turns(step, self.conversation(step))
        if self.sharing.registers and self.may_read(step):
            found |= self.history.registers(step)
        return found | self.runtime(step)

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
        path = Path(self.around.directory, reference.removeprefix(_FILE))
        if path.suffix == ".py":
            arguments = [name, step.column.prompt.raw, dict(variables)]
            answer = await self.scripts.call(path, _GET_VAR, arguments)
            return _output(answer, name, reference)
        try:
            return await trio.to_thread.run_sync(
                load_file_value, path, self.around, abandon_on_cancel=True
            )
        except MistakenError as error:
            raise InputError(f"variable {name}: {error}") from error


def _output(answer: Any, name: str, reference: str) -> str:
    """What `get_var` gives, if it is as it has to be."""
    match answer:
        case {"error": error} if error:
            raise InputError(f"variable {name}: {reference} says: {error}")
        case {"output": str(output)} if output:
            return output.strip()
        case _:
            msg = f'variable {name}: {_GET_VAR} of {reference} must return {{"output": text}}'
            raise InputError(msg)
