"""A headless Chromium under a test's control, by WebDriver (W3C) over HTTP; needs no package."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1400,1000",
)  # fmt: skip


def why_none() -> str | None:
    """Why no browser can be started; None where one can."""
    found = _browser()
    if found is None:
        return "no Chromium found: install it (Debian: apt-get install chromium chromium-driver)"
    try:
        subprocess.run([found, "--version"], capture_output=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{found} does not start: {error}"
    if shutil.which("chromedriver") is None:
        return "no chromedriver found: install it (Debian: apt-get install chromium-driver)"
    return None


class Browser:
    """One browser with one page. `errors` are what its console said was wrong."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="rebal-browser-")
        driver = shutil.which("chromedriver")
        assert driver is not None
        self._driver = subprocess.Popen(
            [driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._base = f"http://127.0.0.1:{self._port()}"
        options = {"binary": _browser(), "args": [*_FLAGS, f"--user-data-dir={self._profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._base += f"/session/{made['sessionId']}"

    def open(self, page: Path, *, script: bool = True) -> None:
        """Load a file; `script` False is a browser whose user switched JavaScript off."""
        off = {"cmd": "Emulation.setScriptExecutionDisabled", "params": {"value": not script}}
        self._call("POST", "/goog/cdp/execute", off)
        self._call("POST", "/url", {"url": "about:blank"})
        self._call("POST", "/url", {"url": page.as_uri()})

    def do(self, code: str, *arguments: Any) -> Any:
        """What the body of a function gives in the page; a promise is waited for."""
        return self._call("POST", "/execute/sync", {"script": code, "args": list(arguments)})

    def errors(self) -> list[str]:
        """What the console said was wrong since it was asked last."""
        found = self._call("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in found if entry["level"] in ("SEVERE", "WARNING")]

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._call("DELETE", "", None)
        finally:
            self._driver.terminate()
            self._driver.wait(10)
            shutil.rmtree(self._profile, ignore_errors=True)

    def _port(self) -> int:
        assert self._driver.stdout is not None
        for line in self._driver.stdout:
            found = re.search(r"started successfully on port (\d+)", line)
            if found:
                return int(found[1])
        raise AssertionError("chromedriver ended before it listened")

    def _call(self, method: str, path: str, body: Any) -> Any:
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(self._base + path, data, method=method)
        asked.add_header("Content-Type", "application/json")
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(asked, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            said = json.load(error)["value"]
            raise AssertionError(f"{said['error']}: {said['message']}") from None


def _browser() -> str | None:
    named = os.environ.get("REBAL_CHROMIUM")
    return named or next(filter(None, map(shutil.which, _NAMES)), None)
