"""A real browser for tests of pages: headless Chromium, with a profile of its own and no way out.

The fixtures `chromium` and `browser` in `conftest.py` hand it to tests.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import which
from typing import Any, Literal, TypeVar

import attrs
from selenium.webdriver import Chrome, ChromeOptions, Keys
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

T = TypeVar("T")

_OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # tests may run as root
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # no test may meet the world
)


def missing_browser() -> str | None:
    """Why there is no browser here; None if there is one."""
    missing = [name for name in ("chromium", "chromedriver") if which(name) is None]
    return f"not on the PATH: {', '.join(missing)}" if missing else None


@attrs.frozen
class Browser:
    """Chromium with one window. Elements are named by CSS selectors."""

    driver: Chrome

    def open(self, url: str) -> None:
        """Go to a page and wait until it is loaded.

        Args:
            url: `http://127.0.0.1:…` or what `Path.as_uri` makes.
        """
        self.driver.get(url)

    def find(self, css: str) -> WebElement:
        """The first element that is there, waited for if need be."""
        return self.wait(lambda: next(iter(self.all(css)), None), css)

    def all(self, css: str) -> list[WebElement]:
        """Those elements that are there now."""
        return self.driver.find_elements(By.CSS_SELECTOR, css)

    def text(self, css: str) -> str:
        """What the first such element shows, "" if it is hidden."""
        return self.find(css).text

    def type(self, css: str, text: str) -> None:
        """Replace what stands in a field."""
        field = self.find(css)
        field.clear()
        field.send_keys(text)

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is, such as `"/"` or `Keys.ENTER`."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def js(self, script: str, *values: Any) -> Any:
        """What a script returns, with `values` as its `arguments`."""
        return self.driver.execute_script(script, *values)

    def wait(self, found: Callable[[], T | None], what: str, limit: float = 40) -> T:
        """Wait until something is there and not false.

        Args:
            found: Asked again and again.
            what: Named if it never is.
            limit: Seconds.

        Raises:
            AssertionError: It never was.
        """
        until = time.monotonic() + limit
        while not (seen := found()):
            assert time.monotonic() < until, f"never there: {what}\n{self.errors()}"
            time.sleep(0.02)
        return seen

    def prefer(self, scheme: Literal["light", "dark"]) -> None:
        """Let pages find that the user prefers light or dark colours."""
        wanted = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", wanted)

    def size(self, width: int, height: int) -> None:
        """Let the page be so large, in pixels."""
        wanted = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wanted)

    def shot(self, path: Path) -> None:
        """Write what is seen as a PNG."""
        self.driver.get_screenshot_as_file(str(path))

    def roles(self) -> list[tuple[str, str]]:
        """Roles and names in the accessibility tree of the page, as a screen reader gets them."""
        tree = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return [
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree
            if not node["ignored"]
        ]

    def errors(self) -> list[str]:
        """Errors in the console since the last call, breaches of a policy among them."""
        told: list[dict[str, Any]] = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [said["message"] for said in told if is_error(said)]


def is_error(said: dict[str, Any]) -> bool:
    """Whether a line of the console is one; browsers ask for an icon that no page has promised."""
    return said["level"] == "SEVERE" and "/favicon.ico" not in said["message"]


@contextmanager
def open_browser(profile: Path) -> Iterator[Browser]:
    """A browser that is closed at the end.

    Args:
        profile: An empty folder for what it keeps.
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
