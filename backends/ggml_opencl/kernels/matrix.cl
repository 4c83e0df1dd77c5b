// Matrix products, triangular systems, diagonal matrices.

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

#if !defined(TRIANGULAR) && !defined(OUTER)
// a: weights of any type in dense rows, b: f32 or f16; 32 values are a group.
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
KERNEL mul_mat_id(TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(ids), CHECKED) {
    local float shared[WG];
    const uint r = get_group_id(0) * ROWS + get_local_id(0) / LANES;
    const uint slot = get_group_id(1), token = get_group_id(2);
    const int expert = load_i32(AT(ids, ((uint4)(slot, token, 0, 0))));
    const bool inside = r < a_.ne[1] && IN_RANGE(expert, a_.ne[2]);
    const global uchar *x = AT(b, ((uint4)(0, slot % b_.ne[1], token, 0)));
    row_product(inside ? AT(a, ((uint4)(0, r, expert, 0))) : 0, a_.ne[0], x, &b_, shared);
    if (inside && get_local_id(0) % LANES == 0) {
        store_f32(AT(dst, ((uint4)(r, slot, token, 0))), shared[get_local_id(0)]);
    }
}

#define TILE 32 // columns of a tile
#define HIGH 64 // and its rows; an item makes 4 x 8 results

typedef struct {
    float a[32][HIGH], b[32][TILE]; // 32 values of each row and of each column
} tile_t;

// Products of HIGH rows and TILE columns; `row` and `column` are those that this item loads.
static inline void tile_product(const global uchar *row, const global uchar *column, uint n,
                                const tensor_t *b, local tile_t *tile, float8 *sum) {
    const uint item = get_local_id(0), y = item / 4, x = item % 4;
    for (uint i = 0; i < 4; i++) sum[i] = 0;
    for (uint g = 0; 32 * g < n; g++) {
        float loaded[32];
        barrier(CLK_LOCAL_MEM_FENCE);
        GROUP(T0, row, g, n, loaded);
        for (uint j = 0; j < 32; j++) tile->a[j][item] = loaded[j];
        if (item < TILE) {
            group_of_b(column, b, g, loaded);
            for (uint j = 0; j < 32; j++) tile->b[j][item] = loaded[j];
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        float8 s0 = sum[0], s1 = sum[1], s2 = sum[2], s3 = sum[3];
        for (uint j = 0; j < 32; j++) {
            const float8 v = vload8(x, tile->b[j]);
            const float4 w = vload4(y, tile->a[j]);
            s0 += w.x * v, s1 += w.y * v, s2 += w.z * v, s3 += w.w * v;
        }
        sum[0] = s0, sum[1] = s1, sum[2] = s2, sum[3] = s3;
    }
}

// Many columns: group (rows, columns, batch).
KERNEL mul_mat_tile(TENSOR(a), TENSOR(b), TENSOR(dst)) {
    local tile_t tile;
    const uint item = get_local_id(0), first = get_group_id(0) * HIGH;
    const uint first_column = get_group_id(1) * TILE;
    const uint i2 = get_group_id(2) % b_.ne[2], i3 = get_group_id(2) / b_.ne[2];
    const uint4 row = (uint4)(0, min(first + item, (uint)a_.ne[1] - 1),
                              i2 / (b_.ne[2] / a_.ne[2]), i3 / (b_.ne[3] / a_.ne[3]));
    const uint4 column = (uint4)(0, min(first_column + item, (uint)b_.ne[1] - 1), i2, i3);
    float8 sum[4];
    tile_product(AT(a, row), AT(b, column), a_.ne[0], &b_, &tile, sum);
    for (uint i = 0; i < 4; i++) {
        const uint r = first + item / 4 * 4 + i, c = first_column + item % 4 * 8;
        float own[8];
        vstore8(sum[i], 0, own);
        for (uint j = 0; j < 8; j++) {
            if (r < dst_.ne[0] && c + j < dst_.ne[1]) {
                store_f32(AT(dst, ((uint4)(r, c + j, i2, i3))), own[j]);
            }
        }
    }
}

// Many tokens and experts: group (rows, expert) makes all results that this expert is chosen for.
KERNEL mul_mat_id_tile(TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(ids), CHECKED) {
    local tile_t tile;
    local uint chosen[TILE + WG], n_chosen; // slot + n_slots * token
    const uint item = get_local_id(0), first = get_group_id(0) * HIGH, expert = get_group_id(1);
    const uint n_slots = ids_.ne[0], n = n_slots * ids_.ne[1];
    const global uchar *row = AT(a, ((uint4)(0, min(first + item, (uint)a_.ne[1] - 1), expert, 0)));
    if (item == 0) n_chosen = 0;
    for (uint start = 0; start < n; start += WG) {
        const uint id = start + item;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (id < n) {
            const int e = load_i32(AT(ids, ((uint4)(id % n_slots, id / n_slots, 0, 0))));
            if (IN_RANGE(e, a_.ne[2]) && e == expert) chosen[atomic_inc(&n_chosen)] = id;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        uint left = n_chosen;
        while (left >= TILE || (left > 0 && start + WG >= n)) {
            const uint width = min(left, (uint)TILE), pick = chosen[min(item, width - 1)];
            const uint4 column = (uint4)(0, pick % n_slots % b_.ne[1], pick / n_slots, 0);
            float8 sum[4];
            tile_product(row, AT(b, column), a_.ne[0], &b_, &tile, sum);
            for (uint i = 0; i < 4; i++) {
                const uint r = first + item / 4 * 4 + i, c = item % 4 * 8;
                float own[8];
                vstore8(sum[i], 0, own);
                for (uint j = 0; j < 8; j++) {
                    if (r >= dst_.ne[0] || c + j >= width) continue;
                    const uint to = chosen[c + j];
                    store_f32(AT(dst, ((uint4)(r, to % n_slots, to / n_slots, 0))), own[j]);
                }
            }
            left -= width;
            const uint later = item < left ? chosen[width + item] : 0;
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < left) chosen[item] = later;
            if (item == 0) n_chosen = left;
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
}
#endif
