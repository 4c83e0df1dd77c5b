// Matrix products. a: weights of any type in dense rows, b: f32 or f16; 32 values are a group.

static inline void group_of_b(const global uchar *column, const tensor_t *b, uint g, float *x) {
    if (b->nb[0] == SIZE(T1)) {
        GROUP(T1, column, g, b->ne[0], x);
        return;
    }
    for (uint j = 0; j < 32; j++) {
        const uint i = 32 * g + j;
        x[j] = i < b->ne[0] ? LOAD(T1, column + i * b->nb[0]) : 0.0f;
    }
}

#define LANES 16 // items that share a row
#define ROWS (WG / LANES)

// The product of a row and a column by LANES items; the whole is in the first item's place.
static inline void row_product(const global uchar *row, uint n, const global uchar *column,
                        const tensor_t *b, local float *shared) {
    const uint item = get_local_id(0), lane = item % LANES;
    float w[32], x[32], sum = 0;
    for (uint g = lane; row && 32 * g < n; g += LANES) {
        GROUP(T0, row, g, n, w);
        group_of_b(column, b, g, x);
        for (uint j = 0; j < 32; j++) sum += w[j] * x[j];
    }
    shared[item] = sum;
    for (uint half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_) shared[item] += shared[item + half_];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Few columns: group (rows, column, batch).
KERNEL mul_mat_columns(TENSOR(a), TENSOR(b), TENSOR(dst)) {
    local float shared[WG];
    const uint r = get_group_id(0) * ROWS + get_local_id(0) / LANES, column = get_group_id(1);
    const uint i2 = get_group_id(2) % b_.ne[2], i3 = get_group_id(2) / b_.ne[2];
    const uint4 i = (uint4)(0, r, i2 / (b_.ne[2] / a_.ne[2]), i3 / (b_.ne[3] / a_.ne[3]));
    const bool inside = r < a_.ne[1];
    const global uchar *x = AT(b, ((uint4)(0, column, i2, i3)));
    row_product(inside ? AT(a, i) : 0, a_.ne[0], x, &b_, shared);
    if (inside && get_local_id(0) % LANES == 0) {
        store_f32(AT(dst, ((uint4)(r, column, i2, i3))), shared[get_local_id(0)]);
    }
}

// Experts: group (rows, slot, token).
KERNEL mul_mat_id(TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(ids)) {
    local float shared[WG];
    const uint r = get_group_id(0) * ROWS + get_local_id(0) / LANES;
    const uint slot = get_group_id(1), token = get_group_id(2);
    const int expert = load_i32(AT(ids, ((uint4)(slot, token, 0, 0))));
    const bool inside = r < a_.ne[1] && expert >= 0 && expert < a_.ne[2];
    const global uchar *x = AT(b, ((uint4)(0, slot % b_.ne[1], token, 0)));
    row_product(inside ? AT(a, ((uint4)(0, r, expert, 0))) : 0, a_.ne[0], x, &b_, shared);
    if (inside && get_local_id(0) % LANES == 0) {
        store_f32(AT(dst, ((uint4)(r, slot, token, 0))), shared[get_local_id(0)]);
    }
}

#define TILE 32 // rows and columns of a tile; 8 x 8 items make 4 x 4 results each
#define PART 4

// Many columns: group (rows, columns, batch); 32 x 32 values of both are shared in local memory.
KERNEL mul_mat_tile(TENSOR(a), TENSOR(b), TENSOR(dst)) {
    local float rows[TILE][33], columns[TILE][33];
    const uint item = get_local_id(0), line = item % TILE;
    const uint first_row = get_group_id(0) * TILE, first_column = get_group_id(1) * TILE;
    const uint i2 = get_group_id(2) % b_.ne[2], i3 = get_group_id(2) / b_.ne[2];
    const uint4 from_a = (uint4)(0, min(first_row + line, (uint)a_.ne[1] - 1),
                                 i2 / (b_.ne[2] / a_.ne[2]), i3 / (b_.ne[3] / a_.ne[3]));
    const uint4 from_b = (uint4)(0, min(first_column + line, (uint)b_.ne[1] - 1), i2, i3);
    const uint y = item / 8 * PART, x = item % 8 * PART;
    float sum[PART][PART], loaded[32];
    for (uint i = 0; i < PART; i++) for (uint j = 0; j < PART; j++) sum[i][j] = 0;
    for (uint g = 0; 32 * g < a_.ne[0]; g++) {
        if (item < TILE) {
            GROUP(T0, AT(a, from_a), g, a_.ne[0], loaded);
            for (uint j = 0; j < 32; j++) rows[line][j] = loaded[j];
        } else {
            group_of_b(AT(b, from_b), &b_, g, loaded);
            for (uint j = 0; j < 32; j++) columns[line][j] = loaded[j];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint l = 0; l < 32; l++) {
            for (uint i = 0; i < PART; i++) {
                for (uint j = 0; j < PART; j++) sum[i][j] += rows[y + i][l] * columns[x + j][l];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    for (uint i = 0; i < PART; i++) {
        for (uint j = 0; j < PART; j++) {
            const uint r = first_row + y + i, c = first_column + x + j;
            if (r < dst_.ne[0] && c < dst_.ne[1]) store_f32(AT(dst, ((uint4)(r, c, i2, i3))), sum[i][j]);
        }
    }
}
