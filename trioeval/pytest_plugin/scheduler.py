"""Distributes items over the workers of xdist: the rows of suites that share a lane go to one worker.

A lane limits the calls of its process only. Were its rows spread over workers, each of them would have a
lane of its own, or wait for the results of another one. This module needs xdist, which is optional.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScheduling
from xdist.workermanage import WorkerController

from trioeval.pytest_plugin.workers import read_groups

_LEAST = 2  # tests of a worker: it runs one once it knows the next one


class LaneScheduling(LoadScheduling):  # type: ignore[misc]  # xdist has no types
    """The distribution of `--dist load`, except that groups are sent whole and first, the largest first."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        self._groups: list[list[int]] | None = None

    def _send_tests(self, node: WorkerController, num: int) -> None:
        if self._groups is None:
            self._groups = sorted(read_groups(self.config), key=len, reverse=True)
        waiting = {*self.pending} if self._groups else set()
        groups = [
            left for group in self._groups if (left := [*filter(waiting.__contains__, group)])
        ]
        if not groups:
            super()._send_tests(node, num)
            return
        sent = groups.pop(0)
        grouped = {one for group in groups for one in group}.union(sent)
        others = (one for one in self.pending if one not in grouped)
        for unit in (*([one] for one in others), *groups):
            if len(sent) >= min(num, _LEAST):
                break
            sent += unit
        waiting.difference_update(sent)
        self.pending[:] = filter(waiting.__contains__, self.pending)
        self.node2pending[node].extend(sent)
        node.send_runtest_some(sent)
