// Rotary position embedding. One item a pair of channels, or a channel that is only copied.

PART(rope/_turn)

KERNEL rope(TENSOR(a), TENSOR(pos), TENSOR(factors), TENSOR(dst), ROPE) {
    const rope_t t = ROPE_T;
    const uint units = a_.ne[0] - n_pairs, unit = get_global_id(0) % units;
    const uint r = get_global_id(0) / units;
    if (r >= a_.ne[1] * a_.ne[2] * a_.ne[3]) return;
    const uint4 row = row_of(&a_, r);
    const global uchar *x = AT(a, row);
    global uchar *y = AT(dst, row);
    if (unit >= n_pairs) {
        const uint rest = unit - n_pairs, i = rest < first ? rest : rest + 2 * n_pairs;
        STORE(T3, y + i * dst_.nb[0], LOAD(T0, x + i * a_.nb[0]));
        return;
    }
    const float2 turn = turn_of(&t, unit, row.z, a_.ne[2], pos, pos_, factors, factors_);
    const uint i = first + stride * unit, j = i + apart;
    const float u = LOAD(T0, x + i * a_.nb[0]), v = LOAD(T0, x + j * a_.nb[0]);
    STORE(T3, y + i * dst_.nb[0], u * turn.x - v * turn.y);
    STORE(T3, y + j * dst_.nb[0], u * turn.y + v * turn.x);
}
