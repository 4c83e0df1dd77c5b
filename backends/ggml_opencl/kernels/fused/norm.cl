// RMS_NORM and what follows, one group a row. The source may be the result; w and b are repeated.

#define EACH(j, n) for (uint j = get_local_id(0); j < (n); j += WG)

// What a row is multiplied with.
static inline float norm_of(const global uchar *x, uint n, float eps, local float *shared) {
    float sum = 0;
    EACH(j, n) sum += load_f32(x + 4 * j) * load_f32(x + 4 * j);
    return 1.0f / sqrt(group_sum(sum, shared) / n + eps);
}

// OpenCL C 1.2 has no macros of any number of arguments: parameters come in parentheses.
#define ROWS(name, expression, parameters) \
    KERNEL name parameters { \
        local float shared[WG]; \
        const uint4 row = row_of(&a_, get_group_id(0)); \
        const global uchar *x = AT(a, row); \
        global uchar *y = AT(dst, row); \
        const float scale = norm_of(x, a_.ne[0], eps, shared); \
        EACH(j, a_.ne[0]) { \
            const float v = scale * load_f32(x + 4 * j); \
            store_f32(y + 4 * j, expression); \
        } \
    }

// A row's first value is found once for all: `row` does not change.
#define REPEATED(x) load_f32(AT(x, repeated(&x##_, row)) + x##_.nb[0] * (j % x##_.ne[0]))

ROWS(rms_norm_mul, v * REPEATED(w), (TENSOR(a), TENSOR(w), TENSOR(dst), const float eps))
ROWS(rms_norm_mul_add, v * REPEATED(w) + REPEATED(b),
     (TENSOR(a), TENSOR(w), TENSOR(b), TENSOR(dst), const float eps))
ROWS(rms_norm_scale, v * factor, (TENSOR(a), TENSOR(dst), const float eps, const float factor))
