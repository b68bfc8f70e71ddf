"""How long a page takes until what it is opened for is to be seen, in a Chromium."""

import json

from tests.support.browser import Browser

SEEN = """{
  const look = () => {
    if (document.querySelector(SELECTOR)) window.seenMs ??= performance.now();
  };
  new MutationObserver(look).observe(document, { childList: true, subtree: true });
}"""


def watch(browser: Browser, selector: str) -> None:
    """Has every page that is opened from now on note when it has such an element."""
    browser.driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument",
        {"source": SEEN.replace("SELECTOR", json.dumps(selector))},
    )


def first_view_s(browser: Browser, url: str) -> float:
    """Opens a page; returns the time from its address until the element is there."""
    browser.open(url)
    seen_ms = browser.wait(lambda: browser.run("return window.seenMs"), "the view")
    browser.close_page()
    return float(seen_ms) / 1000
