"""A real browser for tests of pages: headless Chromium, with its own profile and without network access.

The fixtures `chromium` and `browser` in `conftest.py` provide it.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, Literal, TypeVar

import attrs
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")

_PATIENCE = 40.0  # seconds

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # tests must not reach other hosts
)


def missing_browser() -> str | None:
    """Return the reason why no browser can be started; None if one can."""
    missing = [name for name in ("chromium", "chromedriver") if which(name) is None]
    return f"not on the PATH: {', '.join(missing)}" if missing else None


@attrs.frozen
class Browser:
    """Chromium with one window. Elements are selected by CSS selectors."""

    driver: Chrome

    def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded.

        Args:
            url: `http://127.0.0.1:…` or a result of `Path.as_uri`.
        """
        self.driver.get(url)

    def find(self, css: str) -> WebElement:
        """Return the first such element, waiting for it if needed."""
        return self.wait(lambda: next(iter(self.all(css)), None), css)

    def all(self, css: str) -> list[WebElement]:
        """Return the elements that exist now."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str) -> str:
        """Return the visible text of the first such element, "" if it is hidden."""
        return self.wait(lambda: [self.find(css).text], css)[0]

    def texts(self, css: str) -> list[str]:
        """Return the visible texts of the elements that exist now."""
        return self.wait(lambda: ([one.text for one in self.all(css)],), css)[0]

    def click(self, css: str) -> None:
        """Click the first such element, waiting for it if needed."""

        def is_clicked() -> bool:
            self.find(css).click()
            return True

        self.wait(is_clicked, css)

    def expect(self, seen: Callable[[], T], expected: T) -> None:
        """Wait until a value is the expected one: pages react to events a little later.

        Args:
            seen: It reads the value from the page, and is called repeatedly.
            expected: The value.

        Raises:
            AssertionError: The value was another one until the end.
        """
        until = time.monotonic() + _PATIENCE
        while (found := self._now(seen)) != expected and time.monotonic() < until:
            time.sleep(0.02)
        assert found == expected, self.errors()

    def type(self, css: str, text: str) -> None:
        """Replace the content of a field."""
        field = self.find(css)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, on the focused element, such as `"/"` or `Keys.ENTER`."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def js(self, script: str, *values: Any) -> Any:
        """Return the result of a script, with `values` as its `arguments`."""
        return self.driver.execute_script(script, *values)

    def wait(self, found: Callable[[], T | None], what: str, limit: float = _PATIENCE) -> T:
        """Wait until a condition is true.

        Args:
            found: The condition, which is called repeatedly.
            what: The name of the condition in the error.
            limit: Seconds.

        Raises:
            AssertionError: The condition did not become true in time.
        """
        until = time.monotonic() + limit
        while not (seen := self._now(found)):
            assert time.monotonic() < until, f"never there: {what}\n{self.errors()}"
            time.sleep(0.02)
        return seen

    def _now(self, found: Callable[[], T]) -> T | None:
        """Return what a function finds; None if an element was replaced while it looked."""
        try:
            return found()
        except StaleElementReferenceException:
            return None

    def prefer(self, scheme: Literal["light", "dark"]) -> None:
        """Emulate a user who prefers light or dark colours."""
        wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)

    def size(self, width: int, height: int) -> None:
        """Set the size of the page in pixels."""
        wanted = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wanted)

    def shot(self, path: Path) -> None:
        """Write a screenshot as PNG."""
        self.driver.get_screenshot_as_file(str(path))

    def roles(self) -> list[tuple[str, str]]:
        """Return roles and names in the accessibility tree of the page, as a screen reader gets them."""
        tree = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", "").strip())
            for node in tree
            if not node["ignored"]
        ]

    def errors(self) -> list[str]:
        """Return the errors in the console since the last call, including violations of a policy."""
        entries: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [entry["message"] for entry in entries if is_error(entry)]


def is_error(entry: dict[str, Any]) -> bool:
    """Return whether a line of the console is an error; requests of browsers for an icon do not count."""
    return entry["level"] == "SEVERE" and "/favicon.ico" not in entry["message"]


@contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """Open a browser that is closed at the end of the block.

    Args:
        profile: An empty folder for its data.
    """
    program, driver = which("chromium"), which("chromedriver")
    assert program is not None
    assert driver is not None
    options = ChromeOptions()
    options.binary_location = program
    for option in (*_OPTIONS, f"--user-data-dir={profile}", "--window-size=1280,900"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = Chrome(options, Service(executable_path=driver))
    try:
        yield Browser(chrome)
    finally:
        chrome.quit()


__all__ = ["Browser", "Keys", "missing_browser", "open_browser"]
