// 16 groups of two points of 8 values, four-bit codes: x = d code (point + delta). An index has 11
// bits, the upper three in a nibble below the sign of delta, 1/8.
GRID(iq1)

static inline void group_iq1_m_r4(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 58 * (g / 8), *low = b + 2 + 4 * k, *high = b + 34 + 2 * k;
    for (uint l = 0; l < 4; l++) {
        const float d = load_f16(b) * (b[50 + k] >> (l / 2 * 4) & 15);
        const uint upper = high[l / 2] >> (l % 2 * 4);
        const float delta = upper & 8 ? -0.125f : 0.125f;
        const uint index = low[l] | (upper & 7) << 8;
        vstore8(d * (convert_float8(as_char8(grid_iq1[index])) + delta), l, x);
    }
}
