"""Crops, resizes and flips given boxes of given files, each method with the calls that its loader makes.

It runs inside the method's own environment: it reads a JSON list of {path, sample_id, x, y, width, height, flip} and
writes a NumPy file of uint8 images (N, size, size, 3).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

Views = list[dict]
Images = Iterable[np.ndarray]


def pillow(views: Views, size: int) -> Images:
    """Decode, crop, antialiased bilinear resize, flip: the reference."""
    from PIL import Image

    for view in views:
        with Image.open(view["path"]) as image:
            yield pillow_resize(np.asarray(image.convert("RGB")), view, size)


def pillow_resize(pixels: np.ndarray, view: dict, size: int) -> np.ndarray:
    """Pillow's crop and antialiased bilinear resize of decoded RGB."""
    from PIL import Image

    x, y, width, height = box_of(view)
    image = Image.fromarray(pixels).crop((x, y, x + width, y + height))
    return flipped(np.asarray(image.resize((size, size), Image.Resampling.BILINEAR)), view)


def libjpeg_turbo(views: Views, size: int, fast: bool = False) -> Images:
    """libjpeg-turbo (simplejpeg), then Pillow's resize; `fast`: fast transform and plain upsampling."""
    import simplejpeg

    for view in views:
        data = Path(view["path"]).read_bytes()
        options = {"fastdct": fast, "fastupsample": fast}
        yield pillow_resize(simplejpeg.decode_jpeg(data, "RGB", **options), view, size)


def torchvision_io(views: Views, size: int) -> Images:
    """torchvision.io and v2's antialiased resize on uint8."""
    from torchvision.io import ImageReadMode, decode_jpeg, read_file
    from torchvision.transforms.v2 import functional

    for view in views:
        image = decode_jpeg(read_file(view["path"]), mode=ImageReadMode.RGB)
        x, y, width, height = box_of(view)
        image = functional.resized_crop(image, y, x, height, width, [size, size], antialias=True)
        yield flipped(image.permute(1, 2, 0).numpy(), view)


def opencv(views: Views, size: int) -> Images:
    """OpenCV's linear resize, which does not antialias."""
    import cv2

    for view in views:
        image = cv2.imread(view["path"], cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION)
        x, y, width, height = box_of(view)
        image = image[y : y + height, x : x + width]
        yield flipped(cv2.resize(image, (size, size), interpolation=cv2.INTER_LINEAR), view)


def dali(views: Views, size: int) -> Images:
    """DALI's decoder of a slice and its antialiased linear resize, on the CPU."""
    from nvidia.dali import fn, pipeline_def, types

    def sources(info) -> tuple[np.ndarray, ...]:
        view = views[info.idx_in_epoch % len(views)]  # Prefetching asks for views beyond the end.
        x, y, width, height = box_of(view)
        return (
            np.fromfile(view["path"], np.uint8),
            np.array([x, y], np.int32),
            np.array([width, height], np.int32),
            np.array(int(view["flip"]), np.int32),
        )

    @pipeline_def
    def slices():
        kinds = [types.UINT8, types.INT32, types.INT32, types.INT32]
        encoded, start, shape, flip = fn.external_source(sources, num_outputs=4, batch=False, dtype=kinds)
        image = fn.decoders.image_slice(
            encoded,
            start=start,
            shape=shape,
            axis_names="WH",
            device="cpu",
            output_type=types.RGB,
            adjust_orientation=False,
        )
        image = fn.resize(image, size=[size, size], interp_type=types.INTERP_LINEAR, antialias=True)
        return fn.flip(image, horizontal=flip)

    pipeline = slices(batch_size=1, num_threads=1, device_id=None)
    pipeline.build()
    for _ in views:
        (images,) = pipeline.run()
        yield np.array(images.at(0))


def tensorflow(views: Views, size: int, antialias: bool = True) -> Images:
    """TensorFlow's fused decode-and-crop and its bilinear resize."""
    import tensorflow as tf

    for view in views:
        x, y, width, height = box_of(view)
        image = tf.image.decode_and_crop_jpeg(
            tf.io.read_file(view["path"]), [y, x, height, width], channels=3
        )
        image = tf.image.resize(image, [size, size], method="bilinear", antialias=antialias)
        yield flipped(rounded(image.numpy()), view)


