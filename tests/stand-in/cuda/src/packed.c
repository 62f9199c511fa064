//! Which memory an entry of the tables of packed images makes the kernel touch.

#include "packed/table.cuh"

u64 standin_row_bytes(void) { return sizeof(PackedRow); }
u64 standin_image_entry_bytes(void) { return sizeof(PackedImage); }
u32 standin_image_of(const PackedRow* row) { return row->image; }

/// Visits the bytes of the row.
void standin_row_reads(const PackedRow* row, void (*visit)(void*, u64, u64), void* to) {
    visit(to, row->bytes, row->bytes + row->length);
}

/// Visits the samples that are made of the row, and the image's count of damaged rows.
void standin_row_writes(const PackedImage* image, const PackedRow* row, u64 damage, void (*visit)(void*, u64, u64),
                        void* to) {
    for (u32 c = 0; c < image->count; c++) {
        const PackedComponent* component = &image->components[c];
        const u32 from = larger(component->wanted[1][0], row->number * component->rows);
        const u32 end = smaller(component->wanted[1][1], (row->number + 1) * component->rows);
        const u32 bytes = 8 * (component->wanted[0][1] - component->wanted[0][0]);
        for (u32 y = 8 * from; y < 8 * end; y++) {
            const u32 line = y - 8 * component->wanted[1][0];
            if (line >= component->height) break;
            const u64 at = component->plane + (u64)line * component->stride;
            visit(to, at, at + bytes);
        }
    }
    visit(to, damage + 4 * (u64)image->damage, damage + 4 * (u64)image->damage + 4);
}
