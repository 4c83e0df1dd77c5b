// 64 four-bit floats (e2m1, doubled to integers) in 4 groups of 16 with scales of eight bits
// (unsigned e4m3, which is halved). Low nibbles of a group's 8 bytes come first.
static inline float nvfp4_scale(uint s) {
    const int power = s >> 3 & 15, mantissa = s & 7;
    if (s == 0x7f) return 0.0f;
    return power ? ldexp(8.0f + mantissa, power - 11) : ldexp((float)mantissa, -10);
}

static inline void group_nvfp4(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 36 * (g / 2);
    for (uint j = 0; j < 32; j++) {
        const uint k = g % 2 * 2 + j / 16;
        const uchar q = b[4 + 8 * k + j % 8];
        x[j] = nvfp4_scale(b[k]) * fp4_levels[j % 16 < 8 ? q & 15 : q >> 4];
    }
}

// x >= 0, halves upwards, at most 0x7e.
static inline uchar nvfp4_nearest_scale(float x) {
    if (!(x > 0)) return 0;
    const int power = ilogb(fmin(x, 448.0f));
    if (power < -6) return min(7, (int)(x * 512 + 0.5f));
    return min(0x7e, (power + 6) * 8 + (int)(ldexp(fmin(x, 448.0f), 3 - power) + 0.5f));
}

static inline void quantize_nvfp4(const float *x, global uchar *b) {
    for (uint k = 0; k < 4; k++) {
        b[k] = nvfp4_nearest_scale(largest(x + 16 * k, 16) / 6);
        const float d = nvfp4_scale(b[k]);
        for (uint j = 16 * k; j < 16 * k + 8; j++) {
            b[4 + 8 * k + j % 8] = fp4_nearest(x[j], d) | fp4_nearest(x[j + 8], d) << 4;
        }
    }
}
