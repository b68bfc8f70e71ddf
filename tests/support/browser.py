"""A real Chromium for tests, driven by chromedriver; waits for what is to be seen."""

import base64
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from axe_core_python.base import AXE_SCRIPT
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from tests.support.tephra_fixtures import missing

T = TypeVar("T")
DEADLINE_S = 60
ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
# What a page waits for passes ten times as fast; what it gives up after a time it gives
# up ten times as late, as a machine that is in use may be slow with any answer.
HASTE = """{
  const wait = window.setTimeout;
  window.setTimeout = (then, ms = 0, ...rest) => wait(then, ms / 10, ...rest);
  const limit = AbortSignal.timeout.bind(AbortSignal);
  AbortSignal.timeout = (ms) => limit(ms * 10);
}"""

# One call for all elements of a selector: each question about one of them, asked by
# itself, costs the driver and Chromium 10 ms of processor.
SHOWN = """
const shown = [...document.querySelectorAll(arguments[0])].filter((one) => {
  const { width, height } = one.getBoundingClientRect();
  const isLine = one instanceof SVGElement && width + height > 0;
  return (isLine || (width > 0 && height > 0)) &&
    one.checkVisibility({ opacityProperty: true, visibilityProperty: true });
});
"""
# Lines as they are to be seen, without empty ones between blocks and cells.
TEXTS = """
const text = (one) => one.innerText.replaceAll(/[\\t\\u00a0]/g, " ")
  .split("\\n").map((line) => line.trimEnd()).filter((line) => line).join("\\n");
return shown.map((one) => text(one).trim());
"""
# Once a document; of rules that were kept nobody reads the elements.
VIOLATIONS = """
return axe.run(document, { resultTypes: ["violations"] })
  .then((told) => told.violations);
"""


class Browser:
    """One Chromium; a test has a page of it to itself."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Goes to a page, on a desk, in the light, where nothing moves by itself."""
        self.show(width=1280, height=900)
        self.driver.get(url)

    def close_page(self) -> None:
        """Leaves the page, so that it asks its server no more."""
        self.driver.get("about:blank")
        self.complaints()

    def show(
        self, *, width: int, height: int, dark: bool = False, still: bool = True
    ) -> None:
        """The size of the window, and what the user prefers.

        What moves is painted all the time, which costs more than a page at work.
        """
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {
                "width": width,
                "height": height,
                "deviceScaleFactor": 1,
                "mobile": width < 600,
            },
        )
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {
                "name": "prefers-reduced-motion",
                "value": "reduce" if still else "no-preference",
            },
        ]
        self.driver.execute_cdp_cmd(
            "Emulation.setEmulatedMedia", {"features": features}
        )

    def run(self, script: str, *arguments: object) -> Any:
        """What a piece of JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def all(self, selector: str) -> list[WebElement]:
        """The elements that can be seen."""
        found: list[WebElement] = self.run(SHOWN + "return shown;", selector)
        return found

    def texts(self, selector: str) -> list[str]:
        """The texts of the elements that can be seen."""
        found: list[str] = self.run(SHOWN + TEXTS, selector)
        return found

    def wait(self, look: Callable[[], T], what: str) -> T:
        """What `look` answers, once that is something."""
        waiting = WebDriverWait(
            self.driver,
            DEADLINE_S,
            poll_frequency=0.05,
            ignored_exceptions=[StaleElementReferenceException],
        )
        try:
            return waiting.until(lambda _: look())
        except TimeoutException as error:
            text = self.text("body")
            raise AssertionError(f"{what}, was not to be seen in:\n{text}") from error

    def text(self, selector: str) -> str:
        """The text of the first of these, as it is to be seen; "" without one."""
        return next(iter(self.texts(selector)), "")

    def reads(self, selector: str, *parts: str) -> None:
        """Waits until an element has these texts in it."""
        self.wait(
            lambda: all(part in self.text(selector) for part in parts),
            f"{parts} in {selector}",
        )

    def click(self, selector: str) -> None:
        """Clicks the first of these, once it is there; also one that is drawn anew."""

        def is_clicked() -> bool:
            shown = self.all(selector)
            if shown:
                shown[0].click()
            return bool(shown)

        self.wait(is_clicked, selector)

    def press(self, *keys: str) -> None:
        """Presses keys, wherever the focus is."""
        for key in keys:
            ActionChains(self.driver, duration=0).send_keys(key).perform()

    def screenshot(self, path: Path) -> Path:
        """What is to be seen now."""
        taken = self.driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
        path.write_bytes(base64.b64decode(taken["data"]))
        return path

    def violations(self) -> list[str]:
        """What axe finds that keeps people from using what is to be seen now."""
        if not self.run("return !!window.axe"):
            self.run(AXE_SCRIPT)
        found = self.run(VIOLATIONS)
        return [
            f"{rule['id']}: {rule['help']}: {node['target']} {node['failureSummary']}"
            for rule in found
            for node in rule["nodes"]
        ]

    def complaints(self, *, but: str = "") -> list[str]:
        """What the console says: errors, and what the page's policy forbade."""
        driver: Any = self.driver
        said = [str(entry["message"]) for entry in driver.get_log("browser")]
        return [message for message in said if not but or but not in message]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Starts one, with an empty profile, and ends it and its driver."""
    found = shutil.which("chromium"), shutil.which("chromedriver")
    if None in found:
        missing("there is no chromium, or no chromedriver (chromium-driver in Debian)")
    options = ChromeOptions()
    options.binary_location = str(found[0])
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = Service(str(found[1]))
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        driver = Chrome(options=options, service=service)
        driver.set_page_load_timeout(DEADLINE_S)
        driver.set_script_timeout(DEADLINE_S)
        driver.execute_cdp_cmd(
            "Page.addScriptToEvaluateOnNewDocument", {"source": HASTE}
        )
        try:
            yield Browser(driver)
        finally:
            driver.quit()  # ends Chromium, and then the driver
            process: Any = service.process
            if process.poll() is None:
                process.kill()
            process.wait(DEADLINE_S)
