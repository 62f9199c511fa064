"""Draws the comparison as bars: images per second of each loader, with the range of its rounds."""

from __future__ import annotations

from html import escape

WIDTH, LEFT, RIGHT, ROW, TOP = 800, 330, 70, 26, 34
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#333}.peer{fill:#9aa5a3}.own{fill:#00897b}.range{stroke:#333;"
    "stroke-width:1}@media(prefers-color-scheme:dark){text{fill:#ddd}.range{stroke:#ddd}}"
)


def svg(part: dict) -> str:
    """Return the picture of one dataset's comparison, the fastest loader first."""
    measured = [
        entry for entry in part["peers"].values() if "images_per_s" in entry and entry["equal_quality"]
    ]
    measured.sort(key=lambda entry: -entry["images_per_s"]["median"])
    most = max(entry["images_per_s"]["max"] for entry in measured)
    height = TOP + ROW * len(measured) + 10
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="18">images a second, {escape(part["data"])} photographs</text>',
    ]
    for number, entry in enumerate(measured):
        speed, title = entry["images_per_s"], entry["title"]
        long = {name: (WIDTH - LEFT - RIGHT) * speed[name] / most for name in ("median", "min", "max")}
        y = TOP + ROW * number
        kind = "own" if title.startswith("**") else "peer"
        lines += [
            f'<text x="{LEFT - 8}" y="{y + 15}" text-anchor="end">{escape(title.replace("**", ""))}</text>',
            f'<rect class="{kind}" x="{LEFT}" y="{y + 2}" width="{long["median"]:.1f}" height="{ROW - 8}"/>',
            f'<path class="range" d="M{LEFT + long["min"]:.1f} {y + 11}H{LEFT + long["max"]:.1f}"/>',
            f'<text x="{LEFT + long["max"] + 6:.1f}" y="{y + 15}">{speed["median"]:.0f}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])
