"""Steps that ask which call supports what on which backend, and whether the pixels are right."""

from __future__ import annotations

from collections.abc import Iterator

import driver

from .decoding import Batch
from .pictures import SIZES, STEPS, Picture, damaged, drawn, photographs, regions
from .steps import Cell, Context, Step

CALLS = ("nvjpegDecodeBatched", "nvjpegDecodeBatchedEx")
POISONS = (0xA5, 0x5A)
MANY = 64
"""The number of images, more than GPU_HYBRID needs to decode Huffman codes on the GPU ("bigger than 50", says the
header).
"""
OTHERS = {
    "progressive": {"progressive": True},
    "restart markers": {"restart_marker_rows": 1},
    "optimized": {"optimize": True},
}


def forms_of(kind: str) -> tuple[str, ...]:
    """The formats worth trying: Foreload asks for YUV of colour and Y of gray."""
    return ("Y", "YUV") if kind == "gray" else ("YUV", "Y")


def supported(context: Context, backend: str, kind: str) -> dict:
    """Ask the library itself with both functions; 0 means yes."""
    handle = context.handle(backend)
    files = {kind: drawn(kind, SIZES["odd"], 1).file}
    if kind == "420":
        files |= {name: drawn(kind, SIZES["odd"], 1, **options).file for name, options in OTHERS.items()}
    form, part = forms_of(kind)[0], regions(SIZES["odd"])[0]
    questions = {"Supported": (), "SupportedEx, whole": (form, None), "SupportedEx, region": (form, part)}
    answers = {
        f"{name}: {question}": handle.supports(file, *asked)
        for name, file in files.items()
        for question, asked in questions.items()
    }
    return {"answers": answers}


def decode(context: Context, backend: str, name: str, kind: str, form: str, shape: str, count: int) -> dict:
    size = SIZES["odd" if shape == "regions" else shape]
    options = {"optimize": True} if kind == "optimized" else {}
    sampling = "420" if kind == "optimized" else kind
    pictures = [drawn(sampling, size, seed, **options) for seed in range(min(count, 8))]
    batch = Batch(
        context.handle(backend),
        [pictures[index % len(pictures)] for index in range(count)],
        form,
        regions(size) if shape == "regions" else None,
    )
    result = batch.try_once(name, context.stream, POISONS[0])
    batch.close()
    return result


def cells_of(backend: str, count: int) -> Iterator[Cell]:
    """The cells of every combination on one backend."""
    for kind in STEPS:
        yield Cell(f"{kind}: what it says it supports", lambda c, k=kind: supported(c, backend, k))
    for name in CALLS:
        for kind in (*STEPS, "optimized"):
            for form in forms_of(kind):
                for shape in ("even", "odd", *(["regions"] if name.endswith("Ex") else [])):
                    arguments = (backend, name, kind, form, shape, count)
                    label = f"{name.removeprefix('nvjpeg')} {form} of {kind}, {shape}, {count} images"
                    yield Cell(
                        label,
                        lambda c, a=arguments: decode(c, *a),
                        call=name,
                        kind=kind,
                        form=form,
                        shape=shape,
                    )


def skips(context: Context, count: int, mixed: bool) -> dict:
    """Decode batches on the engine into poisoned memory: does success mean that everything was written?"""
    if mixed:
        files = photographs(context.images, count, context.short)
    else:
        files = [drawn("420", SIZES["odd"], seed % 16) for seed in range(count)]
    batch = Batch(context.handle("HARDWARE"), files, "YUV")
    total = dict.fromkeys(("images", "right", "untouched", "partly untouched", "wrong", "beyond"), 0)
    statuses: dict[str, int] = {}
    for number in range(2 if context.short else 6):
        result = batch.try_once("nvjpegDecodeBatchedEx", context.stream, POISONS[number % 2])
        status = result.get("status") or f"initialise: {result.get('initialise')}"
        status = f"{status}, {result['wait']}" if "wait" in result else status
        statuses[status] = statuses.get(status, 0) + 1
        if status == "SUCCESS":
            for key in total:
                total[key] += result[key]
    batch.close()
    return {"status": statuses, **total}


def with_damage(context: Context, backend: str, name: str, how: str, count: int) -> dict:
    """Put one damaged file into the middle of a batch: what does the call return, and what happens to the images?"""
    good = [drawn("420", SIZES["odd"], seed) for seed in range(min(count, 8))]
    pictures = [good[index % len(good)] for index in range(count)]
    whole = pictures[count // 2]
    pictures[count // 2] = Picture(damaged(whole.file)[how], whole.size, whole.steps, whole.planes)
    handle = context.handle(backend)
    asked = () if name == CALLS[0] else ("YUV", None)
    says = handle.supports(pictures[count // 2].file, *asked)
    batch = Batch(handle, pictures, "YUV")
    result = batch.try_once(name, context.stream, POISONS[1])
    driver.synchronize(context.stream)
    batch.close()
    return {"header": says, **result}


def skip_cells(short: bool) -> Iterator[Cell]:
    """The questions about the engine. The damaged files come last, because each may end the process."""
    for count in (1, 3) if short else (1, 7, 8, 15, 64, 256):
        yield Cell(f"{count} alike in size", lambda c, n=count: skips(c, n, False), count=count)
    for count in (4,) if short else (8, 64, 256):
        yield Cell(f"{count} photographs", lambda c, n=count: skips(c, n, True), count=count)


def damage_cells(backend: str, name: str, count: int) -> Iterator[Cell]:
    for how in damaged(drawn("420", SIZES["odd"], 0).file):
        yield Cell(f"{how}, 1 of {count}", lambda c, h=how: with_damage(c, backend, name, h, count), how=how)


def first_steps(short: bool) -> Iterator[Step]:
    """The questions about the two backends that Foreload calls with batches."""
    yield Step("pixels HARDWARE", list(cells_of("HARDWARE", 3 if short else 16)))
    yield Step("pixels GPU_HYBRID", list(cells_of("GPU_HYBRID", 3 if short else MANY)))


def steps(short: bool) -> Iterator[Step]:
    yield Step("skips HARDWARE", list(skip_cells(short)), most=30)


def late_steps(short: bool) -> Iterator[Step]:
    """The questions about damage, which may end processes, then about backends that Foreload does not call with
    batches.
    """
    yield Step("damage HARDWARE", list(damage_cells("HARDWARE", CALLS[1], 3 if short else 16)), most=30)
    yield Step("damage GPU_HYBRID", list(damage_cells("GPU_HYBRID", CALLS[0], 3 if short else MANY)), most=30)
    for backend in ("HYBRID", "DEFAULT"):
        yield Step(f"pixels {backend}", list(cells_of(backend, 3 if short else 16)))
