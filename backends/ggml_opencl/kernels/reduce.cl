// Sums and other reductions along rows: one group a row.

KERNEL sum_rows(TENSOR(a), TENSOR(dst), const float scale) {
    local float2 shared[WG];
    const uint4 row = row_of(&a_, get_group_id(0));
    const global uchar *x = AT(a, row);
    float2 sum = 0;
    EACH(j, a_.ne[0]) sum = plus(sum, load_f32(x + j * a_.nb[0]));
    const float total = group_sum(sum, shared);
    if (get_local_id(0) == 0) store_f32(AT(dst, row), scale * total);
}

KERNEL sum(TENSOR(a), TENSOR(dst)) {
    local float2 shared[WG];
    float2 sum = 0;
    EACH(j, count(&a_)) sum = plus(sum, load_f32(AT(a, unflatten(&a_, j))));
    const float total = group_sum(sum, shared);
    if (get_local_id(0) == 0) store_f32(AT(dst, (uint4)(0)), total);
}

// Running sums: WG elements at a time by doubling distances, then the sum of all before.
KERNEL cumsum(TENSOR(a), TENSOR(dst)) {
    local float2 shared[WG];
    const uint4 row = row_of(&a_, get_group_id(0));
    const global uchar *x = AT(a, row);
    global uchar *y = AT(dst, row);
    const uint item = get_local_id(0);
    float2 before = 0;
    for (uint start = 0; start < a_.ne[0]; start += WG) {
        const uint j = start + item;
        barrier(CLK_LOCAL_MEM_FENCE);
        shared[item] = (float2)(j < a_.ne[0] ? load_f32(x + j * a_.nb[0]) : 0.0f, 0.0f);
        for (uint d = 1; d < WG; d *= 2) {
            barrier(CLK_LOCAL_MEM_FENCE);
            const float2 left = item >= d ? shared[item - d] : (float2)(0.0f);
            barrier(CLK_LOCAL_MEM_FENCE);
            shared[item] = plus_sum(left, shared[item]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (j < a_.ne[0]) store_f32(y + j * dst_.nb[0], plus_sum(before, shared[item]).x);
        before = plus_sum(before, shared[WG - 1]);
    }
}

// The last of the largest, like ggml_vec_argmax_f32.
KERNEL argmax(TENSOR(a), TENSOR(dst)) {
    local float best[WG];
    local int where[WG];
    const uint item = get_local_id(0);
    const global uchar *x = AT(a, row_of(&a_, get_group_id(0)));
    best[item] = -INFINITY;
    where[item] = 0;
    EACH(j, a_.ne[0]) {
        const float v = load_f32(x + j * a_.nb[0]);
        if (v >= best[item]) best[item] = v, where[item] = j;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item > 0) return;
    for (uint j = 1; j < WG; j++) {
        const bool later = best[j] == best[0] && where[j] > where[0];
        if (best[j] > best[0] || later) best[0] = best[j], where[0] = where[j];
    }
    store_i32(AT(dst, ((uint4)(get_group_id(0), 0, 0, 0))), where[0]);
}
