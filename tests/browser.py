"""A real browser, in which tests look at pages: headless Chromium, driven by selenium."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"
OPTIONS = (
    "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking "
    "--disable-component-update --disable-dev-shm-usage --disable-sync --disable-quic --hide-scrollbars"
)
PHONE, DESKTOP = (390, 844), (1280, 900)


class Browser:
    """The one window of a browser.

    driver: selenium's, for whatever is not here.
    """

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str, size: tuple[int, int] = DESKTOP) -> float:
        """Load a page in a window of this size. Returns how many seconds it took until its scripts had run."""
        width, height = size
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.get_log("browser")
        started = time.perf_counter()
        self.driver.get(url)
        # On a busy machine a driver that sees nothing load yet takes the page before for the new one.
        arrived = "return location.href === arguments[0] && document.readyState === 'complete'"
        self.wait(lambda: self.run(arrived, url))
        return time.perf_counter() - started

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns, as the body of a function."""
        return self.driver.execute_script(script, *arguments)

    def said(self) -> list[Any]:
        """What is in the console since the page was opened."""
        found: list[Any] = self.driver.get_log("browser")
        return found

    def fetched(self) -> list[str]:
        """The addresses of all that the page asked for beside itself."""
        return self.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")

    def prefer(self, scheme: str) -> None:
        """Let the system prefer the colours `light` or `dark`."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    @contextlib.contextmanager
    def speaking(self, language: str) -> Iterator[None]:
        """Let the browser prefer a language, `en` or `zh`, for pages that are opened meanwhile."""
        agent = self.run("return navigator.userAgent")
        command, names = "Network.setUserAgentOverride", {"en": "en-US", "zh": "zh-CN"}
        self.driver.execute_cdp_cmd(command, {"userAgent": agent, "acceptLanguage": names[language]})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd(command, {"userAgent": agent, "acceptLanguage": "en-US"})

    def violations(self) -> list[str]:
        """What axe-core finds that keeps people from using the page, in the colours of light and of dark."""
        from axe_core_python.selenium import Axe

        found = []
        self.run("delete document.documentElement.dataset.theme")
        for scheme in ("dark", "light"):
            self.prefer(scheme)
            result = Axe().run(self.driver)
            failed = [rule for rule in result["violations"] if rule["impact"] in ("serious", "critical")]
            # A rule that axe itself cannot run has nodes of nothing: the colours, where it cannot read one.
            failed += [rule for rule in result["incomplete"] if not rule["nodes"]]
            found += [f"{scheme}: {rule['id']}: {[node['html'] for node in rule['nodes']]}" for rule in failed]
        return found

    def wait(self, condition: Callable[[], Any], seconds: float = 30.0) -> Any:
        """What a condition returns once it is true."""
        end = time.monotonic() + seconds
        while not (met := condition()):
            assert time.monotonic() < end, "the page did not come to be as expected"
            time.sleep(0.02)
        return met


@contextlib.contextmanager
def started() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for option in (*OPTIONS.split(), f"--user-data-dir={profile}"):
            options.add_argument(option)
        # Selenium takes this for what it asks the driver: without it, a browser that never answers would be waited for.
        before = socket.getdefaulttimeout()
        socket.setdefaulttimeout(280)
        try:
            driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        finally:
            socket.setdefaulttimeout(before)
        try:
            yield Browser(driver)
        finally:
            driver.quit()
