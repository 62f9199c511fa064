"""The reports of both comparisons, in Markdown, and whether all results are as expected."""

from __future__ import annotations

from harness import report

LIKELY = 0.05
"""The significance level for the smallest p-value of all recipes; it is divided by their number."""
STATISTICS = {
    f"{features}, {statistic}": f"{features}: {title}"
    for features in ("blocks", "looks")
    for statistic, title in (
        ("mean", "mean"),
        ("covariance", "covariance"),
        ("variance by image", "variance"),
        ("covariance by image", "covariance by image"),
    )
}


def head(result: dict) -> list[str]:
    needs = ", ".join(result["requirements"][:2])
    about = f"`{result['data']}`: {result['images']} photographs, seed {result['seed']}, {needs}"
    return [report.machine_line(result["machine"]), about]


def of_ops(result: dict) -> tuple[str, bool]:
    """Return the report on single transforms, and whether all of them are within the allowed differences."""
    steps: dict[tuple[str, str], list[dict]] = {}
    whole: dict[str, list[dict]] = {}
    for line in result["transforms"]:
        for step in line["steps"]:
            steps.setdefault((line["name"], step["allowed"]["title"]), []).append(step)
        if "whole" in line:
            whole.setdefault(line["name"], []).append(line["whole"])
    met = all(step["met"] for found in steps.values() for step in found)
    sizes = ", ".join(map(str, result["sizes"]))
    compound = [name for name, found in whole.items() if any(entry["largest"] > 1 for entry in found)]
    text = [
        *head(result),
        f"Given the same levels before it and what was drawn, at sides of {sizes} pixels: the largest difference to "
        "torchvision's uint8 result in 8-bit levels, and the share of values that differ. What runs in one pass is "
        "taken apart for this: each operation runs on the levels that the one before made, and the last one's are "
        "those of the batch, bit for bit.",
        report.table(
            ["transform", "arithmetic", "images", "largest", "differ", "by more than 1", "allowed", "met"],
            [step_row(name, title, found) for (name, title), found in steps.items()],
        ),
        "The same lists as wholes, torchvision going its own way from the first operation to the last, where "
        "something is more than a level apart. Each operation by itself is within its bounds above; what follows a "
        "level that is one off may take it further: solarize with the threshold 178.5 leaves 178 and makes 76 of 179, "
        "and equalize, autocontrast and contrast stretch the step, too.",
        report.table(
            ["list", "images", "largest", "differ", "by more than 1"],
            [whole_row(name, whole[name]) for name in compound],
        )
        if compound
        else "None is.",
        f"All within what is allowed: {'yes' if met else 'NO'}",
    ]
    return "\n\n".join(text), met


def step_row(name: str, title: str, found: list[dict]) -> list[str]:
    """Return the table row of a transform's operations of one kind, over all sizes."""
    rule = found[0]["allowed"]
    of = "pixels" if rule["of_pixels"] else "values"
    if rule["share"] == 0:
        asked = "0"
    elif rule["of_pixels"]:
        asked = f"≤ {rule['share']:g} of {of}"
    else:
        asked = f"≤ {rule['largest']:g}" + (f", ≤ {rule['share']:g} of {of}" if rule["share"] < 1 else "")
        asked += f", ≤ {rule['beyond']:g} by more than 1" if rule["beyond"] else ""
    met = "yes" if all(step["met"] for step in found) else "NO"
    return [name, title, *figures(found), asked, met]


def whole_row(name: str, found: list[dict]) -> list[str]:
    return [name, *figures(found)]


def figures(found: list[dict]) -> list[str]:
    """Return the number of images, the largest difference and the largest shares over all sizes."""
    shares = (max(entry[key] for entry in found) for key in ("share", "share_beyond_1"))
    images, largest = sum(entry["images"] for entry in found), max(entry["largest"] for entry in found)
    shown = small(largest) if largest < 1 else f"{largest:.0f}"
    return [str(images), shown, *(small(share) for share in shares)]


def small(value: float) -> str:
    return "0" if value == 0 else f"{value:.1e}"


def of_outputs(result: dict) -> tuple[str, bool]:
    judged = [
        p
        for recipe in result["recipes"].values()
        for view in recipe["views"]
        for statistic, p in view["p"].items()
        if view["decode"] == "exact" or statistic.startswith("blocks")
    ]
    limit = LIKELY / max(len(judged), 1)
    least = min(judged, default=1.0)
    found = {name: least_of(wrong["views"]) for name, wrong in result["wrong"].items()}
    commits = {entry["commit"] for key in ("recipes", "wrong") for entry in result[key].values()}
    text = [
        *head(result),
        f"Compared at commit {', '.join(sorted(commits))}.",
        "Recipes and the transforms of their sources, which make two images of each photograph each, with random "
        f"numbers of their own. p-values of an exact paired test ({result['exchanges']} random exchanges of both by "
        "photograph): of the mean, the covariance, and variances and covariance given the photograph, of the means of "
        "8 by 8 blocks and of 17 figures of the whole image (channels, colour, detail, black and white, sides). Mean "
        "difference and its standard error in 8-bit levels, over all blocks; variance of blocks, Foreload's / the "
        "source's. With `decode=\"exact\"`, torchvision's arithmetic:",
        recipe_table(result["recipes"], "exact"),
        'With `decode="fast"`, the default, which converts colours behind the resize: what a resize overshoots is '
        "clamped once and not before, so that a few more values are black or white, which the figures of the whole "
        "image show; only blocks are judged.",
        recipe_table(result["recipes"], "fast"),
        f"The least of {len(judged)} p-values is {least:.2g}; below {LIKELY} / {len(judged)} = {limit:.2g} a recipe "
        f"would be off: {'none is' if least > limit else 'OFF'}.",
    ]
    if found:
        rows = [
            [name, f"{p:.1e}", statistic, "yes" if p <= limit else "no"]
            for name, (p, statistic) in found.items()
        ]
        text += [
            "What the test can detect: Foreload's recipe compared with a source with one wrong number",
            report.table(["wrong source", "least p", "by", "found out"], rows),
        ]
    return "\n\n".join(text), least > limit


def recipe_table(recipes: dict[str, dict], decode: str) -> str:
    rows = []
    for name, recipe in recipes.items():
        of_decode = [view for view in recipe["views"] if view["decode"] == decode]
        rows += [recipe_row(f"{name}, {v['view']}" if len(of_decode) > 1 else name, v) for v in of_decode]
    return report.table(
        ["recipe, view", *STATISTICS.values(), "mean difference", "standard error", "variance"], rows
    )


def least_of(views: list[dict]) -> tuple[float, str]:
    """Return the smallest p-value of a recipe, and its statistic."""
    return min((p, statistic) for view in views for statistic, p in view["p"].items())


def recipe_row(name: str, view: dict) -> list[str]:
    p_values = [f"{view['p'][statistic]:.2g}" for statistic in STATISTICS]
    return [
        name,
        *p_values,
        f"{view['mean_difference']:+.2f}",
        f"{view['standard_error']:.2f}",
        f"{view['variance_ratio']:.3f}",
    ]
