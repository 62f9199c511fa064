"""Makes the pages of the site that are not written by hand: the command line's help, the changelog, the examples."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
SPEED = ROOT / "benches" / "results" / "compare.svg"
EXAMPLES = ROOT / "examples"
PROGRAM = shlex.split(os.environ.get("FORELOAD", ".venv/bin/foreload"))
"""The command that has the help: `make docs` sets it."""


def help_of(*command: str) -> str:
    """Return what a command says of itself."""
    run = subprocess.run([*PROGRAM, *command, "--help"], cwd=ROOT, check=True, capture_output=True, text=True)
    return run.stdout


def commands() -> str:
    """Return the page of the command line."""
    text = help_of()
    names = re.findall(r"^  ([a-z]+)  ", text.split("Commands:")[1].split("Options:")[0], re.MULTILINE)
    parts = ["# Command line", f"```text\n{text}```"]
    parts += [f"## foreload {name}\n\n```text\n{help_of(name)}```" for name in names if name != "help"]
    return "\n\n".join(parts) + "\n"


def changelog() -> str:
    """Return the changelog, with links as the site has them."""
    return (ROOT / "CHANGELOG.md").read_text().replace("](docs/", "](")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for name, make in (("cli.md", commands), ("changelog.md", changelog)):
        files.append(File.generated(config, name, content=make()))
    for program in EXAMPLES.glob("*.py"):
        content = f"# {program.name}\n\n```python\n{program.read_text()}```\n"
        files.append(File.generated(config, f"examples/{program.stem}.md", content=content))
    files.append(File.generated(config, "images/speed.svg", abs_src_path=str(SPEED)))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Take the plot and the examples from their places in the site, and show other files by their names."""
    markdown = markdown.replace("../benches/results/compare.svg", "images/speed.svg")
    markdown = re.sub(r"\]\(\.\./examples/(\w+)\.py\)", r"](examples/\1.md)", markdown)
    # Tests mark programs of other libraries with a second word, which the site does not know.
    markdown = re.sub(r"^```(\w+) \w+$", r"```\1", markdown, flags=re.MULTILINE)
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", markdown)


def on_page_content(html: str, page: Page, **_: object) -> str:
    """Check that all blocks of code were found."""
    if "```" in html:
        raise PluginError(f"{page.file.src_path}: a block of code is shown as text")
    return html
