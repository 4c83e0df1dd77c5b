// Selecting and writing rows.

#if defined(PLAIN_ROWS)
// ids [r, B2, B3] -> dst [n, r, B2, B3]
KERNEL get_rows(TENSOR(a), TENSOR(ids), TENSOR(dst), CHECKED) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int row = load_i32(AT(ids, ((uint4)(i.y, i.z, i.w, 0))));
    if (!IN_RANGE(row, a_.ne[1])) return;
    STORE(T2, AT(dst, i), LOAD(T0, AT(a, ((uint4)(i.x, row, i.z, i.w)))));
}

KERNEL set_rows(TENSOR(src), TENSOR(ids), TENSOR(dst), CHECKED) {
    if (get_global_id(0) >= count(&src_)) return;
    const uint4 i = unflatten(&src_, get_global_id(0));
    const long row = LOAD(T1, AT(ids, repeated(&ids_, ((uint4)(i.y, i.z, i.w, 0)))));
    if (!IN_RANGE(row, dst_.ne[1])) return;
    STORE(T2, AT(dst, ((uint4)(i.x, (uint)row, i.z, i.w))), LOAD(T0, AT(src, i)));
}
#endif

#if defined(GROUPED_ROWS)
// As get_rows; an item makes 32 values of a quantized row.
KERNEL get_groups(TENSOR(a), TENSOR(ids), TENSOR(dst), CHECKED) {
    const uint groups = dst_.ne[0] / 32, g = get_global_id(0) % groups;
    if (get_global_id(0) >= count(&dst_) / 32) return;
    const uint4 i = row_of(&dst_, get_global_id(0) / groups);
    const int row = load_i32(AT(ids, ((uint4)(i.y, i.z, i.w, 0))));
    if (!IN_RANGE(row, a_.ne[1])) return;
    float x[32];
    GROUP(T0, AT(a, ((uint4)(0, row, i.z, i.w))), g, a_.ne[0], x);
    for (uint j = 0; j < 32; j++) store_f32(AT(dst, i) + 4 * (32 * g + j), x[j]);
}
#endif

#if defined(SET_BLOCKS)
// As set_rows; an item makes one block.
KERNEL set_blocks(TENSOR(src), TENSOR(ids), TENSOR(dst), CHECKED) {
    const uint blocks = src_.ne[0] / SPAN, g = get_global_id(0) % blocks;
    if (get_global_id(0) >= count(&src_) / SPAN) return;
    const uint4 i = row_of(&src_, get_global_id(0) / blocks);
    const long row = LOAD(T1, AT(ids, repeated(&ids_, ((uint4)(i.y, i.z, i.w, 0)))));
    if (!IN_RANGE(row, dst_.ne[1])) return;
    float x[SPAN];
    for (uint j = 0; j < SPAN; j++) x[j] = LOAD(T0, AT(src, i + (uint4)(SPAN * g + j, 0, 0, 0)));
    QUANTIZE(T2, x, AT(dst, ((uint4)(0, (uint)row, i.z, i.w))) + BLOCK * g);
}
#endif
