"""What the thread that runs suites tells the thread of pytest."""

import threading
from collections.abc import Mapping

import attrs

from trioeval.pytest_support.keys import Key
from trioeval.pytest_support.telling import Told

LOOK = 0.5  # seconds; where a wait without end could not be interrupted, one after another can


@attrs.define(eq=False)
class Answers:
    """How the items of one file end. One thread tells, another one asks."""

    _news: threading.Condition = attrs.field(init=False, factory=threading.Condition)
    _told: dict[Key, Told] = attrs.field(init=False, factory=dict)
    _asked: Key | None = attrs.field(init=False, default=None)
    _failure: str | None = attrs.field(init=False, default=None)
    _is_over: bool = attrs.field(init=False, default=False)

    def tell(self, told: Mapping[Key, Told]) -> None:
        """Some items have ended."""
        with self._news:
            self._told |= told
            self._news.notify_all()

    def end(self, failure: str | None = None) -> None:
        """Nothing more will be told.

        Args:
            failure: Why that is so; None if all there is was told.
        """
        with self._news:
            self._failure, self._is_over = failure, True
            self._news.notify_all()

    @property
    def asked(self) -> Key | None:
        """The item that somebody waits for."""
        with self._news:
            return self._asked

    def wait(self, key: Key) -> Told:
        """How an item ends. Can be interrupted."""
        with self._news:
            self._asked = key
            try:
                while key not in self._told and not self._is_over:
                    self._news.wait(LOOK)
            finally:
                self._asked = None
            if key in self._told:
                return self._told[key]
            if self._failure is not None:
                return Told(ending="failed", text=self._failure)
            return Told(ending="skipped", text="the run ended before it")