def spdl(views: Views, size: int) -> Images:
    """SPDL: FFmpeg's crop and its bilinear scale."""
    import spdl.io

    for view in views:
        x, y, width, height = box_of(view)
        filters = f"crop={width}:{height}:{x}:{y}:exact=1,scale={size}:{size}:flags=bilinear,format=rgb24"
        frames = spdl.io.decode_packets(spdl.io.demux_image(view["path"]), filter_desc=filters)
        yield flipped(spdl.io.to_numpy(spdl.io.convert_frames(frames)), view)


def ffcv(views: Views, size: int) -> Images:
    """FFCV's decoder and area resize on the original file; the real loader first re-encodes files."""
    from ffcv.libffcv import imdecode, resize_crop
    from PIL import Image

    for view in views:
        with Image.open(view["path"]) as header:
            width, height = header.size
        pixels = np.empty((height, width, 3), np.uint8)
        imdecode(np.fromfile(view["path"], np.uint8), pixels, height, width, height, width)
        image = np.empty((size, size, 3), np.uint8)
        x, y, box_width, box_height = box_of(view)
        resize_crop(pixels, y, y + box_height, x, x + box_width, image)
        yield flipped(image, view)


def foreload(views: Views, size: int, loader_arguments: dict, decode: str) -> Images:
    """Return Foreload's own batches of the epoch for which the boxes were drawn, uint8."""
    import foreload

    loader = foreload.ImageLoader(**loader_arguments, image_size=size, dtype="uint8", decode=decode)
    loader.set_epoch(0)
    wanted = {view["sample_id"] for view in views}
    found = {}
    for batch in loader:
        images = np.from_dlpack(batch.images)
        for position, sample in enumerate(np.from_dlpack(batch.sample_ids).tolist()):
            if sample in wanted:
                found[sample] = images[position].transpose(1, 2, 0).copy()
        if len(found) == len(wanted):
            break
    for view in views:
        yield found[view["sample_id"]]


def foreload_views(paths: list[str], count: int, loader_arguments: dict) -> Views:
    """Return the boxes that Foreload draws in epoch 0 for `count` samples spread over the dataset."""
    import foreload

    loader = foreload.ImageLoader(**loader_arguments)
    views = []
    for index in range(count):
        sample = index * len(paths) // count
        views.append({"path": paths[sample], "sample_id": sample, **dict(loader.view(sample, 0))})
    return views


def box_of(view: dict) -> tuple[int, int, int, int]:
    """Return x, y, width, height of the crop."""
    return view["x"], view["y"], view["width"], view["height"]


def flipped(image: np.ndarray, view: dict) -> np.ndarray:
    """Mirror left to right if the view says so."""
    return image[:, ::-1] if view["flip"] else image


def rounded(image: np.ndarray) -> np.ndarray:
    """Round float values to the nearest grey level."""
    return np.clip(np.rint(image), 0, 255).astype(np.uint8)


METHODS = {
    "pillow": pillow,
    "pillow-simd": pillow,
    "libjpeg-turbo": libjpeg_turbo,
    "libjpeg-turbo-fast": lambda views, size: libjpeg_turbo(views, size, fast=True),
    "torchvision-io": torchvision_io,
    "opencv": opencv,
    "dali": dali,
    "tf-data": tensorflow,
    "tf-data-plain": lambda views, size: tensorflow(views, size, antialias=False),
    "spdl": spdl,
    "ffcv": ffcv,
}


def produce(request: dict) -> Iterator[np.ndarray]:
    """Return the images of a request's method, in the order of its views."""
    method, views, size = request["method"], request["views"], request["image_size"]
    if method.startswith("foreload-"):
        yield from foreload(views, size, request["loader"], method.removeprefix("foreload-"))
    else:
        yield from METHODS[method](views, size)


def main() -> None:
    """Run `methods.py REQUEST.json OUTPUT`: write pixels to a NumPy file, or Foreload's boxes to a JSON file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("request", type=Path, help="JSON: method, image_size, views, loader")
    parser.add_argument("output", type=Path)
    chosen = parser.parse_args()
    request = json.loads(chosen.request.read_text())
    if request["method"] == "foreload-views":
        views = foreload_views(request["paths"], request["count"], request["loader"])
        chosen.output.write_text(json.dumps(views))
        return
    images = np.stack(list(produce(request)))
    expected = (len(request["views"]), request["image_size"], request["image_size"], 3)
    if images.shape != expected or images.dtype != np.uint8:
        sys.exit(f"{request['method']}: {images.dtype} of shape {images.shape}, expected uint8 of {expected}")
    np.save(chosen.output, images)


if __name__ == "__main__":
    main()
