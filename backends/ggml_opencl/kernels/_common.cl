// What every kernel uses. A tensor is a buffer `x` and its shape `x_`; TENSOR(x) declares both.
// T0, T1, ... are the element types of a kernel's tensors, in order. All groups have WG items.

#define WG 64
#define KERNEL kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void

typedef struct {
    int ne[4];
    long nb[4];
    long offset;
} tensor_t;

#define TENSOR(x) global uchar *x, const tensor_t x##_
#define AT(x, i) at(x, &x##_, i)
// Of kernels that index with data: the last arguments, and whether an index is in range(n). The
// first that is not is noted, for the host to raise; what it names is to be skipped.
#define CHECKED global int *faults, const int step
#define IN_RANGE(index, n) in_range(index, n, faults, step)
static inline bool in_range(long index, int n, volatile global int *faults, int step) {
    if (index >= 0 && index < n) return true;
    if (atomic_cmpxchg(faults, 0, step) == 0) {
        faults[1] = (int)index, faults[2] = (int)(index >> 32), faults[3] = n;
    }
    return false;
}
// The states [size] of a sequence, `slot` tokens before the last, in x [size, n_seqs, n_slots].
#define STATES(x, slot, seq) \
    ((global float *)(x + x##_.offset + (slot) * x##_.nb[2] + (seq) * x##_.nb[1]))
#define CAT2(a, b) a##b
#define CAT(a, b) CAT2(a, b)
#define LOAD(T, p) CAT(load_, T)(p)
#define STORE(T, p, v) CAT(store_, T)(p, v)
#define ELEMENT(T, row, i) CAT(element_, T)(row, i)
#define GROUP(T, row, g, n, x) CAT(group_, T)(row, g, n, x)
#define QUANTIZE(T, x, block) CAT(quantize_, T)(x, block)

#define PLAIN(T, C) \
    static inline C load_##T(const global uchar *p) { return *(const global C *)p; } \
    static inline void store_##T(global uchar *p, C v) { *(global C *)p = v; }

PLAIN(f32, float)
PLAIN(i8, char)
PLAIN(i16, short)
PLAIN(i32, int)
PLAIN(i64, long)

#if defined(GPU)
static inline float f16_of(uint h) { // from its bits
    const ushort bits = h;
    return vload_half(0, (const half *)&bits);
}
#else
static inline float f16_of(uint h) { // from its bits
    const uint size = h & 0x7fff;
    const uint power = size < 0x7c00 ? 112 : 224; // to be added to the exponent; infinity and NaN
    const float normal = as_float((size << 13) + (power << 23));
    const float tiny = as_float(size | 0x3f000000) - 0.5f; // 0.5 + size / 2^24, less 0.5
    return as_float(as_uint(size < 0x400 ? tiny : normal) | (h & 0x8000) << 16);
}
#endif
#if defined(cl_khr_fp16) || defined(GPU)
static inline float load_f16(const global uchar *p) { return vload_half(0, (const global half *)p); }
#else // There vload_half is slow.
static inline float load_f16(const global uchar *p) { return f16_of(*(const global ushort *)p); }
#endif
static inline void store_f16(global uchar *p, float v) { vstore_half_rte(v, 0, (global half *)p); }
static inline float bf16_of(uint bits) { return as_float(bits << 16); }
static inline float load_bf16(const global uchar *p) {
    return bf16_of(*(const global ushort *)p);
}
static inline void store_bf16(global uchar *p, float v) {
    const uint bits = as_uint(v);
    const uint up = isnan(v) ? bits | (64u << 16) : bits + 0x7fff + ((bits >> 16) & 1);
    *(global ushort *)p = (ushort)(up >> 16);
}

// 16 bytes from an address that 16 divides, and from an even one. A GPU takes as long for one byte
// as for all of them; a CPU's compiler makes vectors of many items' single bytes.
#if defined(GPU)
static inline bool in_words(const global uchar *p) { return ((size_t)p & 15) == 0; }
static inline void bytes16(const global uchar *p, uchar *q) {
    vstore16(as_uchar16(*(const global uint4 *)p), 0, q);
}
static inline uint4 words16(const global uchar *p) { return *(const global uint4 *)p; }
static inline void even16(const global uchar *p, uchar *q) { // in words of four bytes
    const uint odd = (uint)(size_t)p & 2;
    const global uint *w = (const global uint *)(p - odd);
    uint4 x = (uint4)(w[0], w[1], w[2], w[3]);
    if (odd) x = x >> 16 | (uint4)(x.y, x.z, x.w, w[4]) << 16;
    vstore16(as_uchar16(x), 0, q);
}
#else
static inline bool in_words(const global uchar *p) { return false; }
static inline void bytes16(const global uchar *p, uchar *q) {
    for (uint j = 0; j < 16; j++) q[j] = p[j];
}
static inline uint4 words16(const global uchar *p) { return as_uint4(vload16(0, p)); }
#define even16 bytes16
#endif

// The values in 16 bytes.
static inline void four_words_f32(uint4 w, float *x) { vstore4(as_float4(w), 0, x); }
#define TWO_A_WORD(T) \
    static inline void four_words_##T(uint4 w, float *x) { \
        x[0] = T##_of(w.x & 0xffff), x[1] = T##_of(w.x >> 16); \
        x[2] = T##_of(w.y & 0xffff), x[3] = T##_of(w.y >> 16); \
        x[4] = T##_of(w.z & 0xffff), x[5] = T##_of(w.z >> 16); \
        x[6] = T##_of(w.w & 0xffff), x[7] = T##_of(w.w >> 16); \
    }
TWO_A_WORD(f16)
TWO_A_WORD(bf16)

// Groups of 32 values of a dense row of n: what products and rows of quantized types are made of.
#define SIZE(T) CAT(size_, T)
#define DENSE(T, size) \
    enum { size_##T = size }; \
    static inline float element_##T(const global uchar *row, uint i) { \
        return load_##T(row + (size) * i); \
    } \
    static inline void group_##T(const global uchar *row, uint g, uint n, float *x) { \
        row += (size) * 32 * g; \
        if (32 * g + 32 <= n && in_words(row)) { \
            for (uint j = 0; j < 2 * (size); j++) { \
                four_words_##T(((const global uint4 *)row)[j], x + 16 / (size) * j); \
            } \
            return; \
        } \
        if (32 * g + 32 <= n) { \
            for (uint j = 0; j < 32; j++) x[j] = load_##T(row + (size) * j); \
            return; \
        } \
        for (uint j = 0; j < 32; j++) { \
            x[j] = 32 * g + j < n ? load_##T(row + (size) * j) : 0.0f; \
        } \
    }

