// Triangular systems and diagonal matrices.

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
