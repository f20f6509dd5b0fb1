"""The keys of a run, as each of its machines knows them: they are not sent, and do not come back.

What the run sends is refused if it contains a key: without its keys a suite would be another one. What a
worker sends is sent without keys, as it would be stored.

A key that is surely one (see `is_surely_key`) is found anywhere, in any spelling. Others, such as passwords
that are words, may occur anywhere by chance: they are found only after a name like `apiKey`, and only with at
least 8 characters. Shorter ones are placeholders such as `none`.
"""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

import attrs

from trioeval.evaluation.prepared import PreparedSuite
from trioeval.providers.secrets import hide, longest_first, spellings, surely_keys
from trioeval.report.redact import keys_of
from trioeval.scaleout.private_files import with_texts
from trioeval.store.run_start import keys_of_task

_SHORTEST = 8
"""Characters of a key that is not surely one: a shorter one is a placeholder."""
_NAMED = r"(?i:key|token|secret|password|authorization)[^\w\n]{1,6}(?:(?i:bearer|basic)\s+)?"
"""A name and a separator before such a key."""


@attrs.frozen(repr=False)
class RunKeys:
    """The keys of a run, as one machine knows them."""

    sure: tuple[str, ...]
    """Keys that are surely some, longest first."""
    others: frozenset[str] = frozenset()
    """Other keys of providers with at least 8 characters."""
    _cores: tuple[bytes, ...] = attrs.field(init=False)

    @_cores.default
    def _find_cores(self) -> tuple[bytes, ...]:
        cores = (core.encode() for one in self.sure for core in spellings(one).cores)
        return tuple(dict.fromkeys((*cores, *(one.encode() for one in self.others))))

    @classmethod
    def of(cls, prepared: PreparedSuite) -> "RunKeys":
        """Return the keys of a suite: those in the environment, and those of its providers and limits."""
        own = {
            one for part in prepared.parts for spec in part.prepared.specs for one in spec.secrets
        }
        limits = prepared.suite.limits
        if limits is not None and limits.url is not None:
            own.add(unquote(urlsplit(limits.url).password or ""))
        found = {one for part in prepared.parts for one in keys_of_task(part)}
        sure = longest_first({*found, *surely_keys(own)})
        return cls(sure, frozenset(one for one in own if len(one) >= _SHORTEST).difference(sure))

    @classmethod
    def in_environment(cls, environ: Mapping[str, str]) -> "RunKeys":
        """Return the keys in an environment."""
        return cls(keys_of(environ))

    def may_be_in(self, data: bytes | bytearray) -> bool:
        """Return False, quickly, for nearly all bytes without a key.

        Only bytes that all spellings of a key have are searched, so how data is pickled makes no difference.
        """
        return any(core in data for core in self._cores)

    def hide(self, text: str) -> str:
        """Return a text without keys that are surely some.

        Example:
            >>> RunKeys(("sk-0123456789",)).hide("the key sk-0123456789 is wrong")
            'the key [hidden] is wrong'
        """
        return hide(text, self.sure)

    def hide_in(self, value: Any) -> Any:
        """Return a value without those keys in its texts, also in attrs objects; the same if it has none."""
        return with_texts(value, self.hide)

    def are_in(self, value: str | bytes | bytearray) -> bool:
        """Return whether a text contains a key.

        Example:
            >>> keys = RunKeys((), frozenset({"tiger-lily"}))
            >>> keys.are_in('{"apiKey": "tiger-lily"}'), keys.are_in("a tiger-lily")
            (True, False)
        """
        if isinstance(value, bytes | bytearray):
            if not self.may_be_in(value):
                return False
            value = value.decode("utf-8", "surrogateescape")
        return self.hide(value) != value or any(
            re.search(_NAMED + re.escape(one), value) for one in self.others if one in value
        )


NO_KEYS = RunKeys(())
