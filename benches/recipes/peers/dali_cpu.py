"""NVIDIA DALI's CPU pipeline with its own operators: the fused random-crop decoder if there is one view, otherwise one
decode for all views.

Jitter and grey are one `color_twist`, in which saturation 0 means grey; its steps have a fixed order, and its contrast
is relative to half-grey. The window of a blur is DALI's default, three deviations to each side, which costs less than a
fixed window. DALI does not mix batches.
"""

from __future__ import annotations

import math
import sys

import numpy as np
import recipes
from harness import dali_peers, measure
from harness.measure import RATIO, Epoch, Options
from nvidia.dali import fn, pipeline_def, types
from nvidia.dali import math as dali_math
from nvidia.dali.auto_aug import rand_augment, trivial_augment
from recipes import Jitter, Recipe, View

INTERPOLATIONS = {
    "nearest": types.INTERP_NN,
    "bilinear": types.INTERP_LINEAR,
    "bicubic": types.INTERP_CUBIC,
}
GREY_LEVELS = np.arange(256, dtype=np.uint8)


@pipeline_def(enable_conditionals=True)
def training_pipeline(recipe: Recipe, paths: list[str], labels: list[int]):
    encoded, label = fn.readers.file(files=paths, labels=labels, random_shuffle=True, name="reader")
    alone = len(recipe.views) == 1
    source = encoded if alone else fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
    crop = decoded_crop if alone else crop_of
    images = [augmented(crop(source, view), view) for view in recipe.views]
    if recipe.erasing:
        images = [erased(image, recipe.erasing) for image in images]
    return *images, label


def decoded_crop(encoded, view: View):
    return dali_peers.decoded_crop(encoded, view.scale, view.side, INTERPOLATIONS[view.interpolation])


def crop_of(decoded, view: View):
    return fn.random_resized_crop(
        decoded,
        size=[view.side, view.side],
        random_area=view.scale,
        random_aspect_ratio=RATIO,
        interp_type=INTERPOLATIONS[view.interpolation],
        antialias=True,
    )


def augmented(image, view: View):
    if view.jitter is not None:
        image = twisted(image, view.jitter, view.grey)
    if view.blur > 0:
        image = blurred(image, view.blur)
    if view.solarise > 0:
        image = solarised(image, view.solarise)
    if view.policy is not None:
        image = policy(image, view)
    return dali_peers.normalised(image, flip=recipes.FLIP)


def chance(p: float):
    return fn.random.coin_flip(probability=p, dtype=types.BOOL)


def twisted(image, jitter: Jitter, grey: float):
    """Change the colours, or make them grey, or both at once. Samples without a change skip this."""
    hue = fn.random.uniform(range=(-360 * jitter.hue, 360 * jitter.hue))
    saturation = factor(jitter.saturation)
    if grey > 0:
        coloured = fn.cast(chance(1 - grey), dtype=types.FLOAT)
        saturation = saturation * coloured
    if chance(jitter.p):
        image = fn.color_twist(
            image,
            brightness=factor(jitter.brightness),
            contrast=factor(jitter.contrast),
            saturation=saturation,
            hue=hue,
        )
    elif grey > 0:
        image = greyed(image, coloured)
    return image


def greyed(image, coloured):
    """Make a sample grey if `coloured` is 0."""
    if coloured < 0.5:
        image = fn.saturation(image, saturation=coloured)
    return image


def blurred(image, p: float):
    if chance(p):
        image = fn.gaussian_blur(image, sigma=fn.random.uniform(range=recipes.BLUR_SIGMA))
    return image


def solarised(image, p: float):
    """Invert the bright values of some samples."""
    values = np.where(GREY_LEVELS < recipes.SOLARISE_FROM, GREY_LEVELS, 255 - GREY_LEVELS)
    if chance(p):
        image = fn.lookup_table(image, keys=GREY_LEVELS.tolist(), values=values.tolist(), dtype=types.UINT8)
    return image


def factor(change: float):
    """Draw a factor that changes by at most `change`, as torchvision does."""
    return fn.random.uniform(range=(max(0.0, 1 - change), 1 + change))


def policy(image, view: View):
    """Apply RandAugment or TrivialAugmentWide. Areas outside of a warped image become black, as in torchvision."""
    warping = {"fill_value": 0, "interp_type": INTERPOLATIONS[view.warp]}
    if view.policy == "RandAugment":
        strength = recipes.RAND_AUGMENT
        return rand_augment.rand_augment(image, strength["num_ops"], strength["magnitude"], **warping)
    return trivial_augment.trivial_augment_wide(image, **warping)


def erased(image, p: float):
    """Erase a rectangle of some of the normalised images (3, H, W)."""
    if chance(p):
        area = fn.random.uniform(range=recipes.ERASED_SCALE)
        ratio = dali_math.exp(fn.random.uniform(range=[math.log(bound) for bound in recipes.ERASED_RATIO]))
        height = dali_math.min(dali_math.sqrt(area * ratio), 1)
        width = dali_math.min(dali_math.sqrt(area / ratio), 1)
        top = fn.random.uniform(range=(0.0, 1.0)) * (1 - height)
        left = fn.random.uniform(range=(0.0, 1.0)) * (1 - width)
        image = fn.erase(
            image,
            anchor=fn.stack(top, left),
            shape=fn.stack(height, width),
            axis_names="HW",
            normalized=True,
            fill_value=0,
        )
    return image


def prepare(options: Options) -> Epoch:
    recipe = recipes.chosen(options)
    if recipe.mixing:
        sys.exit("DALI has no MixUp and no CutMix")
    return dali_peers.epochs_of(training_pipeline, recipe, options)


if __name__ == "__main__":
    measure.main(prepare, recipes.sides)
