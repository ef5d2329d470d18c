# SPDX-License-Identifier: Apache-2.0
"""Open report pages in Chromium, and read back what it lays out."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
from html import escape, unescape
from pathlib import Path
from typing import Any

_SETUP = Path(__file__).parents[2] / "scripts" / "setup_chromium"
# Runs in the page and replaces the document around it, which `--dump-dom` prints.
_ASK = """<script>addEventListener("load", () => {
  const shown = e => e.getClientRects().length > 0;
  const box = e => { const r = e.getBoundingClientRect(); return [r.left, r.right, r.height]; };
  const texts = [...document.querySelectorAll("body *")].filter(e => shown(e) &&
    [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()));
  const all = chosen => [...document.querySelectorAll(chosen)].filter(shown);
  parent.document.body.innerHTML = "<pre>" + JSON.stringify({
    width: innerWidth,
    scrollWidth: document.documentElement.scrollWidth,
    smallestText: Math.min(...texts.map(e => parseFloat(getComputedStyle(e).fontSize))),
    beyond: texts.filter(e => !e.closest(".wide-table") && box(e)[1] > innerWidth + 1)
      .map(e => e.textContent.slice(0, 60)),
    bars: all("[id^=bar-] path").map(box), marks: all("[id^=mark-] path").length,
    parts: all("[id^=part-] path").length, dots: all("[id^=dot-] use").map(box),
    curves: all("[id=curve] path").map(box),
    images: all("img").map(box), lines: all("polyline").map(box), charts: all(".chart").map(box),
    headings: all("h2").map(e => e.textContent),
    fetched: performance.getEntriesByType("resource").map(e => e.name),
  }).replaceAll("&", "&amp;").replaceAll("<", "&lt;") + "</pre>";
});</script>"""


@functools.cache
def why_not() -> str | None:
    """Try to install Chromium; return why it is missing, or None if it is there."""
    if shutil.which("chromium"):
        return None
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return f"there is no chromium; {_SETUP.name} installs it, as root, from Debian's packages"
    done = subprocess.run([str(_SETUP)], capture_output=True, text=True, timeout=500, check=False)
    return None if done.returncode == 0 else f"chromium cannot be installed: {done.stderr[-300:]}"


def look_at(page: Path, *, width: int) -> dict[str, Any]:
    """Return the sizes and texts of a page in a window of this width."""
    framed = _in_frame(page, _ASK, width=width, height=900)
    dumped = _chromium(framed, "--dump-dom")
    answer: dict[str, Any] = json.loads(unescape(dumped.split("<pre>")[1].split("</pre>")[0]))
    return answer


def _in_frame(page: Path, more: str, *, width: int, height: int) -> Path:
    """Return a page with this one in a frame: Chromium's own windows are wider than a phone."""
    inner = escape(page.read_text().replace("</body>", f"{more}</body>"))
    style = f"border:0;width:{width}px;height:{height}px"
    framed = page.with_name(f"framed-{width}.html")
    framed.write_text(f'<body style="margin:0"><iframe srcdoc="{inner}" style="{style}"></iframe>')
    return framed


def _chromium(page: Path, *what: str) -> str:
    flags = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run"
    flags += " --disable-background-networking --hide-scrollbars --virtual-time-budget=3000"
    command = ["chromium", *flags.split(), f"--user-data-dir={page.parent / 'profile'}"]
    command += ["--window-size=1300,1000", *what, page.resolve().as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout
