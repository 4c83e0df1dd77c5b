// 32 four-bit indices of 16 uneven levels with one half scale: x = d level[q].
constant char iq4_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1, 13, 25, 38, 53, 69, 89, 113};

static inline void group_iq4_nl(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 18 * g;
    const float d = load_f16(b);
    uchar q[16];
    even16(b + 2, q);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * iq4_nl_levels[q[j] & 15];
        x[j + 16] = d * iq4_nl_levels[q[j] >> 4];
    }
}

static inline float element_iq4_nl(const global uchar *row, uint i) {
    const global uchar *b = row + 18 * (i / 32);
    const uint j = i % 32;
    return load_f16(b) * iq4_nl_levels[b[2 + j % 16] >> (j / 16 * 4) & 15];
}

// The index of the level next to x; the upper one when two are equally far.
static inline uint iq4_nl_nearest(float x) {
    uint i = 1;
    while (i < 15 && iq4_nl_levels[i] <= x) i++;
    return x - iq4_nl_levels[i - 1] < iq4_nl_levels[i] - x ? i - 1 : i;
}

// The scale is fitted to the indices that a first one gives: least squares with weights x^2.
static inline void quantize_iq4_nl(const float *x, global uchar *b) {
    #pragma OPENCL FP_CONTRACT OFF
    const float top = extreme(x), first = iq4_nl_levels[0] / top;
    const bool zero = fabs(top) < 1e-15f;
    float xq = 0, qq = 0;
    uchar index[32];
    for (uint j = 0; j < 32; j++) {
        index[j] = zero ? 0 : iq4_nl_nearest(first * x[j]);
        const float level = iq4_nl_levels[index[j]], w = x[j] * x[j];
        xq += w * level * x[j];
        qq += w * level * level;
    }
    store_f16(b, zero || qq <= 0 ? 0 : xq / qq);
    for (uint j = 0; j < 16; j++) b[2 + j] = index[j] | index[j + 16] << 4;
}
