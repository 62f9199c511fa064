//! The augmentation kernels' CPU build, and what their table makes them touch.

#include "augment_cpu.c"

u32 standin_image_size(void) { return sizeof(ImageParams); }
u32 standin_output_size(void) { return sizeof(OutputParams); }
u64 standin_image_bytes(const OutputParams* output) { return output->image_bytes; }

/// Visits the bytes from each plane's first stored sample to its last.
void standin_reads(const ImageParams* image, void (*visit)(void*, u64, u64), void* to) {
    if (image->blank) return;
    const u32 components = image->color == COLOR_GRAY ? 1 : 3;
    for (u32 c = 0; c < components; c++) {
        const PlaneParams* plane = &image->planes[c];
        visit(to, plane->data, plane->data + (u64)plane->stride * (plane->height - 1) + plane->width);
    }
}
