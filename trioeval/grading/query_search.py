# Apart from `grading.kinds.files`: what a query may cost is decided without a file.
"""The search for values of a JSONPath in a document, for a bounded time.

What is not cheap is evaluated by a process of its own, which is ended when its time is up.
"""

import json
import subprocess
import sys
from typing import Any

from trioeval.scripting.queries import program
from trioeval.text import quote


def values_at(path: str, document: Any, size: int) -> list[Any]:
    """The values of a JSONPath: at most one; of a path that may find several the list of all. Blocks.

    Args:
        path: One that is right.
        document: Where to look.
        size: Characters of the document, as JSON.

    Raises:
        ValueError: The path fails on the document, or takes too long; the message says which.
    """
    if size <= program.CHEAP and program.is_cheap("jsonpath", path):
        told = program.run("jsonpath", path, document)
    else:
        told = _run_apart(path, document)
    if "error" in told:
        msg = f"{quote(path)} fails: {told['error']}"
        if told["error"].startswith("it "):
            msg = f"{quote(path)} {told['error'].removeprefix('it ')}"
        raise ValueError(msg)
    values: list[Any] = told["values"]
    return values if told["singular"] or not values else [values]


def _run_apart(path: str, document: Any) -> dict[str, Any]:
    try:
        asked = json.dumps(["jsonpath", path, document])
        done = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, program.__file__],
            input=asked,
            capture_output=True,
            text=True,
            timeout=program.TIME_LIMIT,
            check=False,
        )
        told: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        return {"error": f"it takes longer than {program.TIME_LIMIT:g} seconds"}
    except RecursionError:
        return {"error": "the document is nested too deeply"}
    except ValueError:
        return {"error": f"the process that looks for it ended with code {done.returncode}"}
    return told
