// Products of few columns, each of which reads the weights.

PART(matrix/_rows)

OF_COLUMNS(mul_mat_columns, (TENSOR(a), TENSOR(b), TENSOR(dst)), store_f32(AT(dst, i), v))

// Experts: group (rows, slot, token).
KERNEL mul_mat_id(TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(ids), CHECKED) {
    SUMS;
    const uint first = FIRST(BESIDE), slot = get_group_id(1), token = get_group_id(2);
    const int expert = load_i32(AT(ids, ((uint4)(slot, token, 0, 0))));
    if (!IN_RANGE(expert, a_.ne[2])) return;
    const uint4 i = (uint4)(first + LANE, slot, token, 0);
    const global uchar *rows[BESIDE];
    rows_of(rows, BESIDE, a, &a_, first, expert, 0);
    row_products(rows, a_.ne[0], AT(b, ((uint4)(0, slot % b_.ne[1], token, 0))), &b_, sums);
    if (LANE < BESIDE && i.x < a_.ne[1]) store_f32(AT(dst, i), SUM(LANE));
}
