// Outer products, triangular systems, diagonal matrices.

#if defined(TRIANGULAR)
// Forward substitution; an item owns one column of b and x [k, n].
KERNEL solve_tri(TENSOR(a), TENSOR(b), TENSOR(dst)) {
    const uint k = b_.ne[0], column = get_global_id(0) % k, batch = get_global_id(0) / k;
    if (batch >= b_.ne[2] * b_.ne[3]) return;
    const uint i2 = batch % b_.ne[2], i3 = batch / b_.ne[2];
    global uchar *x = AT(dst, ((uint4)(column, 0, i2, i3)));
    for (uint r = 0; r < a_.ne[0]; r++) {
        const global uchar *row = AT(a, ((uint4)(0, r, i2, i3)));
        float rest = load_f32(AT(b, ((uint4)(column, r, i2, i3))));
        for (uint j = 0; j < r; j++) rest -= load_f32(row + 4 * j) * load_f32(x + j * dst_.nb[1]);
        store_f32(x + r * dst_.nb[1], rest / load_f32(row + 4 * r));
    }
}

KERNEL diag(TENSOR(a), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const bool on = i.x == i.y;
    store_f32(AT(dst, i), on ? load_f32(AT(a, ((uint4)(i.x, 0, i.z, i.w)))) : 0.0f);
}
#endif

#if defined(OUTER)
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
