"""One-line mutants of kernel, rates, quota, datasets and agents, each of which some test must kill.

    python tests/mutants.py            all of them
    python tests/mutants.py width pace those whose name contains a word
    python tests/mutants.py --report   all of them, and the result as docs/reference/mutants.md

Each mutant is applied to a copy of the package in a temporary folder, and the tests of its package
run against that copy until the first failure: those nearest to the place first, then all. A
mutant that survives is a hole in the laws; the exit code counts them.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs

ROOT = Path(__file__).parent.parent
REPORT = ROOT / "docs" / "reference" / "mutants.md"
WHOLE_RUNS = (
    "tests/kernel",
    "tests/property/test_kernel_laws.py",
    "tests/property/test_lease_law.py",
)
REMOTE = (
    "tests/limits/test_remote_quota.py",
    "tests/limits/test_remote_quota_laws.py",
    "tests/limits/test_turns.py",
)
BOOK = (
    "tests/limits/test_quota_book.py",
    "tests/limits/test_quota_book_laws.py",
    "tests/limits/test_quota_restart_laws.py::TestBookRestarts",
)
FILED = ("tests/limits/test_quota_filed.py", "tests/limits/test_quota_restart_laws.py")
MEMORY = (
    "tests/limits/test_memory_quota.py",
    "tests/limits/test_memory_quota_laws.py",
    "tests/property/test_quota_fairness.py",
)
QUOTA = {
    **dict.fromkeys(("book", "holds", "purses", "records", "windows"), BOOK),
    **dict.fromkeys(("filed", "journal"), FILED),
    **dict.fromkeys(("memory", "place", "waiting"), MEMORY),
}
"""Which tests are nearest to a module of quota/; to all others those of `REMOTE`."""
DATASETS = ("tests/columns/test_tracker_law.py", "tests/columns/test_fair_line.py")
AGENTS = (
    "tests/agent/test_restarts.py",
    "tests/property/test_agent_loop_law.py",
    "tests/agent/test_inprocess_agents.py",
)
TESTS = (*WHOLE_RUNS, "tests/property")
AT_ONCE = 2  # mutants that are tried side by side


@attrs.frozen
class Mutant:
    """One change of one place."""

    name: str
    """What it breaks, in words."""
    law: str
    """Which law says that this must not be; `example` where only named examples do."""
    file: str
    """Below `trioeval/`."""
    old: str
    """Stands exactly once in the file."""
    new: str


MUTANTS = (
    # rates/pace.py
    Mutant(
        "burst off by one",
        "PACE",
        "rates/pace.py",
        "(self.burst - 1) * self.period",
        "self.burst * self.period",
    ),
    Mutant(
        "pace not advanced",
        "PACE",
        "rates/pace.py",
        "max(self.next_request_at, now) + self.period",
        "max(self.next_request_at, now)",
    ),
    Mutant(
        "pace forgets its past",
        "PACE",
        "rates/pace.py",
        "max(self.next_request_at, now) + self.period",
        "now + self.period",
    ),
    Mutant("gap not kept", "PACE", "rates/pace.py", "now + self.min_gap,", "self.next_gap_at,"),
    # rates/pace.py
    Mutant(
        "idle time credited to who gives tokens back",
        "PACE",
        "rates/pace.py",
        "self.next_token_at = max((one.paid_at for one in self._open), default=-math.inf)",
        "self.next_token_at -= refund",
    ),
    Mutant(
        "tokens never owed",
        "EAGER",
        "rates/pace.py",
        "return max(now, self.next_token_at - self.burst * self.period)",
        "return max(now, self.next_token_at)",
    ),
    # rates/budget.py
    Mutant(
        "what is held is not counted",
        "BUDGET",
        "rates/budget.py",
        "self._tokens_held + tokens, self._micros_held + hold.micros",
        "tokens, self._micros_held + hold.micros",
    ),
    Mutant(
        "whether it fits does not ask what is held",
        "BUDGET",
        "rates/budget.py",
        "        tokens_after = self._tokens_held + tokens\n",
        "        tokens_after = tokens\n",
    ),
    Mutant(
        "nobody hears of a settlement",
        "BUDGET",
        "rates/budget.py",
        "            follower.notify()\n",
        "            pass\n",
    ),
    Mutant(
        "a cost below a millionth holds nothing",
        "BUDGET",
        "rates/budget.py",
        "Hold(tokens, _rounded_up(money))",
        "Hold(tokens, int(money * _MILLION))",
    ),
    Mutant(
        "a cost below a millionth fits where nothing is left",
        "BUDGET",
        "rates/budget.py",
        "self._micros_held + _rounded_up(money)",
        "self._micros_held + int(money * _MILLION)",
    ),
    Mutant(
        "a cost below a millionth is not spent",
        "BUDGET",
        "rates/budget.py",
        "self._micros_spent += _rounded_up(money)",
        "self._micros_spent += int(money * _MILLION)",
    ),
    # rates/backoff.py
    Mutant(
        "chance in place of the hint",
        "RETRY_AFTER",
        "rates/backoff.py",
        "return hint + spread * min",
        "return spread * min",
    ),
    # rates/adaptive_limit.py
    Mutant(
        "an old epoch cuts again",
        "AIMD",
        "rates/adaptive_limit.py",
        "        if refusal.epoch != self.epoch:\n",
        "        if False:\n",
    ),
    Mutant(
        "a single refusal cuts",
        "AIMD",
        "rates/adaptive_limit.py",
        "        elif self._refused or (",
        "        elif True or (",
    ),
    Mutant(
        "growth without use",
        "AIMD",
        "rates/adaptive_limit.py",
        "        if clean and self._peak >= _SATURATED * self.limit:",
        "        if clean:",
    ),
    Mutant(
        "growth in a round with a failure",
        "AIMD",
        "rates/adaptive_limit.py",
        "clean = not self._refused and not self._spoilt",
        "clean = not self._refused",
    ),
    Mutant(
        "growth by retries",
        "AIMD",
        "rates/adaptive_limit.py",
        "        if not retried:\n",
        "        if True:\n",
    ),
    Mutant(
        "the ceiling is not remembered",
        "AIMD",
        "rates/adaptive_limit.py",
        "self._ceiling = max(1, self.limit - 1)",
        "self._ceiling = math.inf",
    ),
    Mutant(
        "the ceiling is remembered for ever",
        "AIMD",
        "rates/adaptive_limit.py",
        "            if self._clean_rounds >= self._trial_after and self._has_paid_for_trial:",
        "            if False:",
    ),
    Mutant(
        "a refused trial is tried again as soon",
        "AIMD",
        "rates/adaptive_limit.py",
        "min(2 * self._trial_after, _LONGEST_TRIAL_AFTER)",
        "_TRIAL_AFTER",
    ),
    Mutant(
        "a limit of none",
        "AIMD",
        "rates/adaptive_limit.py",
        "self.limit = max(1, int(_CUT_TO * self.limit))",
        "self.limit = int(_CUT_TO * self.limit)",
    ),
    Mutant(
        "a slow start is too slow",
        "example",
        "rates/adaptive_limit.py",
        "min(2 * self.limit, self.width)",
        "min(1 + self.limit, self.width)",
    ),
    Mutant(
        "what is served beside a wave is not heard",
        "AIMD",
        "rates/adaptive_limit.py",
        "            limit = ceiling = min(ceiling, beside)\n",
        "            pass\n",
    ),
    Mutant(
        "a wave goes on after the next start",
        "AIMD",
        "rates/adaptive_limit.py",
        "        self._usual_cut = None\n        self._peak",
        "        self._peak",
    ),
    Mutant(
        "a refused trial costs nothing",
        "example",
        "rates/adaptive_limit.py",
        "if not self._wait or not self._latency:",
        "if True:",
    ),
    Mutant(
        "a repeated refusal ends no trial",
        "example",
        "rates/adaptive_limit.py",
        "if refusal.repeated and not (in_trial and refusal.wait):",
        "if refusal.repeated:",
    ),
    # rates/adaptive_limit.py
    Mutant(
        "a burst cuts a latency limit many times",
        "AIMD",
        "rates/adaptive_limit.py",
        "if refusal.epoch != self.epoch or refusal.repeated:",
        "if refusal.repeated:",
    ),
    Mutant(
        "a lone refusal cuts a latency limit",
        "AIMD",
        "rates/adaptive_limit.py",
        "if not self._refused:",
        "if False:",
    ),
    # rates/backoff.py
    Mutant(
        "the breaker opens one too late",
        "example",
        "rates/backoff.py",
        "self._refusals >= self.threshold",
        "self._refusals > self.threshold",
    ),
    Mutant(
        "a success forgives no refusal",
        "example",
        "rates/backoff.py",
        "self._refusals, self._trouble, self._last_at = 0, 0.0, None",
        "self._trouble, self._last_at = 0.0, None",
    ),
    Mutant(
        "a success ends no trouble",
        "example",
        "rates/backoff.py",
        "self._refusals, self._trouble, self._last_at = 0, 0.0, None",
        "self._refusals, self._last_at = 0, None",
    ),
    Mutant(
        "idle time is trouble",
        "example",
        "rates/backoff.py",
        "min(now - self._last_at, self._rest + _A_TRY)",
        "now - self._last_at",
    ),
    Mutant(
        "a rest is no trouble",
        "example",
        "rates/backoff.py",
        "self._rest + _A_TRY",
        "_A_TRY",
    ),
    # rates/throttle.py
    Mutant(
        "a measured rate never grows",
        "example",
        "rates/throttle.py",
        "        if self.pace is not None and self._served >= self._grow_after:",
        "        if False:",
    ),
    Mutant(
        "a few calls measure a rate",
        "example",
        "rates/throttle.py",
        "self._served >= _LEAST_MEASURED and now",
        "self._served and now",
    ),
    Mutant(
        "a measured pace is slower than was asked for",
        "example",
        "rates/throttle.py",
        "min((now - self._since) / self._served, wait)",
        "(now - self._since) / self._served",
    ),
    # rates/throttle.py
    Mutant(
        "pace not taken",
        "PACE",
        "rates/throttle.py",
        "        self.pace = self.pace.take(now)\n        if self._hinted",
        "        self.pace.take(now)\n        if self._hinted",
    ),
    Mutant(
        "a block moves back",
        "RETRY_AFTER",
        "rates/throttle.py",
        "self.blocked_until = max(self.blocked_until, now + seconds)",
        "self.blocked_until = now + seconds",
    ),
    Mutant(
        "a wait that a mishap names holds one call only",
        "RETRY_AFTER",
        "rates/throttle.py",
        "            self._keep_wait(now, retry_after, why)\n            self._recover(now, hinted=True)\n",
        "            pass\n",
    ),
    Mutant(
        "a block is not waited for",
        "RETRY_AFTER",
        "rates/throttle.py",
        "return max(at, self.blocked_until)",
        "return at",
    ),
    Mutant(
        "a refusal that names no wait blocks everybody",
        "example",
        "rates/throttle.py",
        "if retry_after or self.congestions >= _RECOVER_AFTER:",
        "if True:",
    ),
    Mutant(
        "everybody starts when a block is over",
        "WIDTH",
        "rates/throttle.py",
        "self._probes, self._recovery_mark = 1, self._step()",
        "self._recovery_mark = self._step()",
    ),
    Mutant(
        "probes do not double",
        "EAGER",
        "rates/throttle.py",
        "            self._probes *= 2\n",
        "            self._probes += 1\n",
    ),
    Mutant(
        "late replies end a recovery",
        "WIDTH",
        "rates/throttle.py",
        "if self._probes is not None and mark >= self._recovery_mark:",
        "if self._probes is not None:",
    ),
    Mutant(
        "a refusal among others is an outage",
        "example",
        "rates/throttle.py",
        "self._elders = self._step(), in_flight",
        "self._elders = self._step(), 0",
    ),
    Mutant(
        "a generation never ends",
        "example",
        "rates/throttle.py",
        "            self._elders -= 1\n",
        "            pass\n",
    ),
    Mutant(
        "who started later ends a generation",
        "example",
        "rates/throttle.py",
        "if self._elders and mark < self._generation_mark:",
        "if self._elders:",
    ),
    Mutant(
        "every refusal of a call cuts",
        "AIMD",
        "rates/throttle.py",
        "repeated=refusals > 1",
        "repeated=False",
    ),
    Mutant(
        "own refusals do not lengthen the rest",
        "example",
        "rates/throttle.py",
        "max(refusals, self.congestions) - 1",
        "self.congestions - 1",
    ),
    Mutant(
        "calls without an answer are no trouble",
        "example",
        "rates/throttle.py",
        '            self.breaker.troubled(now, 0.0, "calls get no answer")\n',
        "            pass\n",
    ),
    Mutant(
        "refusals of one wave measure a rate",
        "example",
        "rates/throttle.py",
        "if self.delivery is not None and not self._company:",
        "if self.delivery is not None:",
    ),
    Mutant(
        "a lone refusal measures a rate",
        "example",
        "rates/throttle.py",
        "self._company = soon or not begins_wave",
        "self._company = True",
    ),
    Mutant(
        "a cut by who started before the last one",
        "AIMD",
        "rates/throttle.py",
        "before if mark >= self._cut_mark else before - 1",
        "before",
    ),
    Mutant(
        "a hint of a day is waited for",
        "example",
        "rates/throttle.py",
        "if 0 < wait <= self.breaker.patience:",
        "if 0 < wait:",
    ),
    Mutant(
        "spent tokens are not waited for",
        "example",
        "rates/throttle.py",
        "            self._block(now, hint.tokens.until_some)\n",
        "            pass\n",
    ),
    Mutant(
        "a rate that was told is kept for ever",
        "example",
        "rates/throttle.py",
        "        elif share > _PLENTY:\n            self._hinted = None\n",
        "",
    ),
    Mutant(
        "a request that is always refused measures a rate",
        "example",
        "rates/throttle.py",
        "if retry_after and refusals <= _TELLING:",
        "if retry_after:",
    ),
    # kernel/throttles.py, kernel/retries.py, kernel/needs.py
    Mutant(
        "a bad request closes the lane",
        "example",
        "rates/throttle.py",
        "            case Fault.REFUSED:\n                pass\n",
        "            case Fault.REFUSED:\n                self.breaker.refused(why)\n",
    ),
    Mutant(
        "one mishap less",
        "example",
        "kernel/calls.py",
        "self.mishaps <= self._spec.retries",
        "self.mishaps < self._spec.retries",
    ),
    Mutant(
        "one repetition too many",
        "ATTEMPTS",
        "kernel/calls.py",
        "self.failures > self._spec.max_retries",
        "self.failures > self._spec.max_retries + 1",
    ),
    Mutant(
        "a call is refused alone while nothing is served",
        "example",
        "kernel/calls.py",
        "self.is_own = is_independent and share",
        "self.is_own = share",
    ),
    Mutant(
        "salvaged jobs repeat their calls",
        "example",
        "kernel/calls.py",
        "return not salvaging and self.mishaps",
        "return self.mishaps",
    ),
    Mutant(
        "retries pass whatever was refused",
        "example",
        "kernel/calls.py",
        "return self.refusals < _OFTEN",
        "return True",
    ),
    Mutant(
        "the first of several errors speaks for all",
        "example",
        "kernel/calls.py",
        "if len(inside) == 1 and isinstance(inside[0], CallError):",
        "if isinstance(inside[0], CallError):",
    ),
    Mutant(
        "what was not used is not given back",
        "example",
        "kernel/wait_queue.py",
        "budget.settle(self.hold, tokens=tokens, money=money)",
        "budget.settle(self.hold, tokens=self.need.tokens, money=self.need.money)",
    ),
    Mutant(
        "a call of the whole budget is taken for a larger one",
        "BUDGET",
        "kernel/wait_queue.py",
        "shortage.wanted > shortage.limit",
        "shortage.wanted >= shortage.limit",
    ),
    # kernel/line.py, kernel/cap.py
    Mutant(
        "retries stand behind what is new",
        "example",
        "kernel/wait_queue.py",
        "(0, retry_of, arrival)",
        "(1, arrival, 0)",
    ),
    Mutant(
        "the next in line is not called",
        "EAGER",
        "kernel/wait_queue.py",
        "        if at == 0:\n            self.notify()\n",
        "",
    ),
    Mutant(
        "a busy lane passes who waits for the cap",
        "example",
        "kernel/wait_queue.py",
        "return self._limiter.available_tokens > before",
        "return self._limiter.available_tokens > 0",
    ),
    Mutant(
        "the cap is never given back",
        "LEAK",
        "kernel/wait_queue.py",
        "        self._limiter.release_on_behalf_of(call)\n",
        "        pass\n",
    ),
    # kernel/lane.py
    Mutant(
        "starts ignore pace and block",
        "PACE",
        "kernel/lane.py",
        "            if open_at > now:\n",
        "            if False:\n",
    ),
    Mutant(
        "one slot too many",
        "WIDTH",
        "kernel/lane.py",
        "        self._slots = self.throttle.allowed\n",
        "        self._slots = self.throttle.allowed + 1\n",
    ),
    Mutant(
        "starts that need nothing else tell the limit nothing",
        "AIMD",
        "kernel/lane.py",
        "            if not self.throttle.calm:\n                self.throttle.limit.begun(self.in_flight)\n",
        "",
    ),
    Mutant(
        "starts under a rate tell the limit nothing",
        "AIMD",
        "kernel/lane.py",
        "        throttle.limit.begun(self.in_flight)\n",
        "",
    ),
    Mutant(
        "nobody hears of another rate",
        "EAGER",
        "kernel/lane.py",
        "        self.throttle.repace(trio.current_time(), rpm, tpm)\n        self._news()\n",
        "        self.throttle.repace(trio.current_time(), rpm, tpm)\n",
    ),
    Mutant(
        "who rests does not hear of the closing",
        "ATTEMPTS",
        "kernel/lane.py",
        "            for waiter in self._resting:\n                waiter.call()\n",
        "",
    ),
    Mutant(
        "newcomer passes those in line",
        "TURN",
        "kernel/lane.py",
        "if self._queue.waiters and not is_admitted:",
        "if False:",
    ),
    Mutant(
        "favourite never ends",
        "TURN",
        "kernel/lane.py",
        "            self.admitted = None\n            refuse(now)\n",
        "            refuse(now)\n",
    ),
    Mutant(
        "who is called while it looks sleeps on",
        "EAGER",
        "kernel/wait_queue.py",
        "                await waiter.wait_called(obstacle[1])",
        "                waiter.rearm()\n                await waiter.wait_called(obstacle[1])",
    ),
    Mutant(
        "slot never given back",
        "LEAK",
        "kernel/lane.py",
        "        self.in_flight -= 1\n",
        "",
    ),
    Mutant(
        "no news of a free slot",
        "EAGER",
        "kernel/lane.py",
        "            follower.notify()",
        "            pass",
    ),
    Mutant(
        "a new width wakes nobody",
        "EAGER",
        "kernel/lane.py",
        "        self.throttle.retune(width)\n        self._apply_limit()\n",
        "        self.throttle.retune(width)\n",
    ),
    Mutant(
        "a pause is forgotten",
        "example",
        "kernel/lane.py",
        "        self._paused = True\n",
        "        pass\n",
    ),
    Mutant(
        "a closed lane stays closed",
        "example",
        "kernel/lane.py",
        "        self.throttle.reset()\n",
        "        pass\n",
    ),
    Mutant(
        "who goes keeps a place at the cap",
        "LEAK",
        "kernel/wait_queue.py",
        "if not self.waiters and self._cap is not None:",
        "if False:",
    ),
    # kernel/turns.py, kernel/asking.py
    Mutant(
        "a permit that came too late is kept while the lane is blocked",
        "LEASE",
        "kernel/wait_queue.py",
        "                    call.give_back_permit()\n                    if obstacle[0]",
        "                    if obstacle[0]",
    ),
    Mutant(
        "who is cut with a permit keeps it",
        "LEASE",
        "kernel/wait_queue.py",
        "            if call is not None and obstacle is not None:\n"
        "                call.give_back_permit()\n",
        "",
    ),
    Mutant(
        "who asks gives up its turn for the cap",
        "example",
        "kernel/wait_queue.py",
        "if why in (Why.CAP, Why.QUOTA):",
        "if why is Why.CAP:",
    ),
    Mutant(
        "who waits for its permit keeps a part of the cap",
        "EAGER",
        "kernel/wait_queue.py",
        '        """The permit has to be waited for."""\n        if self._cap is not None:',
        '        """The permit has to be waited for."""\n        if False:',
    ),
    Mutant(
        "a retry passes who asks",
        "TURN",
        "kernel/wait_queue.py",
        "        waiter.rank = _HELD\n",
        "",
    ),
    Mutant(
        "a closed lane leaves the question open",
        "example",
        "kernel/wait_queue.py",
        '            self._asking.cancel("nobody in line is served any more")',
        "            pass",
    ),
    Mutant(
        "one permit for every start",
        "LEASE",
        "kernel/wait_queue.py",
        "        self.reservation = self.hold = self.permit = None\n",
        "",
    ),
    Mutant(
        "no limit is asked where nobody is in line",
        "LEASE",
        "kernel/lane.py",
        "            if call.permit is None:\n                return Why.QUOTA",
        "            if not at_once and call.permit is None:\n                return Why.QUOTA",
    ),
    Mutant(
        "slot taken before the permit is there",
        "SLOT",
        "kernel/lane.py",
        "            if call.permit is None:\n",
        "            if call.permit is None:\n                self.in_flight += 1\n",
    ),
    Mutant(
        "permit asked for before the lane is open",
        "LEASE",
        "kernel/lane.py",
        "        if obstacle is not None:\n            return obstacle\n        if not call",
        "        if obstacle is not None and self._permits is None:\n"
        "            return obstacle\n        if not call",
    ),
    Mutant(
        "permit asked for while the budget has no room",
        "LEASE",
        "kernel/lane.py",
        "        if not call.fits_budget(self._queue):\n            return",
        "        if self._permits is None and not call.fits_budget(self._queue):\n            return",
    ),
    Mutant(
        "who would ask does not hear of room in the budget",
        "EAGER",
        "kernel/wait_queue.py",
        "        if not fits:\n            self.budget.follow(waiter)\n",
        "",
    ),
    Mutant(
        "only lanes with a rate settle their permits",
        "LEASE",
        "kernel/wait_queue.py",
        "        if self.permit is not None:\n            self.permit.settle",
        "        if self.permit is not None and self.reservation is not None:\n"
        "            self.permit.settle",
    ),
    Mutant(
        "a permit is settled to what was reserved",
        "LEASE",
        "kernel/wait_queue.py",
        "            self.permit.settle(tokens, money)\n",
        "            self.permit.settle(self.need.tokens, money)\n",
    ),
    Mutant(
        "a permit is settled and given back",
        "LEASE",
        "kernel/wait_queue.py",
        "            self.permit.settle(tokens, money)\n",
        "            self.permit.settle(tokens, money)\n            self.permit.give_back()\n",
    ),
    Mutant(
        "who comes first is not first at the cap again",
        "example",
        "kernel/lane.py",
        "            self._cap.join(self._queue, again=True)",
        "            pass",
    ),
    # kernel/workers.py
    Mutant(
        "nobody leads where another run has the lane",
        "EAGER",
        "kernel/workers.py",
        "contended = lane is None or lane.in_line or len(lane.followers) > 1",
        "contended = lane is None or lane.in_line",
    ),
    Mutant(
        "nobody leads where others stand in line",
        "EAGER",
        "kernel/workers.py",
        "contended = lane is None or lane.in_line or len(lane.followers) > 1",
        "contended = lane is None or len(lane.followers) > 1",
    ),
    Mutant(
        "two leaders",
        "WIDTH",
        "kernel/workers.py",
        "        if self._leading or self._full:\n            return None",
        "        if self._full:\n            return None",
    ),
    Mutant(
        "one live job too many",
        "WIDTH",
        "kernel/workers.py",
        "self._live - self._resting >= most or",
        "self._live - self._resting > most or",
    ),
    Mutant(
        "jobs that rest keep others from starting",
        "EAGER",
        "kernel/workers.py",
        "return self._live - self._resting >= most or",
        "return self._live >= most or",
    ),
    Mutant(
        "who leads does not see that jobs rest no more",
        "WIDTH",
        "kernel/workers.py",
        "            if self._full:\n                return None  # jobs",
        "            if False:\n                return None  # jobs",
    ),
    Mutant(
        "any number of jobs may rest",
        "WIDTH",
        "kernel/workers.py",
        " or self._live >= _WITH_RESTING * most",
        "",
    ),
    Mutant(
        "live jobs do not follow the widths",
        "EAGER",
        "kernel/workers.py",
        "_SPARE + sum(lane.width for lane in self.running.lanes.values())",
        "_SPARE",
    ),
    Mutant(
        "jobs pass a closed gate",
        "SERIAL",
        "kernel/workers.py",
        "if not self._full and self.running.lanes.gate.open:",
        "if not self._full:",
    ),
    Mutant(
        "the leader does not look at the gate again",
        "SERIAL",
        "kernel/workers.py",
        "            if gate.open and (job",
        "            if (job",
    ),
    Mutant(
        "stop ignored by who stands in line",
        "DRAIN",
        "kernel/workers.py",
        '        self._line.cancel("there is no job to start")\n',
        "",
    ),
    Mutant(
        "who waits for a withdrawn job stays in line",
        "LEAK",
        "kernel/workers.py",
        "        if self.running.backlog.first(self.name) is None:\n            self.stop_admitting()\n",
        "",
    ),
    Mutant(
        "no job is looked at while its lane serves nothing",
        "EAGER",
        "kernel/workers.py",
        "                self._next()  # a job that needs no lane leaves this one\n",
        "                pass\n",
    ),
    Mutant(
        "the window is one too wide",
        "WIDTH",
        "kernel/workers.py",
        "return index < self.running.emitted",
        "return index <= self.running.emitted",
    ),
    Mutant(
        "the jobs of a closed lane are forgotten",
        "TOTAL",
        "kernel/workers.py",
        "                self._give_up(lane.closed)\n",
        "                pass\n",
    ),
    # kernel/jobs.py
    Mutant(
        "a job whose look fails needs no lane",
        "example",
        "kernel/jobs.py",
        "            return job\n        return attrs.evolve",
        "            is_known = True\n        return attrs.evolve",
    ),
    # kernel/calls.py
    Mutant(
        "calls started at the deadline",
        "DEADLINE",
        "kernel/calls.py",
        "if self._over or now >= context.deadline or (target",
        "if self._over or now > context.deadline or (target",
    ),
    Mutant(
        "a call waits past the deadline",
        "DEADLINE",
        "kernel/calls.py",
        "lane.wait_start(call, self._refuse_if_late, passes=passes)",
        "lane.wait_start(call, lambda _now: None, passes=passes)",
    ),
    Mutant(
        "timeout runs while waiting",
        "LIMIT",
        "kernel/calls.py",
        "            self._timer.set(math.inf)\n",
        "",
    ),
    Mutant(
        "timeout starts afresh after a wait",
        "LIMIT",
        "kernel/calls.py",
        "self._left = self._timer.deadline - self._paused_at",
        "self._left = self.job.timeout",
    ),
    Mutant(
        "clock stands beside a call in flight",
        "LIMIT",
        "kernel/calls.py",
        "if self._paused_at is None and not self._in_flight and",
        "if self._paused_at is None and",
    ),
    Mutant(
        "clock goes on while another branch waits",
        "LIMIT",
        "kernel/calls.py",
        "        if not self._waiting:\n            self._resume(",
        "        if True:\n            self._resume(",
    ),
    Mutant(
        "what a body waits for by itself is work",
        "LIMIT",
        "kernel/calls.py",
        "        self._stop_clock()\n        try:\n            yield\n",
        "        self._waiting += 1\n        try:\n            yield\n",
    ),
    Mutant(
        "a handle works after its job",
        "LIMIT",
        "kernel/calls.py",
        "        self._over = True\n",
        "        pass\n",
    ),
    Mutant(
        "a failed call rests in its slot",
        "SLOT",
        "kernel/calls.py",
        "                again_at = self._learn_failure(target, call, error, attempts)\n",
        "                again_at = self._learn_failure(target, call, error, attempts)\n"
        "                await trio.sleep_until(again_at or 0)\n",
    ),
    Mutant(
        "a failed call does not rest",
        "ATTEMPTS",
        "kernel/calls.py",
        "            await lane.rest(until)\n",
        "            pass\n",
    ),
    Mutant(
        "hints are not heard",
        "example",
        "kernel/calls.py",
        "            lane.hear(trio.current_time(), result.hint)\n",
        "            pass\n",
    ),
    # kernel/timeouts.py
    Mutant(
        "Trio is never told who has lived on",
        "LIMIT",
        "kernel/timeouts.py",
        "            for timer in self.timers:\n",
        "            for timer in ():\n",
    ),
    Mutant(
        "Trio is told of what is near only",
        "LIMIT",
        "kernel/timeouts.py",
        "            self.near = math.inf\n",
        "",
    ),
    Mutant(
        "a round is as long as what is near",
        "LIMIT",
        "kernel/timeouts.py",
        "2 * _ROUND",
        "_ROUND",
    ),
    Mutant(
        "a job is cut off when the one before it was due",
        "LIMIT",
        "kernel/timeouts.py",
        "        elif self.told != math.inf:\n",
        "        elif False:\n",
    ),
    Mutant(
        "the timekeeper is never woken",
        "example",
        "kernel/timeouts.py",
        "            self._timeouts.wake()\n",
        "",
    ),
    # kernel/edges.py, kernel/keys.py
    Mutant(
        "a failure frees who needs success",
        "BLOCK",
        "kernel/readiness.py",
        "            if not done and not always:\n",
        "            if False:\n",
    ),
    Mutant(
        "the first of several dependencies is enough",
        "BLOCK",
        "kernel/readiness.py",
        "            if not self._left[dependant]:\n",
        "            if True:\n",
    ),
    Mutant(
        "a key goes to the latest",
        "BLOCK",
        "kernel/readiness.py",
        "heir = heapq.heappop(waiting)",
        "heir = waiting.pop()",
    ),
    Mutant(
        "a blocked job keeps its turn for a key",
        "TOTAL",
        "kernel/readiness.py",
        "            if heir in self._key_of:\n",
        "            if True:\n",
    ),
    # kernel/backlog.py
    Mutant(
        "serial jobs also in the main pass",
        "TOTAL",
        "kernel/backlog.py",
        "if index in self._skip or index in self._dead:",
        "if index in self._dead:",
    ),
    Mutant(
        "blocked jobs are run",
        "TOTAL",
        "kernel/backlog.py",
        "if index in self._skip or index in self._dead:",
        "if index in self._skip:",
    ),
    Mutant(
        "queue compacted one short",
        "TOTAL",
        "kernel/backlog.py",
        "del self.walked[: self.head]",
        "del self.walked[: self.head - 1]",
    ),
    Mutant(
        "a job freed by its edges does not wait for its key",
        "BLOCK",
        "kernel/backlog.py",
        "            if not self._waits(index):\n",
        "            if True:\n",
    ),
    Mutant(
        "a blocked job is started with its key",
        "TOTAL",
        "kernel/backlog.py",
        "if heir is None or self._never_starts(heir) or",
        "if heir is None or",
    ),
    Mutant(
        "a job that has its key does not wait for its edges",
        "BLOCK",
        "kernel/backlog.py",
        "self._never_starts(heir) or self._waits(heir):",
        "self._never_starts(heir):",
    ),
    Mutant(
        "ranks order nobody",
        "example",
        "kernel/backlog.py",
        ".heap, (rank, job.index))",
        ".heap, ((0,), job.index))",
    ),
    Mutant(
        "any number of jobs leave their lanes before they start",
        "example",
        "kernel/backlog.py",
        "        if len(self._moved) >= _MOST_MOVED:\n",
        "        if False:\n",
    ),
    Mutant(
        "nobody hears that more jobs may leave their lanes",
        "EAGER",
        "kernel/backlog.py",
        "        self.shifted |= self._held_back\n",
        "",
    ),
    Mutant(
        "who was withdrawn starts",
        "BLOCK",
        "kernel/backlog.py",
        "            self._readiness.start(index)\n            self._drop_withdrawn(lane)\n",
        "            self._readiness.start(index)\n",
    ),
    # kernel/readiness.py
    Mutant(
        "a job that has started is withdrawn",
        "TOTAL",
        "kernel/readiness.py",
        '{_STARTED: "has started", _OVER',
        "{_OVER",
    ),
    # kernel/run_state.py
    Mutant(
        "stop ignored",
        "DRAIN",
        "kernel/run_state.py",
        "return now < self.deadline and not self.stop.is_set() and",
        "return now < self.deadline and",
    ),
    Mutant(
        "jobs admitted at the deadline",
        "DEADLINE",
        "kernel/run_state.py",
        "return now < self.deadline and not",
        "return now <= self.deadline and not",
    ),
    Mutant(
        "no deadline",
        "DEADLINE",
        "kernel/run_state.py",
        "trio.CancelScope(deadline=self.deadline)",
        "trio.CancelScope()",
    ),
    Mutant(
        "blocked jobs block nobody",
        "BLOCK",
        "kernel/run_state.py",
        "            self.settle(self._failure_of(index) or Blocked(index, by))\n",
        "            self.ledger.record(Blocked(index, by))\n",
    ),
    Mutant(
        "salvage beside other jobs",
        "example",
        "kernel/run_state.py",
        "        if not all(source.idle for source in self.sources):\n",
        "        if False:\n",
    ),
    Mutant(
        "one salvage round too many",
        "example",
        "kernel/run_state.py",
        "if rounds >= self.rounds or",
        "if rounds > self.rounds or",
    ),
    Mutant(
        "what was set aside has no outcome",
        "HONEST",
        "kernel/run_state.py",
        "            self.settle(salvage.failed)\n",
        "            pass\n",
    ),
    Mutant(
        "a salvaged job of a closed lane was never run",
        "HONEST",
        "kernel/run_state.py",
        "self._failure_of(index) or NotRun(index, cut, reason)",
        "NotRun(index, cut, reason)",
    ),
    Mutant(
        "who was set aside and is withdrawn never ran",
        "HONEST",
        "kernel/run_state.py",
        "self._failure_of(index) or Blocked(index, by)",
        "Blocked(index, by)",
    ),
    Mutant(
        "the run ends the wait that a readiness decides about",
        "example",
        "kernel/run_state.py",
        "        if released is None:\n",
        "        if True:\n",
    ),
    Mutant(
        "a call larger than the budget ends the run",
        "example",
        "kernel/run_state.py",
        "if self.exhausted is None and error.wanted <= error.limit:",
        "if self.exhausted is None:",
    ),
    Mutant(
        "the window moves unheard",
        "TOTAL",
        "kernel/run_state.py",
        "        self.emitted = emitted\n        self.notify()\n",
        "        self.emitted = emitted\n",
    ),
    Mutant(
        "a plan that is stuck waits for ever",
        "TOTAL",
        "kernel/run_state.py",
        "        elif not self.over and self.backlog.empty and self.admits(trio.current_time()):\n",
        "        elif False:\n",
    ),
    Mutant(
        "an outcome that comes before its turn is not settled",
        "HONEST",
        "kernel/run_state.py",
        "if self.settled is not None:\n",
        "if self.settled is not None and outcome.index < self.ledger.recorded:\n",
    ),
    Mutant(
        "who has failed is told of the next outcome",
        "example",
        "kernel/run_state.py",
        "            self.settled = None\n",
        "",
    ),
    Mutant(
        "jobs start after the run has failed",
        "example",
        "kernel/run_state.py",
        "        if self.failure is not None:\n            return False\n",
        "",
    ),
    # kernel/workers.py
    Mutant(
        "nobody hears of admissions",
        "example",
        "kernel/run_state.py",
        "            self.observe(Admitted(now, job.index, job.lane))",
        "            pass",
    ),
    Mutant(
        "an error in cleanup passes with the cancellation",
        "TOTAL",
        "kernel/workers.py",
        "return cancelled if cancelled is not None and isinstance(rest, ExceptionGroup) else group",
        "return group",
    ),
    Mutant(
        "spent scope used again",
        "LIMIT",
        "kernel/workers.py",
        "                while now < timer.told:\n",
        "                while now < math.inf:\n",
    ),
    Mutant(
        "interrupted jobs not recorded",
        "HONEST",
        "kernel/workers.py",
        "            running.finish(calls, _cut_off(running, calls))\n",
        "",
    ),
    Mutant(
        "cancellation taken for a failure",
        "LIMIT",
        "kernel/workers.py",
        "    except Exception as error:  # noqa: BLE001 - whatever",
        "    except BaseException as error:  # noqa: BLE001 - whatever",
    ),
    # a stop, in kernel/running.py, kernel/calls.py, kernel/workers.py
    Mutant(
        "a stop leaves alone who waits for its first permit",
        "DRAIN",
        "kernel/run_state.py",
        "        self.withdraw_first_requests()\n",
        "",
    ),
    Mutant(
        "who comes after the stop asks for its first permit",
        "DRAIN",
        "kernel/calls.py",
        "        if self._context.stop.is_set():\n",
        "        if False:\n",
    ),
    Mutant(
        "who has made a request is withdrawn",
        "DRAIN",
        "kernel/calls.py",
        "        if self.count == self._made and not self._over:\n",
        "        if not self._over:\n",
    ),
    Mutant(
        "what an earlier round has asked for counts at the stop",
        "DRAIN",
        "kernel/calls.py",
        "if lane.shared and self.count == self._made:",
        "if lane.shared and not self.count:",
    ),
    Mutant(
        "who waits on any lane is withdrawn",
        "DRAIN",
        "kernel/calls.py",
        "if lane.shared and self.count == self._made:",
        "if self.count == self._made:",
    ),
    Mutant(
        "who was withdrawn starts with what it gets in that step",
        "example",
        "kernel/calls.py",
        "self.withdrawn = self._over = True",
        "self.withdrawn = True",
    ),
    Mutant(
        "the body of who was withdrawn takes it for a failure",
        "example",
        "kernel/calls.py",
        "        await trio.lowlevel.checkpoint()  # cancelled here, unless in a shield\n",
        "",
    ),
    Mutant(
        "who was withdrawn has timed out",
        "LIMIT",
        "kernel/workers.py",
        "_cut_off(running, calls) if calls.withdrawn else timed_out",
        "timed_out",
    ),
    # kernel/ledger.py, kernel/run.py
    Mutant(
        "out of order",
        "ORDER",
        "kernel/ledger.py",
        "        if index != self._next:",
        "        if False:",
    ),
    Mutant(
        "held outcomes forgotten",
        "HONEST",
        "kernel/ledger.py",
        "self._held.pop(index, None) or NotRun(index, self.cut, self.reason)",
        "NotRun(index, self.cut, self.reason)",
    ),
    Mutant(
        "one stretch at a time",
        "PROMPT",
        "kernel/ledger.py",
        "            following = self._held.pop(self._next, None)",
        "            following = None",
    ),
    Mutant(
        "sink dies with the caller",
        "TOTAL",
        "kernel/run.py",
        "        self.scope.shield = True\n",
        "        pass\n",
    ),
    Mutant(
        "shield without an end",
        "example",
        "kernel/run.py",
        "            self.scope.deadline = trio.current_time() + self.grace",
        "            pass",
    ),
    Mutant(
        "grace counted from the cancellation",
        "TOTAL",
        "kernel/run.py",
        "if self._caller_gone and self._jobs_gone:",
        "if self._caller_gone:",
    ),
    Mutant(
        "sink inside the deadline",
        "TOTAL",
        "kernel/run.py",
        "        with flush.scope:\n",
        "        with flush.scope, trio.move_on_at(deadline):\n",
    ),
    # kernel/gate.py, kernel/serial.py
    Mutant(
        "serial jobs beside others",
        "SERIAL",
        "kernel/lanes.py",
        "                while self._parallel:\n                    await self._drained.park()\n",
        "",
    ),
    Mutant(
        "the gate stays closed",
        "TOTAL",
        "kernel/lanes.py",
        "            self._closed_out.unpark_all()",
        "            pass",
    ),
    Mutant(
        "a blocked serial job is run",
        "TOTAL",
        "kernel/workers.py",
        "            if not self.running.backlog.blocks(index):\n",
        "            if True:\n",
    ),
    Mutant(
        "a serial job starts though the run was stopped",
        "DRAIN",
        "kernel/workers.py",
        "            admitted = self.running.admits(trio.current_time())\n",
        "            admitted = True\n",
    ),
    Mutant(
        "a serial job that needs no lane waits for it",
        "EAGER",
        "kernel/workers.py",
        "            if lane is not None and job.lane is not None:\n",
        "            if lane is not None:\n",
    ),
    # quota: who asks somebody else for leases
    Mutant(
        "a cancelled request is forgotten",
        "LEASE",
        "limits/remote.py",
        "in_doubt = True",
        "in_doubt = False",
    ),
    Mutant(
        "what nobody answered is forgotten",
        "LEASE",
        "limits/remote.py",
        "in_doubt = isinstance(decision, Unknown)",
        "in_doubt = False",
    ),
    Mutant(
        "an expired lease is not given back",
        "LEASE",
        "limits/remote.py",
        "self.end(ask, nothing_of(requirements))",
        "pass",
    ),
    Mutant(
        "a grant is used that may be over",
        "example",
        "limits/remote.py",
        "self._is_stale(turn, said_at)",
        "False",
    ),
    Mutant(
        "who is served keeps its turn",
        "EAGER",
        "limits/remote.py",
        "self._turns.leave(turn)",
        "pass",
    ),
    Mutant(
        "nobody asks again in time",
        "EAGER",
        "limits/remote.py",
        "self._turns.want(turn)",
        "pass",
    ),
    Mutant(
        "a doubtful lease is given up when it is asked about",
        "LEASE",
        "limits/remote_leases.py",
        "if isinstance(decision, Unknown):",
        "if False:",
    ),
    Mutant(
        "a doubtful lease that expired is not given back",
        "LEASE",
        "limits/remote_leases.py",
        ' or decision.reason == "lease_expired"',
        "",
    ),
    Mutant(
        "nobody hears of a lease that is over",
        "EAGER",
        "limits/remote_leases.py",
        "if freed:",
        "if not freed:",
    ),
    Mutant(
        "a heartbeat goes on after its call",
        "LEASE",
        "limits/remote.py",
        "self._heartbeat.remove(ask.lease_id)",
        "pass",
    ),
    Mutant(
        "a lease has no heartbeat",
        "example",
        "limits/remote.py",
        "self._heartbeat.add(ask.lease_id, turn.keys, said_at)",
        "pass",
    ),
    Mutant(
        "one heartbeat a timeout",
        "example",
        "limits/remote_leases.py",
        "_BEATS = 3",
        "_BEATS = 1",
    ),
    Mutant(
        "a heartbeat counts from its answer",
        "example",
        "limits/remote_leases.py",
        "held.said_at = said_at",
        "held.said_at = trio.current_time()",
    ),
    Mutant(
        "a later one asks for what is claimed",
        "EAGER",
        "limits/turns.py",
        "if turn.wants and claimed.isdisjoint(turn.keys):",
        "if turn.wants:",
    ),
    Mutant(
        "who asks claims nothing",
        "example",
        "limits/turns.py",
        "turn.keys if turn.is_asking else turn.claims",
        "turn.claims",
    ),
    Mutant(
        "news that comes while one asks is lost",
        "EAGER",
        "limits/turns.py",
        "turn.news is None or not turn.news.isdisjoint(short)",
        "False",
    ),
    Mutant(
        "who leaves calls nobody",
        "EAGER",
        "limits/turns.py",
        "del self._turns[turn.number]\n        self._call()",
        "del self._turns[turn.number]",
    ),
    Mutant(
        "limits that are full by turns are forgotten",
        "example",
        "limits/turns.py",
        "elif each_time := self.claims & short:",
        "elif each_time := short:",
    ),
    Mutant(
        "what was once full is claimed for ever",
        "example",
        "limits/turns.py",
        "if is_long or now >= self._keeps_until or not self.claims:",
        "if is_long or not self.claims:",
    ),
    Mutant(
        "all that was ever full is claimed",
        "example",
        "limits/turns.py",
        "            self.claims = each_time\n",
        "            self.claims |= short\n",
    ),
    Mutant(
        "no chance after a denial",
        "example",
        "limits/availability.py",
        "(min(SPREAD, retry_after) or SPREAD)",
        "0",
    ),
    Mutant(
        "an answer that knows nothing ends an outage",
        "example",
        "limits/availability.py",
        "if unknown and len(unknown) == len(decisions):",
        "if not decisions:",
    ),
    Mutant(
        "in a long outage nobody asks who is the first to",
        "example",
        "limits/remote.py",
        "is_lasting and (has_asked or self._settling.left > 0)",
        "is_lasting",
    ),
    Mutant(
        "limits that are gone stay gone",
        "example",
        "limits/remote.py",
        "if not is_made and self._lacks_own(decision):",
        "if False:",
    ),
    Mutant(
        "one refused settlement takes the others along",
        "example",
        "limits/remote_leases.py",
        "if len(items) > 1:",
        "if False:",
    ),
    # quota/: the book, and who waits in this process
    Mutant(
        "a window lets go a moment late",
        "example",
        "limits/counters.py",
        "shares[0].at + length <= now",
        "shares[0].at + length < now",
    ),
    Mutant(
        "what a window has passed still counts",
        "example",
        "limits/counters.py",
        "            self.used -= share.amount\n",
        "            pass\n",
    ),
    Mutant(
        "the end of a hold is not put off",
        "example",
        "limits/counters.py",
        "            share.at = now\n",
        "            pass\n",
    ),
    Mutant(
        "a budget that begins anew forgets what is outstanding",
        "example",
        "limits/counters.py",
        "self.used = self.outstanding\n",
        "self.used = 0\n",
    ),
    Mutant(
        "a lease that is asked for again is taken again",
        "example",
        "limits/ledger.py",
        "(record := records.find(ask.lease_id)) is not None",
        '(record := records.find("")) is not None',
    ),
    Mutant(
        "a limit that is to be smaller goes on granting",
        "example",
        "limits/ledger.py",
        "counter.pending is not None\n                or counter.paused_until > now",
        "counter.paused_until > now",
    ),
    Mutant(
        "what a window remembers is forgotten after ten minutes",
        "LEASE",
        "limits/ledger.py",
        "limit.window or limit.timeout or 0.0 for limit",
        "limit.timeout or 0.0 for limit",
    ),
    Mutant(
        "a window begins anew when its server does",
        "LEASE",
        "limits/ledger.py",
        "[[share.amount, share.at] for share in shares]",
        "[[share.amount, now] for share in shares]",
    ),
    Mutant(
        "a lease is remembered anew when its server starts",
        "BUDGET",
        "limits/ledger.py",
        "                    lease.heard_at,\n",
        "                    now,\n",
    ),
    Mutant(
        "what is reserved of a budget comes back when its server starts",
        "BUDGET",
        "limits/ledger.py",
        "                        counter.put(share)\n                shares",
        "                        pass\n                shares",
    ),
    Mutant(
        "a lease is granted before it is on the disk",
        "LEASE",
        "limits/file.py",
        "(reserve_entry(ask, now))\n        await self._commit()",
        "(reserve_entry(ask, now))\n        await trio.lowlevel.checkpoint()",
    ),
    Mutant(
        "a completed lease is out again when its server starts",
        "LEASE",
        "limits/file.py",
        "self._journal.append(complete_entry(settlement, now))",
        "pass",
    ),
    Mutant(
        "a lease that is extended ends when its server starts",
        "LEASE",
        "limits/file.py",
        "self._journal.append(extend_entry(alive, now))",
        "pass",
    ),
    Mutant(
        "what waits for a write takes that of another for its own",
        "LEASE",
        "limits/journal.py",
        "if self._durable < wanted:",
        "if not self._durable:",
    ),
    Mutant(
        "a later one takes what an earlier one is short of",
        "example",
        "limits/waiting.py",
        "if rest < earlier.needs.get(key, 0)",
        "if rest < 0",
    ),
    Mutant(
        "who waits for a paused limit holds back others",
        "EAGER",
        "limits/waiting.py",
        "if any(room(key) is None for key in theirs - keys):",
        "if not theirs:",
    ),
    Mutant(
        "who comes passes those that wait",
        "example",
        "limits/memory.py",
        "if self._places and self._order.obstacles(",
        "if not self._places and self._order.obstacles(",
    ),
    Mutant(
        "a lease granted to who is cancelled is lost",
        "LEASE",
        "limits/memory.py",
        "            self.end(place.end, nothing_of(place.requirements))\n",
        "            pass\n",
    ),
    Mutant(
        "who is cancelled calls nobody",
        "EAGER",
        "limits/memory.py",
        "            self._drop(waiter)\n            self._serve(trio.current_time())",
        "            self._drop(waiter)",
    ),
    Mutant(
        "room that comes by itself wakes nobody who sleeps",
        "EAGER",
        "limits/memory.py",
        "                self._scope.deadline = wake_at\n",
        "                pass\n",
    ),
    # datasets/
    Mutant(
        "a cell waits for cells alone",
        "example",
        "columns/progress.py",
        "            if not needs[place] and not self._missing[other]:\n",
        "            if not needs[place]:\n",
    ),
    Mutant(
        "a row that is dropped holds back full columns",
        "example",
        "columns/progress.py",
        "                    complete.append(node)\n",
        "                    pass\n",
    ),
    Mutant(
        "a group that is closed keeps its turn",
        "example",
        "columns/progress.py",
        "        del self._groups[group]\n        self._advance_all(told.ready)\n",
        "        del self._groups[group]\n",
    ),
    Mutant(
        "who waits for its turn is stuck",
        "example",
        "columns/progress.py",
        "found.needs_one(place) and line[0] != group",
        "False",
    ),
    Mutant(
        "a column that was idle makes up for it",
        "example",
        "columns/buffer.py",
        "max(state.finish_tags[column], state.virtual_time)",
        "state.finish_tags[column]",
    ),
    Mutant(
        "weights are not heard",
        "example",
        "columns/buffer.py",
        "tag + 1 / weight",
        "tag + 1",
    ),
    # agents/
    Mutant(
        "an attempt that ends well resets no delay",
        "example",
        "agent/restarts.py",
        "        if end.failure is None:\n            break\n",
        "        if end.failure is None:\n            continue\n",
    ),
    Mutant(
        "what gets its slot begins though nobody wants it",
        "DRAIN",
        "agent/loop.py",
        "        if terms.stop.is_set() or terms.marker.is_set():\n            return None\n",
        "",
    ),
    Mutant(
        "children outlive a case that is cut off",
        "LEAK",
        "agent/loop.py",
        "                await self._terms.children.end()\n            self._terms.tell",
        "                await trio.lowlevel.checkpoint()\n            self._terms.tell",
    ),
    Mutant(
        "a time limit lets an agent go on without a slot",
        "SLOT",
        "agent/slots.py",
        "with trio.CancelScope(shield=True) as self._line:",
        "with trio.CancelScope() as self._line:",
    ),
    Mutant(
        "an agent that goes on stands behind who has not begun",
        "example",
        "agent/slots.py",
        "run, ahead=self.ahead)",
        "run)",
    ),
)


def apply(mutant: Mutant, package: Path) -> None:
    """Change the one place in a copy of the package.

    Raises:
        ValueError: The place is not there, or not unique: the list is behind the code.
    """
    path = package / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        msg = (
            f"{mutant.name}: {mutant.old!r} stands {text.count(mutant.old)} times in {mutant.file}"
        )
        raise ValueError(msg)
    path.write_text(text.replace(mutant.old, mutant.new))


def nearest(mutant: Mutant) -> Sequence[str]:
    """The tests that should kill a mutant: those of its module, or those of whole runs."""
    folder, name = mutant.file.removesuffix(".py").split("/")
    module = {"tokens": "token_pace"}.get(name, name)
    if folder == "quota":
        return QUOTA.get(name, REMOTE)
    if folder == "datasets":
        return DATASETS
    if folder == "agents":
        return AGENTS
    return (f"tests/property/test_{module}.py",) if folder == "rates" else WHOLE_RUNS


def run_tests(mutant: Mutant | None, tests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Tests against a copy of the package, changed by a mutant or as it is."""
    with tempfile.TemporaryDirectory() as folder:
        home, leave = Path(folder), shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "trioeval", home / "trioeval", ignore=leave)
        shutil.copytree(ROOT / "tests", home / "tests", ignore=leave)
        shutil.copy(ROOT / "pyproject.toml", home)
        if mutant is not None:
            apply(mutant, home / "trioeval")
        options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=line", "--timeout=60"]
        options += ["--timeout-method=thread"]  # a hang inside hypothesis would be tried again
        options += ["--rootdir", folder]
        return subprocess.run(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=home,
            env={
                **os.environ,
                "PYTHONPATH": folder,
                "PYTHONDONTWRITEBYTECODE": "1",
                "TRIOEVAL_PROFILE": "mutants",
            },
            capture_output=True,
            text=True,
            check=False,
        )


