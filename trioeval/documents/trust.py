"""What a suite may do on the user's machine, and with the user's keys.

A suite is a program: it names code that runs, and servers that get keys. One that is not trusted runs no
code, sees only the variables of the environment that the user allows, and asks only its own providers. A
plan runs no code either, whatever suite it is of.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import attrs

from trioeval.documents.mistakes import Mistake
from trioeval.errors import UsageError

Code: TypeAlias = Literal["run", "later", "refused"]
"""Whether code of a suite runs while it is loaded; `later` only checks it, and notes what it would make."""

CODE_PREFIXES = ("exec:", "file:", "python:")
"""What ids of providers begin with that run code on this machine."""

INSECURE = ("INSECURE_SSL", "CA_CERT_PATH")
"""Variables, behind `TRIOEVAL_` or `PROMPTFOO_`, that change which servers are believed."""

_PREFIXES = ("TRIOEVAL_", "PROMPTFOO_")
_INSECURE_NAMES = frozenset(prefix + name for prefix in _PREFIXES for name in INSECURE)
LEAVE_OUT = "leave it out; a suite that you trust runs without --untrusted"
"""What to do about something that only a trusted suite may do."""


@attrs.frozen(kw_only=True)
class Trust:
    """What one suite may do.

    Example:
        >>> Trust().code, Trust(plans=True).code, Trust(trusted=False).code
        ('run', 'later', 'refused')
        >>> Trust(trusted=False, allow_env=frozenset({"TEAM"})).visible(
        ...     {"TEAM": "a", "KEY": "b"}, ()
        ... )
        {'TEAM': 'a'}
    """

    trusted: bool = True
    plans: bool = False
    """Whether it is only to be known what a run would do."""
    allow_env: frozenset[str] = frozenset()
    """Variables of the environment that templates of a suite that is not trusted may see."""

    @property
    def code(self) -> Code:
        """Whether code of the suite runs."""
        if not self.trusted:
            return "refused"
        return "later" if self.plans else "run"

    def code_refusal(self, what: str) -> Mistake:
        """The mistake of code in a suite that may not run any."""
        return Mistake(f"{what} is code, and an untrusted suite runs none", LEAVE_OUT)

    def visible(self, environ: Mapping[str, str], own: Iterable[str]) -> Mapping[str, str]:
        """The variables that templates may see.

        Args:
            environ: Those of the machine, and over them those of the suite.
            own: Names of those that the suite itself gives.
        """
        if self.trusted:
            return environ
        names = self.allow_env.union(own)
        return {name: value for name, value in environ.items() if name in names}

    def withheld(self, environ: Mapping[str, str], own: Iterable[str]) -> frozenset[str]:
        """Names of the variables that are set, and that templates may not see."""
        return frozenset(environ.keys() - self.visible(environ, own).keys())

    def env_refusal(self, name: str) -> Mistake:
        """The mistake of a template that names a variable which it may not see."""
        message = f"an untrusted suite does not see the environment variable {name}"
        return Mistake(message, f"allow it with --allow-env {name}")

    def without_insecure(self, env: Mapping[str, str]) -> dict[str, str]:
        """Variables that a suite gives itself, without those that change which servers are believed."""
        if self.trusted:
            return dict(env)
        return {name: value for name, value in env.items() if name not in _INSECURE_NAMES}


TRUSTED = Trust()
"""What a suite of the user's own may do: everything."""


def trust_of(
    *,
    trusted: bool,
    allow_env: Iterable[str] = (),
    allow_outside: bool = False,
    plans: bool = False,
) -> Trust:
    """What a suite may do, as its caller says it.

    Args:
        trusted: Whether it may run code, see the environment, and send requests to any host.
        allow_env: Variables that templates may see although it is not trusted.
        allow_outside: Whether it may read files outside of its folder.
        plans: Whether it is only to be known what a run would do.

    Raises:
        UsageError: These exclude each other.
    """
    if trusted and (names := sorted(allow_env)):
        raise UsageError(
            f"--allow-env {names[0]} is without effect: a trusted suite sees the whole environment; "
            "add --untrusted (trusted=False), or leave it out"
        )
    if not trusted and allow_outside:
        raise UsageError(
            "--untrusted and --allow-outside exclude each other: an untrusted suite stays in its folder"
        )
    return Trust(trusted=trusted, plans=plans, allow_env=frozenset(allow_env))
