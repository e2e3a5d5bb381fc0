"""Draw the pictures of docs/images: a terminal session and the status page.

`delegation local up`, `delegation local tables`, then `python -m infra.site.pictures .local/stack.json`; Chromium draws
the pages. `make regenerate` does not: ids and times always differ, so the pictures are made when a screen changes.
"""

import io
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

from infra.environment.context import ROOT

IMAGES: Final = ROOT / "docs" / "images"
SESSION: Final = ("submit lake.shop.orders --wait", "tasks list", "tasks history {task}")
_COLUMNS: Final = 92
_CODES: Final = re.compile(r"(\x1b\[2K|\x1b\[\d*A|\x1b\[\?25[lh]|\r|\n)")
_TASK: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TEMPLATE: Final = """<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>.{unique_id}-matrix {{ font: {char_height}px/{line_height}px monospace; }} {styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}</defs>
<rect fill="#292929" width="{width}" height="{height}" rx="8"/>
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
"""The form of rich's SVG without its fonts, which a browser would load from elsewhere."""


def last_screen(printed: str) -> str:
    """Return what a terminal shows after this output: lines that were drawn again are there once."""
    lines, at = [""], 0
    for part in _CODES.split(printed):
        if part == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            at = max(0, at - int(part[2:-1] or 1))
        elif part == "\x1b[2K":
            lines[at] = ""
        elif not part.startswith("\x1b[?") and part != "\r":
            lines[at] += part
    return "\n".join(line for line in lines if line.strip()) + "\n"


def session(stack: Path) -> str:
    console = Console(record=True, width=_COLUMNS, file=io.StringIO(), force_terminal=True)
    task = ""
    for command in SESSION:
        words = command.format(task=task).split()
        console.print(Text(f"$ delegation {' '.join(words)}", style="bold"))
        printed = last_screen(_run([*words, "--stack", str(stack)]))
        task = task or _TASK.findall(printed)[0]
        console.print(Text.from_ansi(printed))
    return console.export_svg(title="", code_format=_TEMPLATE, unique_id="terminal")


def _run(words: list[str]) -> str:
    environment = {**os.environ, "COLUMNS": str(_COLUMNS), "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    program = str(Path(sys.executable).with_name("delegation"))
    done = subprocess.run(
        [program, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True
    )
    return done.stdout.decode()


def drawn(address: str, name: str, height: int) -> None:
    """Draw a page into docs/images; raises subprocess.CalledProcessError if Chromium fails."""
    programs = ("chromium", "chromium-browser", "google-chrome")
    program = next((path for each in programs if (path := shutil.which(each))), None)
    if program is None:
        raise SystemExit("Chromium draws the pictures. Install Chromium")
    always = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000")
    options = (f"--screenshot={IMAGES / name}", f"--window-size=1100,{height}")
    subprocess.run([program, *always, *options, address], check=True, capture_output=True, timeout=120)


def status_page(stack: Path, task: str) -> None:
    program = str(Path(sys.executable).with_name("delegation"))
    command = [program, "ui", "--stack", str(stack), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        address = json.loads(served.stdout.readline() if served.stdout else "")["url"]
        drawn(address, "tasks.png", 570)
        drawn(f"{address}#{task}", "task.png", 900)
        served.terminate()


def main(stack: Path) -> None:
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "terminal.svg").write_text(session(stack), encoding="utf-8")
    status_page(stack, _TASK.findall((IMAGES / "terminal.svg").read_text(encoding="utf-8"))[0])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