DENSE(f32, 4)
DENSE(f16, 2)
DENSE(bf16, 2)

// Of 32 values: the first of largest magnitude.
static inline float extreme(const float *x) {
    float top = x[0];
    for (uint j = 1; j < 32; j++) top = fabs(x[j]) > fabs(top) ? x[j] : top;
    return top;
}

// The largest magnitude of n values.
static inline float largest(const float *x, uint n) {
    float top = 0;
    for (uint j = 0; j < n; j++) top = fmax(top, fabs(x[j]));
    return top;
}

// Of 32 values: the distance from the smallest to the largest one.
static inline float range(const float *x, float *low) {
    float high = *low = x[0];
    for (uint j = 1; j < 32; j++) high = fmax(high, x[j]), *low = fmin(*low, x[j]);
    return high - *low;
}

// Four-bit floats (e2m1), doubled to integers.
constant char fp4_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// The index of the level that times d is next to x; the first one when two are equally far.
static inline uchar fp4_nearest(float x, float d) {
    #pragma OPENCL FP_CONTRACT OFF
    uchar best = 0;
    for (uchar i = 1; i < 16; i++) {
        if (fabs(fp4_levels[i] * d - x) < fabs(fp4_levels[best] * d - x)) best = i;
    }
    return best;
}

// Little-endian integers at any address.
static inline uint bits16(const global uchar *p) { return p[0] | p[1] << 8; }
static inline uint bits32(const global uchar *p) { return bits16(p) | bits16(p + 2) << 16; }

