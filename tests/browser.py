"""Headless Chromium, controlled by selenium, for tests of HTML pages."""

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
    """A browser with one window.

    driver: The selenium driver, for everything without a method here.
    """

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver
        self._width = 0

    def open(self, url: str, size: tuple[int, int] = DESKTOP, scale: float = 1) -> float:
        """Load a page in a window of the given size. Return the seconds until its scripts have run.

        scale: Device pixels per CSS pixel.
        """
        self._width, height = size
        metrics = {"width": self._width, "height": height, "deviceScaleFactor": scale, "mobile": size == PHONE}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.driver.get_log("browser")
        started = time.perf_counter()
        self.driver.get(url)
        # On a busy machine, the driver may return while the previous page is still displayed.
        is_loaded = "return location.href === arguments[0] && document.readyState === 'complete'"
        self.wait(lambda: self.run(is_loaded, url))
        return time.perf_counter() - started

    def run(self, script: str, *arguments: Any) -> Any:
        """Run a script as the body of a function, and return its result."""
        return self.driver.execute_script(script, *arguments)

    def fits_width(self) -> bool:
        """Return whether the page is no wider than the window. On a phone, a wider page would increase `innerWidth`."""
        return bool(self.run("return document.documentElement.scrollWidth <= arguments[0]", self._width))

    def console_messages(self) -> list[Any]:
        """Return the messages in the console since the page was opened."""
        messages: list[Any] = self.driver.get_log("browser")
        return messages

    def requested_urls(self) -> list[str]:
        """Return the URLs of all resources that the page requested."""
        urls: list[str] = self.run("return performance.getEntriesByType('resource').map((entry) => entry.name)")
        return urls

    def set_color_scheme(self, scheme: str) -> None:
        """Set the preferred colour scheme, `light` or `dark`."""
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)

    @contextlib.contextmanager
    def with_language(self, language: str) -> Iterator[None]:
        """Set the preferred language, `en` or `zh`, for pages that are opened in this block."""
        agent = self.run("return navigator.userAgent")
        command, names = "Network.setUserAgentOverride", {"en": "en-US", "zh": "zh-CN"}
        self.driver.execute_cdp_cmd(command, {"userAgent": agent, "acceptLanguage": names[language]})
        try:
            yield
        finally:
            self.driver.execute_cdp_cmd(command, {"userAgent": agent, "acceptLanguage": "en-US"})

    def violations(self) -> list[str]:
        """Return the serious accessibility problems that axe-core finds, in light and dark colours."""
        from axe_core_python.selenium import Axe

        problems = []
        self.run("delete document.documentElement.dataset.theme")
        for scheme in ("dark", "light"):
            self.set_color_scheme(scheme)
            result = Axe().run(self.driver)
            failed = [rule for rule in result["violations"] if rule["impact"] in ("serious", "critical")]
            # axe reports rules that it cannot run as incomplete without nodes, for example if it cannot parse a colour.
            failed += [rule for rule in result["incomplete"] if not rule["nodes"]]
            problems += [f"{scheme}: {rule['id']}: {[node['html'] for node in rule['nodes']]}" for rule in failed]
        return problems

    def wait(self, condition: Callable[[], Any], seconds: float = 30.0) -> Any:
        """Wait until a condition is true, and return its value."""
        end = time.monotonic() + seconds
        while not (result := condition()):
            assert time.monotonic() < end, "the condition did not become true"
            time.sleep(0.02)
        return result


@contextlib.contextmanager
def open_browser() -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for option in (*OPTIONS.split(), f"--user-data-dir={profile}"):
            options.add_argument(option)
        # Selenium uses this timeout for requests to the driver. Without it, a test would wait forever for a browser
        # that hangs.
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
