// Heads of f32 on their way to attention, one group each: RMS_NORM and MUL if NORMED, ROPE, and
// SET_ROWS if TO_ROWS, whose rows have all heads of a token. The source may be the result.

PART(norm/_of)
PART(rope/_turn)

KERNEL head(TENSOR(a), TENSOR(pos), TENSOR(factors), TENSOR(dst),
#if TO_ROWS
            TENSOR(ids),
#endif
#if NORMED
            TENSOR(w), ROPE, const float eps
#else
            ROPE
#endif
#if TO_ROWS
            , CHECKED
#endif
) {
    const rope_t t = ROPE_T;
    const uint4 row = row_of(&a_, get_group_id(0));
    const global uchar *x = AT(a, row);
#if TO_ROWS
    const long to = LOAD(T4, AT(ids, ((uint4)(row.z, 0, 0, 0))));
    if (!IN_RANGE(to, dst_.ne[1])) return;
    global uchar *y = AT(dst, ((uint4)(row.y * a_.ne[0], (uint)to, 0, 0)));
#else
    global uchar *y = AT(dst, row);
#endif
#if NORMED
    local float2 shared[WG];
    const float scale = of_rms_norm(x, 4, a_.ne[0], eps, shared).y;
    const global uchar *weights = AT(w, repeated(&w_, row));
    #define VALUE(i) (scale * load_f32(x + 4 * (i)) * load_f32(weights + 4 * ((i) % w_.ne[0])))
#else
    #define VALUE(i) load_f32(x + 4 * (i))
#endif
    EACH(unit, (uint)(a_.ne[0] - n_pairs)) {
        if (unit >= n_pairs) {
            const uint rest = unit - n_pairs, i = rest < first ? rest : rest + 2 * n_pairs;
            STORE(T3, y + i * dst_.nb[0], VALUE(i));
            continue;
        }
        const float2 turn = turn_of(&t, unit, row.z, a_.ne[2], pos, pos_, factors, factors_);
        const uint i = first + stride * unit, j = i + apart;
        const float u = VALUE(i), v = VALUE(j);
        STORE(T3, y + i * dst_.nb[0], u * turn.x - v * turn.y);
        STORE(T3, y + j * dst_.nb[0], u * turn.y + v * turn.x);
    }
}
