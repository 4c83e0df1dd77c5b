// Products and counts that training needs.

#if defined(PRODUCTS)
// a [n, k, ..] (dense rows), b [m, k, ..] -> [n, m, ..]. An item makes 32 values of a row.
KERNEL out_prod(TENSOR(a), TENSOR(b), TENSOR(dst)) {
    const uint groups = (a_.ne[0] + 31) / 32, g = get_global_id(0) % groups;
    const uint r = get_global_id(0) / groups;
    if (r >= dst_.ne[1] * dst_.ne[2] * dst_.ne[3]) return;
    const uint4 i = row_of(&dst_, r);
    const uint z = i.z / (dst_.ne[2] / a_.ne[2]), w = i.w / (dst_.ne[3] / a_.ne[3]);
    float x[32], sum[32];
    for (uint j = 0; j < 32; j++) sum[j] = 0;
    for (uint k = 0; k < a_.ne[1]; k++) {
        const float y = LOAD(T1, AT(b, ((uint4)(i.y, k, i.z, i.w))));
        GROUP(T0, AT(a, ((uint4)(0, k, z, w))), g, a_.ne[0], x);
        for (uint j = 0; j < 32; j++) sum[j] += x[j] * y;
    }
    const uint n = min(32u, a_.ne[0] - 32 * g);
    for (uint j = 0; j < n; j++) STORE(T2, AT(dst, i + (uint4)(32 * g + j, 0, 0, 0)), sum[j]);
}
#endif

#if defined(COUNTS)
// One group.
KERNEL count_equal(TENSOR(a), TENSOR(b), TENSOR(dst)) {
    local int shared[WG];
    const uint item = get_local_id(0);
    int equal = 0;
    for (uint j = item; j < count(&a_); j += WG) {
        equal += LOAD(T0, AT(a, unflatten(&a_, j))) == LOAD(T1, AT(b, unflatten(&b_, j)));
    }
    shared[item] = equal;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item > 0) return;
    for (uint j = 1; j < WG; j++) equal += shared[j];
    STORE(T2, AT(dst, (uint4)(0)), equal);
}
#endif
