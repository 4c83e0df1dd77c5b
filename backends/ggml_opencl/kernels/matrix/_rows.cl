// Products of rows and one column: LANES items of a group make BESIDE rows together, each of them
// every LANES-th group of values, so that what it reads of the column serves all of them.

PART(matrix/_groups)

#define LANES 32
#define BESIDE 4
#define LANE (get_local_id(0) % LANES)
#define SET (get_local_id(0) / LANES)
#define SUMS local float sums[BESIDE * WG]
#define SUM(i) sums[(i) * WG + SET * LANES] // of the i-th of these rows
// The first of the rows that an item makes, where that is n.
#define FIRST(n) ((get_group_id(0) * (WG / LANES) + SET) * (n))

// Pointers to n rows of a matrix, from `first` on; the last one stands for those behind it.
static inline void rows_of(const global uchar **rows, uint n, const global uchar *a,
                           const tensor_t *a_, uint first, uint i2, uint i3) {
    for (uint i = 0; i < n; i++) {
        rows[i] = at((global uchar *)a, a_, (uint4)(0, min(first + i, (uint)a_->ne[1] - 1), i2, i3));
    }
}

static inline void row_products(const global uchar **rows, uint n, const global uchar *column,
                                const tensor_t *b, local float *sums) {
    const uint item = get_local_id(0), lane = LANE;
    float w[32], x[32], sum[BESIDE];
    for (uint i = 0; i < BESIDE; i++) sum[i] = 0;
    for (uint g = lane; 32 * g < n; g += LANES) {
        group_of_b(column, b, g, x);
        for (uint i = 0; i < BESIDE; i++) {
            GROUP(T0, rows[i], g, n, w);
            for (uint j = 0; j < 32; j++) sum[i] += w[j] * x[j];
        }
    }
    for (uint i = 0; i < BESIDE; i++) sums[i * WG + item] = sum[i];
    for (uint half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_) {
            for (uint i = 0; i < BESIDE; i++) sums[i * WG + item] += sums[i * WG + item + half_];
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Few columns: group (rows, column, batch). `put` is what becomes of a product v at i.
#define OF_COLUMNS(name, parameters, put) \
    KERNEL name parameters { \
        SUMS; \
        const uint first = FIRST(BESIDE); \
        const uint4 i = (uint4)(first + LANE, get_group_id(1), get_group_id(2) % b_.ne[2], \
                                get_group_id(2) / b_.ne[2]); \
        const uint4 column = (uint4)(0, i.y, i.z, i.w); \
        const global uchar *rows[BESIDE]; \
        rows_of(rows, BESIDE, a, &a_, first, i.z / (b_.ne[2] / a_.ne[2]), \
                i.w / (b_.ne[3] / a_.ne[3])); \
        row_products(rows, a_.ne[0], AT(b, column), &b_, sums); \
        if (LANE >= BESIDE || i.x >= a_.ne[1]) return; \
        const float v = SUM(LANE); \
        put; \
    }
