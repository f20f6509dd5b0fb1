# Separate from `scaleout.dask_cluster`: it decides what is sent, not who runs what.
"""The transfer of a suite's files to the workers that lack them, each content once per worker."""

import functools
from collections import defaultdict
from collections.abc import Iterator, Mapping

import attrs
from distributed import Client

from trioeval.errors import UsageError
from trioeval.scaleout.plugin import lacking_files, receive_files
from trioeval.scaleout.run_keys import RunKeys
from trioeval.scaleout.suite_files import SuiteFiles

_MESSAGE_BYTES = 16 * 2**20
"""Most bytes of contents in one message, of which the scheduler keeps a copy for each worker."""


@attrs.frozen(eq=False, repr=False)
class SentFiles:
    """The files of a suite, and the keys that they must not contain."""

    _files: SuiteFiles
    _keys: RunKeys

    def send(self, client: Client, name: str, workers: list[str] | None = None) -> None:
        """Send files to workers that lack them; called in a thread.

        A worker that does not respond is left out: the comparison that follows names it.

        Args:
            client: The client of the cluster.
            name: The name of the plugin.
            workers: The addresses of the workers; None is all of them.

        Raises:
            UsageError: A file cannot be sent, or a worker cannot write it.
        """
        run = functools.partial(client.run, on_error="return")
        found = run(lacking_files, name, workers=workers)
        lacking: dict[frozenset[str], list[str]] = defaultdict(list)
        for worker, digests in found.items():
            if isinstance(digests, frozenset) and digests:
                lacking[digests].append(worker)
        contents = self._files.contents(frozenset().union(*lacking), self._keys)
        for digests, receivers in lacking.items():
            for part in _parts({digest: contents[digest] for digest in digests}):
                answers = run(receive_files, name, part, workers=receivers)
                for worker, error in answers.items():
                    if isinstance(error, OSError):
                        raise UsageError(
                            f"--on: worker {worker} cannot write the files of the suite: {error}"
                        )


def _parts(contents: Mapping[str, bytes]) -> Iterator[Mapping[str, bytes]]:
    """Yield contents in parts of limited size; one that is larger is alone."""
    part: dict[str, bytes] = {}
    size = 0
    for digest, content in contents.items():
        if part and size + len(content) > _MESSAGE_BYTES:
            yield part
            part, size = {}, 0
        part[digest] = content
        size += len(content)
    if part:
        yield part
