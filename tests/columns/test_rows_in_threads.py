"""Rows of a dataset that several threads read: each gets its own rows."""

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trioeval.columns.files import DatasetRows, Header, open_folder
from trioeval.columns.graph import RowGrouping


class Interrupted(DatasetRows):
    """Rows for which another thread reads another group whenever a group is fetched."""

    others: list[Mapping[str, Any]]
    another: threading.Thread | None = None
    _now: tuple[int, Sequence[Mapping[str, Any]]] = (-1, ())

    def read_another(self) -> None:
        self.others.append(self[3])

    @property
    def _held(self) -> tuple[int, Sequence[Mapping[str, Any]]]:
        return self._now

    @_held.setter
    def _held(self, held: tuple[int, Sequence[Mapping[str, Any]]]) -> None:
        self._now = held
        if held[0] == 0 and self.another is None:
            self.another = threading.Thread(target=self.read_another)
            self.another.start()
            self.another.join(0.2)  # it waits for its turn, or has had it


def test_a_thread_that_reads_another_group_has_no_effect(tmp_path: Path) -> None:
    """This holds even between fetching a group and returning a row of it."""
    header = Header(columns={"a": "int"}, grouping=RowGrouping(2, (4,)), fingerprint={})
    folder = open_folder(tmp_path / "made", header, file_format="jsonl", existing="never")
    folder.write(0, [(0, {"a": 0}), (1, {"a": 1})])
    folder.write(1, [(2, {"a": 2}), (3, {"a": 3})])
    folder.close()
    rows = Interrupted(tmp_path / "made")
    rows.others = []
    assert rows[0] == {"a": 0}
    assert rows.another is not None
    rows.another.join()
    assert rows.others == [{"a": 3}]
