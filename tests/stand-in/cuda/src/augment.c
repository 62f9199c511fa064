//! The memory that the augmentation kernels read for an entry of their table.

#include "params.cuh"

/// Visits the bytes from each plane's first stored sample to its last, some of which may not be samples (`all` 0). Then
/// visits the first and last row of each plane, in which all bytes are samples.
void standin_reads(const ImageParams* image, void (*visit)(void*, u64, u64, u32 all), void* to) {
    if (image->blank) return;
    const u32 components = image->color == COLOR_GRAY ? 1 : 3;
    for (u32 c = 0; c < components; c++) {
        const PlaneParams* plane = &image->planes[c];
        const u64 last = plane->data + (u64)plane->stride * (plane->height - 1);
        visit(to, plane->data, last + plane->width, 0);
        visit(to, plane->data, plane->data + plane->width, 1);
        visit(to, last, last + plane->width, 1);
    }
}

/// The image's place in the output.
u32 standin_place(const ImageParams* image) { return image->place; }

/// The bytes of one set of the grey levels that its program works on.
u64 standin_levels_bytes(const OutputParams* output) { return (u64)3 * output->width * output->height; }

/// The bytes of an image, the first field of the kernels' last parameter.
u64 standin_image_bytes(const OutputParams* output) { return output->image_bytes; }
