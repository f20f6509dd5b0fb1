"""The commands of a suite's assertions; the code that runs them is imported for the first one."""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs
import trio

from trioeval.documents.trust import TRUSTED, Trust
from trioeval.errors import GradingError
from trioeval.executables import start_failure
from trioeval.grading.services import CommandEnd
from trioeval.text import quote

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC, errno.ELOOP})


@attrs.frozen
class SuiteCommands:
    """Runs the commands of a suite's assertions, which execute code that agents wrote."""

    directory: Path
    """The suite's folder; commands get it as `TRIOEVAL_SUITE`."""
    environ: Mapping[str, str] = attrs.field(repr=False)
    """The environment of the suite's code; commands get it without keys."""
    trust: Trust = TRUSTED
    """The permissions of the suite; commands of an untrusted suite do not run."""

    async def __call__(
        self, command: Sequence[str], *, folder: Path, environ: Mapping[str, str], limit: float
    ) -> CommandEnd:
        """Run a command to its end; see `trioeval.grading.services.Commands`. Always a checkpoint.

        Raises:
            GradingError: It cannot be started, for a reason outside of the workspace.
        """
        from trioeval.evaluation.commands import run_command, secrets_to_hide, without_key_variables
        from trioeval.providers.programs.exec import OutputTail
        from trioeval.providers.programs.processes import describe_end

        if not self.trust.trusted:
            await trio.lowlevel.checkpoint()
            raise GradingError(self.trust.code_refusal(quote(command[0])).message)
        places = {"TRIOEVAL_SUITE": str(self.directory), "TRIOEVAL_WORKSPACE": str(folder)}
        whole = {**without_key_variables(self.environ), **places, **environ}
        written = OutputTail(secrets=secrets_to_hide(self.environ, environ))
        try:
            code = await run_command(command, folder, whole, limit, written)
        except (OSError, ValueError) as error:
            return _not_started(command, folder, error)
        late = f"did not end within {limit:g} seconds (timeoutMs)"
        how = late if code is None else describe_end(code)
        return CommandEnd(code=code, how=how, output=written.text or "")


def _not_started(command: Sequence[str], folder: Path, error: OSError | ValueError) -> CommandEnd:
    """Return the result if the agent is at fault; raise `GradingError` otherwise."""
    if isinstance(error, ValueError):  # a NUL among the words
        msg = f"{quote(command[0])} cannot be started: {error}"
        raise GradingError(msg) from None
    if not folder.is_dir():
        return CommandEnd(code=None, how="cannot run: the workspace no longer exists")
    how = f"cannot be started: {error.strerror}"
    is_inside = os.sep in command[0] and not command[0].startswith(os.sep)
    if is_inside and error.errno in _NOT_THERE:
        return CommandEnd(code=None, how=how)  # a file that the agent was supposed to create
    msg = start_failure(command[0], error)
    raise GradingError(msg) from None
