"""The workers of a run as its coordinator sees them, and the events that it receives."""

from collections.abc import Sequence
from typing import Protocol

from trioeval.evaluation.prepared import PreparedTask
from trioeval.scaleout.messages import AnyShard, Message


class Cluster(Protocol):
    """Workers that run shards. All methods are called in the thread of the run, and return at once."""

    def submit(self, worker: str, shard: AnyShard, /) -> None:
        """Start a shard on a worker; its end is reported to `ClusterEvents.on_shard_end`."""
        ...

    def cancel(self, number: int, /) -> None:
        """Cancel a shard; nothing of it is awaited any more."""
        ...

    def add_task(self, part: PreparedTask, /) -> None:
        """Give a task whose tests are the rows of another one to each worker, before its first shard."""
        ...

    def shut_down(self, number: int, lane: str, /) -> None:
        """Let a shard of a dataset start nothing new, because too many calls of a lane failed."""
        ...

    def stop(self) -> None:
        """Let all workers start no more rows."""
        ...


class ClusterEvents(Protocol):
    """The receiver of the events of a cluster, in the thread of the run."""

    def on_worker(self, worker: str, /) -> None:
        """Handle a worker that can run shards."""
        ...

    def on_loss(self, worker: str, /) -> None:
        """Handle the loss of a worker with everything that it runs."""
        ...

    def on_messages(self, messages: Sequence[Message], /) -> None:
        """Handle messages of a worker."""
        ...

    def on_shard_end(self, number: int, error: Exception | None, /) -> None:
        """Handle the end of a shard, after its messages; an error if it could not be run."""
        ...
