// Products of many columns.

PART(matrix/_groups)

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
