"""The example notebook, and interruptions, in a real kernel of Jupyter."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient")
pytest.importorskip("ipykernel", reason="needs ipykernel")

NOTEBOOK = Path(__file__).parents[2] / "docs" / "examples" / "embedding" / "notebook.ipynb"
TOO_LONG = 60
"""Seconds after which a test fails instead of waiting."""

pytestmark = [pytest.mark.slow, pytest.mark.network]


def test_the_example_prints_its_stored_output() -> None:
    """Each cell ends with the stored output; a display of progress ends with all rows."""
    stored = nbformat.read(NOTEBOOK, as_version=4)
    executed = nbformat.read(NOTEBOOK, as_version=4)
    nbclient.NotebookClient(executed, timeout=TOO_LONG, kernel_name="python3").execute()
    for before, after in zip(stored.cells, executed.cells, strict=True):
        assert before.get("outputs") == after.get("outputs")
    shown = [output.data["text/plain"] for cell in stored.cells for output in displays_of(cell)]
    assert shown[0] == "3 of 3 rows: 1 passed, 2 failed"


def displays_of(cell: Any) -> list[Any]:
    outputs = cell.get("outputs", [])
    return [output for output in outputs if output.output_type == "display_data"]


WAITING = """
import asyncio, trioeval, trioeval.asyncio

suite = trioeval.parse_suite({
    "providers": ["mine"],
    "prompts": ["row {{n}}"],
    "tests": [{"vars": {"n": str(n)}} for n in range(4)],
    "evaluateOptions": {"maxConcurrency": 1},
})
asked, waits = 0, True

async def answer(request):
    global asked
    asked += 1
    if asked > 2 and waits:
        print("waiting", flush=True)
        await asyncio.Event().wait()
    return request.prompt

async def run():
    async with trioeval.asyncio.open_session(
        store="results.db", providers={"mine": answer}, progress=False
    ) as session:
        async with session.run(suite, id="eval-1", resume=True) as run:
            return [row.index async for row in run.rows()], asked, run.resumed
"""


def test_an_interrupted_cell_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    """The kernel stays usable, and the next cell continues the run."""
    with open_kernel(tmp_path) as (kernel, client):
        client.execute(WAITING)
        cell = client.execute("await run()", stop_on_error=False)
        assert message_of(client, cell, "stream")["text"] == "waiting\n"
        kernel.interrupt_kernel()
        failed = message_of(client, cell, "error")
        assert failed["ename"] in {"CancelledError", "KeyboardInterrupt"}
        cell = client.execute("waits = False; await run()")
        result = message_of(client, cell, "execute_result")
        assert result["data"]["text/plain"] == "([0, 1, 2, 3], 5, True)"


@contextmanager
def open_kernel(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Start a kernel in a folder; yield its manager and its client."""
    from jupyter_client.manager import start_new_kernel

    kernel, client = start_new_kernel(startup_timeout=TOO_LONG, cwd=str(folder))
    try:
        yield kernel, client
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)


def message_of(client: Any, cell: str, kind: str) -> dict[str, Any]:
    """Return the content of the next message of a kind about a cell."""
    while True:
        message = client.get_iopub_msg(timeout=TOO_LONG)
        is_of_cell = message["parent_header"].get("msg_id") == cell
        if is_of_cell and message["msg_type"] == kind:
            content: dict[str, Any] = message["content"]
            return content
        assert not (is_of_cell and message["msg_type"] == "error"), message["content"]
