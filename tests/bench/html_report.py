"""The cost of the HTML page of a large run: seconds and bytes to write it, seconds to open and filter it.

    python tests/bench/html_report.py [rows] [words of an answer]

Target for 50,000 rows: written in 10 s, 30 MB, opened and filtered in 2 s. Answers are random words, which
compress worse than most model outputs. Writing is measured in CPU seconds, without those for generating the
rows; reading them from a database takes about 2 s more.
"""

import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[1] / "report")]

from browser import Browser, open_browser  # noqa: E402
from made_runs import made_results  # noqa: E402

from trioeval.report.html_report import html_chunks  # noqa: E402

_FILTER = """
const field = document.querySelector("[name=search]");
const began = performance.now();
field.value = arguments[0];
field.dispatchEvent(new Event("input", {bubbles: true}));
return new Promise((done) => requestAnimationFrame(() => setTimeout(() =>
  done([performance.now() - began, document.querySelector(".count").textContent]))));
"""


def main(rows: int, words: int) -> None:
    results = made_results(rows // 2, words=words)
    began = time.process_time()
    for _record in results.records(None):
        pass
    making = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "run.html"
        began = time.process_time()
        with page.open("w", encoding="utf-8") as file:
            file.writelines(html_chunks(results))
        writing = time.process_time() - began - making
        size = page.stat().st_size / 1e6
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{rows} rows: {writing:.1f} s to write, {size:.1f} MB, {memory:.0f} MB of memory")
        with open_browser(Path(folder) / "profile") as browser:
            browser.size(1280, 900)
            _open(browser, page)


def _open(browser: Browser, page: Path) -> None:
    for _ in range(3):
        browser.open("about:blank")
        browser.open(page.as_uri())
        browser.find("html[data-ready]")
        opened = browser.js("return performance.now()") / 1000
        shown, count = browser.js(_FILTER, "bridge mountain")
        print(f"opened in {opened:.2f} s, filtered in {shown / 1000:.2f} s: {count}")


if __name__ == "__main__":
    main(*(int(given) for given in (*sys.argv[1:], *("50000", "60")[len(sys.argv) - 1 :])))
