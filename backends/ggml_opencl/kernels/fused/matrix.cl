// Products of few columns and what follows them.

PART(matrix/_rows)

#if defined(TO_ROWS)
// Columns become rows of a cache, whose type is T2.
static inline void store_row(float v, uint4 i, TENSOR(dst), TENSOR(ids), CHECKED) {
    const long row = LOAD(T3, AT(ids, ((uint4)(i.y, 0, 0, 0))));
    if (IN_RANGE(row, dst_.ne[1])) STORE(T2, AT(dst, ((uint4)(i.x, (uint)row, 0, 0))), v);
}

OF_COLUMNS(mul_mat_to_rows, (TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(ids), CHECKED),
           store_row(v, i, dst, dst_, ids, ids_, faults, step))
#endif

#if defined(GATED)
// Rows of a, which gate, and of c: half of those that an item makes are of each.
#define PAIRS (BESIDE / 2)

static inline void gated_products(TENSOR(a), TENSOR(c), uint2 batch, const global uchar *column,
                                  const tensor_t *b, local float *sums) {
    const global uchar *rows[BESIDE];
    rows_of(rows, PAIRS, a, &a_, FIRST(PAIRS), batch.x, batch.y);
    rows_of(rows + PAIRS, PAIRS, c, &c_, FIRST(PAIRS), batch.x, batch.y);
    row_products(rows, a_.ne[0], column, b, sums);
}

#define GATED_SUM(kind) (gate(SUM(LANE), kind) * SUM(PAIRS + LANE))

KERNEL mul_mat_gated(TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(c), const int kind) {
    SUMS;
    const uint4 i = (uint4)(FIRST(PAIRS) + LANE, get_group_id(1), get_group_id(2) % b_.ne[2],
                            get_group_id(2) / b_.ne[2]);
    const uint2 batch = (uint2)(i.z / (b_.ne[2] / a_.ne[2]), i.w / (b_.ne[3] / a_.ne[3]));
    gated_products(a, a_, c, c_, batch, AT(b, ((uint4)(0, i.y, i.z, i.w))), &b_, sums);
    if (LANE < PAIRS && i.x < a_.ne[1]) store_f32(AT(dst, i), GATED_SUM(kind));
}

// Experts: group (rows, slot, token).
KERNEL mul_mat_id_gated(TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(c), TENSOR(ids), const int kind,
                        CHECKED) {
    SUMS;
    const uint slot = get_group_id(1), token = get_group_id(2);
    const int expert = load_i32(AT(ids, ((uint4)(slot, token, 0, 0))));
    if (!IN_RANGE(expert, a_.ne[2])) return;
    const uint4 i = (uint4)(FIRST(PAIRS) + LANE, slot, token, 0);
    const global uchar *column = AT(b, ((uint4)(0, slot % b_.ne[1], token, 0)));
    gated_products(a, a_, c, c_, (uint2)(expert, 0), column, &b_, sums);
    if (LANE < PAIRS && i.x < a_.ne[1]) store_f32(AT(dst, i), GATED_SUM(kind));
}
#endif