// Eight signs of seven: the last one makes the number of ones even.
static inline uint even(uint signs) { return signs | (popcount(signs) & 1) << 7; }

// Value i is negative where bit i is 1.
static inline float8 with_signs(float8 x, uint signs) {
    return select(x, -x, ((int8)(signs) & (int8)(1, 2, 4, 8, 16, 32, 64, 128)) != 0);
}

static inline uint count(const tensor_t *t) {
    return (uint)t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
}

// The place of flat element i, fastest dimension first.
static inline uint4 unflatten(const tensor_t *t, uint i) {
    uint4 at;
    at.x = i % t->ne[0], i /= t->ne[0];
    at.y = i % t->ne[1], i /= t->ne[1];
    at.z = i % t->ne[2];
    at.w = i / t->ne[2];
    return at;
}

// A smaller tensor repeated as a whole.
static inline uint4 repeated(const tensor_t *t, uint4 i) {
    return (uint4)(i.x % t->ne[0], i.y % t->ne[1], i.z % t->ne[2], i.w % t->ne[3]);
}

static inline global uchar *at(global uchar *base, const tensor_t *t, uint4 i) {
    return base + t->offset + i.x * t->nb[0] + i.y * t->nb[1] + i.z * t->nb[2] + i.w * t->nb[3];
}

// Row number r of a tensor: its element 0.
static inline uint4 row_of(const tensor_t *t, uint r) {
    return (uint4)(0, r % t->ne[1], r / t->ne[1] % t->ne[2], r / t->ne[1] / t->ne[2]);
}

// Sums of some 48 bits on devices without double: .x is the rounded sum, .y the rest (TwoSum of Knuth,
// FastTwoSum of Dekker). Infinities have no rest.
static inline float2 plus_sum(float2 a, float2 b) {
    const float sum = a.x + b.x, added = sum - a.x;
    const float rest = ((a.x - (sum - added)) + (b.x - added)) + (a.y + b.y), x = sum + rest;
    return isfinite(sum) ? (float2)(x, rest - (x - sum)) : (float2)(sum, 0.0f);
}

static inline float2 plus(float2 sum, float v) { return plus_sum(sum, (float2)(v, 0.0f)); }

// The sum of v over the group's items, for each of them. `shared` has WG places.
static inline float group_sum(float2 v, local float2 *shared) {
    const uint item = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[item] = v;
    for (uint half_ = WG / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_) shared[item] = plus_sum(shared[item], shared[item + half_]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return shared[0].x;
}

static inline float group_max(float v, local float2 *shared) {
    const uint item = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[item].x = v;
    for (uint half_ = WG / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (item < half_) shared[item].x = fmax(shared[item].x, shared[item + half_].x);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return shared[0].x;
}

// Elements j of n that an item of a group takes.
#define EACH(j, n) for (uint j = get_local_id(0); j < (n); j += WG)

// The ALiBi slope of a head (arXiv 2108.12409); `power` is the largest power of two among the numbers of heads.
static inline float slope_of(uint head, float max_bias, int power) {
    if (max_bias <= 0) return 1.0f;
    const uint halves = head < power ? 2 * (head + 1) : 2 * (head - power) + 1;
    return exp2(-max_bias / 2 / power * halves);
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + exp(-x)); }
static inline float gelu_(float x) {
    return 0.5f * x * (1.0f + tanh(0.79788456080286535588f * x * (1.0f + 0.044715f * x * x)));
}
static inline float gelu_erf_(float x) { return 0.5f * x * (1.0f + erf(0.70710678118654752440f * x)); }

#define RELU 6
#define SIGMOID 7
#define GELU 8 // others are SILU

static inline float gate(float x, int kind) {
    if (kind == RELU) return fmax(x, 0.0f);
    if (kind == GELU) return gelu_(x);
    return (kind == SIGMOID ? 1.0f : x) * sigmoid(x);
}
