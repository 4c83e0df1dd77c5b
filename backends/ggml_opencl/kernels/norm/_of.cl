// What a norm takes from each value of a row x of n, `step` bytes apart, and multiplies it with
// then. Four values of an item are on their way at a time.

#define FOUR(x, step, j) \
    (float4)(load_f32(x + step * (j)), load_f32(x + step * ((j) + WG)), \
             load_f32(x + step * ((j) + 2 * WG)), load_f32(x + step * ((j) + 3 * WG)))

// The sum of (value - mean) to the given power, 1 or 2.
static inline float power_sum(const global uchar *x, long step, uint n, float mean, int power,
                              local float2 *shared) {
    float2 sums[4] = {0, 0, 0, 0};
    uint j = get_local_id(0);
    for (; j + 3 * WG < n; j += 4 * WG) {
        const float4 d = FOUR(x, step, j) - mean, v = power == 1 ? d : d * d;
        sums[0] = plus(sums[0], v.x), sums[1] = plus(sums[1], v.y);
        sums[2] = plus(sums[2], v.z), sums[3] = plus(sums[3], v.w);
    }
    float2 sum = plus_sum(plus_sum(sums[0], sums[1]), plus_sum(sums[2], sums[3]));
    for (; j < n; j += WG) {
        const float v = load_f32(x + step * j) - mean;
        sum = plus(sum, power == 1 ? v : v * v);
    }
    return group_sum(sum, shared);
}

static inline float2 of_rms_norm(const global uchar *x, long step, uint n, float eps,
                                 local float2 *shared) {
    return (float2)(0, 1.0f / sqrt(power_sum(x, step, n, 0, 2, shared) / n + eps));
}

static inline float2 of_l2_norm(const global uchar *x, long step, uint n, float eps,
                                local float2 *shared) {
    return (float2)(0, 1.0f / fmax(sqrt(power_sum(x, step, n, 0, 2, shared)), eps));
}

static inline float2 of_norm(const global uchar *x, long step, uint n, float eps,
                             local float2 *shared) {
    const float mean = power_sum(x, step, n, 0, 1, shared) / n;
    return (float2)(mean, 1.0f / sqrt(power_sum(x, step, n, mean, 2, shared) / n + eps));
}

// Rows, one group each: `made` makes a result y of a value v at i, `put` writes it. The source may be
// the result.
#define OF_ROWS(name, norm, parameters, made, put) \
    KERNEL name parameters { \
        local float2 shared[WG]; \
        uint4 i = row_of(&a_, get_group_id(0)); \
        const global uchar *x = AT(a, i); \
        const long step = a_.nb[0]; \
        const uint n = a_.ne[0]; \
        const float2 by = of_##norm(x, step, n, eps, shared); \
        for (uint from = get_local_id(0); from < n; from += 4 * WG) { \
            float results[4]; \
            for (uint k = 0; k < 4; k++) { \
                i.x = min(from + k * WG, n - 1); \
                const float v = (load_f32(x + step * i.x) - by.x) * by.y; \
                made; \
                results[k] = y; \
            } \
            for (uint k = 0; k < 4; k++) { \
                i.x = from + k * WG; \
                const float y = results[k]; \
                if (i.x < n) { put; } \
            } \
        } \
    }