def killer(mutant: Mutant) -> str | None:
    """The test, and the law, that kills a mutant; None if it survives.

    Raises:
        RuntimeError: The tests could not be run, which kills nobody.
    """
    done = run_tests(mutant, nearest(mutant))
    if done.returncode == 0:
        done = run_tests(mutant, TESTS)
    if done.returncode == 0:
        return None
    said = done.stdout + done.stderr
    if "Timeout" in said and "FAILED" not in said:  # the whole process was ended, without a summary
        hung = re.search(r"in (test_\w+)", said)
        return f"a hang in {hung[1]}" if hung else "a hang"
    test = re.search(r"FAILED \S+::(\w+)", done.stdout)
    if done.returncode != 1 or test is None:
        raise RuntimeError(done.stdout[-2000:])
    law = re.search(r"AssertionError: ([A-Z_]+) is broken", done.stdout)
    return f"{law[1]} in {test[1]}" if law else test[1]


def try_all(chosen: Sequence[Mutant]) -> dict[Mutant, str | None]:
    """Print a line for each mutant; returns what killed it, None if nothing did.

    Raises:
        RuntimeError: The tests fail without any mutant.
    """
    tests = sorted({test for mutant in chosen for test in nearest(mutant)})
    baseline = run_tests(None, tests)
    if baseline.returncode != 0:
        raise RuntimeError(baseline.stdout[-2000:])
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(zip(chosen, pool.map(_killer_told, chosen), strict=True))


def _killer_told(mutant: Mutant) -> str | None:
    by = killer(mutant)
    print(f"{mutant.name:<55} {by or 'SURVIVES'}", flush=True)
    return by


def page(found: Mapping[Mutant, str | None]) -> str:
    """The result as a document."""
    lines = [
        "# Mutants",
        "",
        "Each line is one change of one place of the kernel, rates, quota, datasets or agents.",
        "Every one of them makes a test fail.",
        "`python tests/mutants.py --report` makes this page; `tests/mutants.py` holds the changes.",
        "The law is the one that says that this must not be; where only named examples do, it is `example`.",
        "Killed by is the first test that failed: others may fail as well.",
        "",
        "| mutant | place | law | killed by |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {mutant.name} | `{mutant.file}` | {mutant.law} | `{by or 'nothing'}` |"
        for mutant, by in found.items()
    ]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--report"]
    killers = try_all([m for m in MUTANTS if not words or any(word in m.name for word in words)])
    if "--report" in sys.argv and not words:
        REPORT.write_text(page(killers))
    sys.exit(sum(by is None for by in killers.values()))
