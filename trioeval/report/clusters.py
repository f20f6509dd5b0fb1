"""Which rows belong together when it comes to chance: repeats of a test, and tests of a cluster."""

import hashlib
from collections.abc import Mapping
from typing import Any

from trioeval.report.statistics.grouped import Place
from trioeval.tasks.canonical import canonical
from trioeval.tasks.identity import number_of_test

CLUSTER = "cluster"
"""The key of a test's metadata that names its cluster, where the suite names no other one."""


def place_of(record: Mapping[str, Any], cluster: str | None = None) -> Place:
    """The test and the cluster of a row.

    Rows of one column are of the same test if they have the same variables under the same description.

    Args:
        record: The row, as `row_json` makes it.
        cluster: What names its cluster: a key of metadata, or else a variable. None looks at the key
            `cluster` of metadata alone.

    Example:
        >>> first = {
        ...     "vars": {"a": 1},
        ...     "testCase": {"description": None, "metadata": {"cluster": "x"}},
        ... }
        >>> second = first | {"vars": {"a": 2}}
        >>> one, other = place_of(first), place_of(second)
        >>> one.test == other.test, one.cluster == other.cluster
        (False, True)
    """
    test = record["testCase"]
    # Those of the test are the same in all columns and repeats; those of a row may hold earlier outputs.
    variables = test.get("vars") or record["vars"]
    known_as = test.get("case") or test.get("description")
    own = number_of_test(variables, known_as)
    named = cluster_of(record, cluster)
    if named is None:
        return Place(own)
    digest = hashlib.blake2b(canonical(named).encode("utf-8", "surrogatepass"), digest_size=8)
    shared = int.from_bytes(digest.digest(), "big") | 1
    return Place(own, shared)


def cluster_of(record: Mapping[str, Any], name: str | None = None) -> Any:
    """The value that names the cluster of a row; None where it is of none.

    Args:
        record: As for `place_of`.
        name: Likewise `cluster`.
    """
    metadata = record["testCase"].get("metadata")
    found = (
        metadata.get(CLUSTER if name is None else name) if isinstance(metadata, Mapping) else None
    )
    return record["vars"].get(name) if found is None and name is not None else found
