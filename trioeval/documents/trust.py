"""The permissions of a suite on the user's machine, and with the user's keys.

A suite is a program: it names code that runs, and servers that receive keys. An untrusted suite runs no code,
sees only the environment variables that the user allows, and sends requests only to its own providers. A
plan runs no code either, from trusted suites included.
"""

from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import attrs

from trioeval.documents.mistakes import Mistake
from trioeval.errors import UsageError

Code: TypeAlias = Literal["run", "later", "refused"]
"""Permission for code of a suite during loading; `later` only checks it, and records what it would make."""

CODE_PREFIXES = ("exec:", "file:", "javascript:", "python:")
"""Prefixes of the ids of providers that run code on this machine."""

INSECURE = ("INSECURE_SSL", "CA_CERT_PATH")
"""Variables, after `TRIOEVAL_` or `PROMPTFOO_`, that change which servers are trusted."""

_PREFIXES = ("TRIOEVAL_", "PROMPTFOO_")
_INSECURE_NAMES = frozenset(prefix + name for prefix in _PREFIXES for name in INSECURE)
LEAVE_OUT = "leave it out; a suite that you trust runs without --untrusted"
"""The hint for something that only a trusted suite may do."""


@attrs.frozen(kw_only=True)
class Trust:
    """The permissions of one suite.

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
    """True if nothing runs and only the plan of a run is made."""
    allow_env: frozenset[str] = frozenset()
    """Environment variables that templates of an untrusted suite may see."""

    @property
    def code(self) -> Code:
        """The permission for code of the suite."""
        if not self.trusted:
            return "refused"
        return "later" if self.plans else "run"

    def code_refusal(self, feature: str) -> Mistake:
        """Return the mistake of code in a suite that may not run any."""
        return Mistake(f"{feature} is code, and an untrusted suite runs none", LEAVE_OUT)

    def visible(self, environ: Mapping[str, str], own: Iterable[str]) -> Mapping[str, str]:
        """Return the variables that templates may see.

        Args:
            environ: The variables of the machine, overridden by those of the suite.
            own: Names of the variables that the suite itself defines.
        """
        if self.trusted:
            return environ
        names = self.allow_env.union(own)
        return {name: value for name, value in environ.items() if name in names}

    def withheld(self, environ: Mapping[str, str], own: Iterable[str]) -> frozenset[str]:
        """Return the names of variables that are set and that templates may not see."""
        return frozenset(environ.keys() - self.visible(environ, own).keys())

    def env_refusal(self, name: str) -> Mistake:
        """Return the mistake of a template that names a variable it may not see."""
        message = f"an untrusted suite does not see the environment variable {name}"
        return Mistake(message, f"allow it with --allow-env {name}")

    def without_insecure(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return variables of a suite without those that change which servers are trusted."""
        if self.trusted:
            return dict(env)
        return {name: value for name, value in env.items() if name not in _INSECURE_NAMES}


TRUSTED = Trust()
"""The permissions of the user's own suite: everything."""


def trust_of(
    *,
    trusted: bool,
    allow_env: Iterable[str] = (),
    allow_outside: bool = False,
    plans: bool = False,
) -> Trust:
    """Return the permissions that a caller gives to a suite.

    Args:
        trusted: It may run code, see the environment, and send requests to any host.
        allow_env: Variables that templates may see although the suite is not trusted.
        allow_outside: It may read files outside of its folder.
        plans: Nothing runs; only the plan of a run is made.

    Raises:
        UsageError: The arguments contradict each other.
    """
    if trusted and (names := sorted(allow_env)):
        raise UsageError(
            f"--allow-env {names[0]} has no effect: a trusted suite sees the whole environment; "
            "add --untrusted (trusted=False), or leave it out"
        )
    if not trusted and allow_outside:
        raise UsageError(
            "--untrusted and --allow-outside exclude each other: an untrusted suite stays in its folder"
        )
    return Trust(trusted=trusted, plans=plans, allow_env=frozenset(allow_env))
