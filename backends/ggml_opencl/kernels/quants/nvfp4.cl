// 64 four-bit floats (e2m1, doubled to integers) in 4 groups of 16 with scales of eight bits
// (unsigned e4m3, which is halved). Low nibbles of a group's 8 bytes come first.
constant char nvfp4_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

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
        x[j] = nvfp4_scale(b[k]) * nvfp4_levels[j % 16 < 8 ? q & 15 : q >> 4];
    }
}
