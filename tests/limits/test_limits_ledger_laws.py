"""The laws of limits and leases, over the ledger."""

import pytest
from hypothesis import settings
from limits_machine import machine

from trioeval.limits.ledger import LimitLedger

pytestmark = pytest.mark.slow


class LedgerSubject:
    """A ledger without limits."""

    def __init__(self) -> None:
        self.ledger = LimitLedger()
        self.reserve = self.ledger.reserve
        self.complete = self.ledger.complete
        self.extend = self.ledger.extend
        self.define = self.ledger.define
        self.pause = self.ledger.pause
        self.states = self.ledger.states

    def close(self) -> None:
        """Do nothing: nothing is open."""


TestBookLaws = machine(LedgerSubject).TestCase
TestBookLaws.settings = settings(max_examples=settings().max_examples // 2, stateful_step_count=50)
