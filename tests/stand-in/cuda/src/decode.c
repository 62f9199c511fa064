//! The memory that the kernels access for entries of the tables of packed and indexed images.

#include "decode/gather.cuh"
#include "indexed/table.cuh"
#include "packed/table.cuh"

u64 standin_piece_bytes(void) { return sizeof(PieceEntry); }
u64 standin_packed_row_bytes(void) { return sizeof(PackedRowEntry); }
u64 standin_jpeg_image_bytes(void) { return sizeof(ImageEntry); }
u64 standin_indexed_row_bytes(void) { return sizeof(IndexedRowEntry); }
u64 standin_indexed_image_bytes(void) { return sizeof(IndexedImageEntry); }
u64 standin_code_bytes(void) { return sizeof(HuffmanCode); }
u64 standin_group_bytes(void) { return sizeof(RowGroupEntry); }

u32 standin_image_of_row(const PackedRowEntry* row) { return row->image; }
u32 standin_image_of_group(const RowGroupEntry* group) { return group->image; }
u32 standin_first_of_group(const RowGroupEntry* group) { return group->first; }
u32 standin_rows_of_group(const RowGroupEntry* group) { return group->count; }

/// The index of a code of an image; `kind` 0 is the code of DC differences. 0 for a component that the image does not
/// have.
u32 standin_code_of(const IndexedImageEntry* image, u32 component, u32 kind) {
    return component < image->image.count ? image->codes[component][kind] : 0;
}

/// Visits the samples that a row of MCUs produces.
static void visit_samples(const ImageEntry* image, u32 number, void (*visit)(void*, u64, u64), void* to) {
    for (u32 c = 0; c < image->count; c++) {
        const ComponentEntry* component = &image->components[c];
        const u32 bytes = 8 * (component->wanted[0][1] - component->wanted[0][0]);
        u32 from, end;
        wanted_rows(component, number, &from, &end);
        for (u32 y = 8 * from; y < 8 * end; y++) {
            const u32 line = y - 8 * component->wanted[1][0];
            if (line >= component->height) break;
            const u64 at = component->plane + (u64)line * component->stride;
            visit(to, at, at + bytes);
        }
    }
}

/// Visits the source of a piece, then its target.
void standin_gather_reads(const PieceEntry* piece, void (*visit)(void*, u64, u64), void* to) {
    visit(to, piece->from, piece->from + QUAD_BYTES * (u64)piece->quads);
}
void standin_gather_writes(const PieceEntry* piece, void (*visit)(void*, u64, u64), void* to) {
    visit(to, piece->to, piece->to + QUAD_BYTES * (u64)piece->quads);
}

/// Visits the bytes of a row of a packed image.
void standin_packed_reads(const PackedRowEntry* row, void (*visit)(void*, u64, u64), void* to) {
    visit(to, row->bytes, row->bytes + row->length);
}

/// Visits the samples that the row produces, and the image's counter of damaged rows.
void standin_packed_writes(const ImageEntry* image, const PackedRowEntry* row, u64 damage,
                           void (*visit)(void*, u64, u64), void* to) {
    visit_samples(image, row->number, visit, to);
    visit(to, damage + 4 * (u64)image->damage, damage + 4 * (u64)image->damage + 4);
}

/// Visits the bytes of a row of an indexed image.
void standin_indexed_reads(const IndexedRowEntry* row, void (*visit)(void*, u64, u64), void* to) {
    visit(to, row->bytes, row->bytes + row->length);
}

/// Visits the samples that the row produces, and the image's counter of damaged rows.
void standin_indexed_writes(const IndexedImageEntry* image, const IndexedRowEntry* row, u64 damage,
                            void (*visit)(void*, u64, u64), void* to) {
    visit_samples(&image->image, row->number, visit, to);
    visit(to, damage + 4 * (u64)image->image.damage, damage + 4 * (u64)image->image.damage + 4);
}
