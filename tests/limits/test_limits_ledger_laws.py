"""The laws of limits and leases, over the book."""

from hypothesis import settings
from limits_machine import machine

from trioeval.limits.ledger import Book


class BookSubject:
    """A book without limits."""

    def __init__(self) -> None:
        self.book = Book()
        self.reserve = self.book.reserve
        self.complete = self.book.complete
        self.extend = self.book.extend
        self.define = self.book.define
        self.pause = self.book.pause
        self.states = self.book.states

    def close(self) -> None:
        """Nothing is open."""


TestBookLaws = machine(BookSubject).TestCase
TestBookLaws.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=50)
