"""The `foreload` command, also `python -m foreload`: the command line in Rust, with recipes for `foreload show`."""

import inspect
import os
import signal
import sys
from typing import NoReturn

from foreload import _core, recipes, transforms
from foreload.transforms import mix_to_json


def _with_settings(words: list[str]) -> list[str]:
    """Return the command line of `foreload show` with the name of a recipe replaced by its settings.

    Other commands do not change. An unknown name ends the program with a list of the known ones.
    """
    if words[:1] != ["show"]:
        return words
    replaced, rest = [], iter(words)
    for word in rest:
        flag, equals, name = word.partition("=")
        if flag != "--recipe":
            replaced.append(word)
            continue
        name = name if equals else next(rest, "")
        if name not in recipes.__all__ or name == "Recipe":
            known = ", ".join(known for known in recipes.__all__ if known != "Recipe")
            print(f"foreload: recipe: is {name!r}, must be one of {known}", file=sys.stderr)
            sys.exit(2)
        make = getattr(recipes, name)
        # Labels are not shown, so that the number of classes does not matter.
        needs_classes = "num_classes" in inspect.signature(make).parameters
        recipe = make(num_classes=None) if needs_classes else make()
        replaced += ["--transforms", transforms.to_json(recipe["transforms"])]
        if "mix" in recipe:
            replaced += ["--mix", mix_to_json(recipe["mix"])]
        if "repeats" in recipe:
            replaced += ["--repeats", str(recipe["repeats"])]
    return replaced


def main() -> NoReturn:
    """Run the command line with this process's arguments and exit with its code."""
    # Python's own handler only sets a flag for the interpreter, which waits for the Rust code to return.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    # The environment in which packages are looked up (the photographs of `synth`), if there are several.
    os.environ.setdefault("FORELOAD_PYTHON", sys.executable)
    sys.exit(_core.main(["foreload", *_with_settings(sys.argv[1:])]))


if __name__ == "__main__":
    main()
