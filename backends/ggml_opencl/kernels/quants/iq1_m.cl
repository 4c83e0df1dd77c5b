// 16 groups of 16 with three-bit scales, x = d (2 scale + 1) (point + delta): 2 points of 8 values,
// each with an index of 11 bits, the upper three in a nibble below the sign of delta, 1/8. Four
// scales share 16 bits; the upper four of these are four bits of d.
GRID(iq1)

static inline void group_iq1_m(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 56 * (g / 8), *low = b + 4 * k, *high = b + 32 + 2 * k;
    uint bits = 0;
    for (uint i = 0; i < 4; i++) bits |= b[49 + 2 * i] >> 4 << (4 * i);
    const uint scales = bits16(b + 48 + k / 2 * 2) >> (k % 2 * 6);
    for (uint l = 0; l < 4; l++) {
        const float d = f16_of(bits) * (2 * (scales >> (l / 2 * 3) & 7) + 1);
        const uint upper = high[l / 2] >> (l % 2 * 4);
        const float delta = upper & 8 ? -0.125f : 0.125f;
        const uint index = low[l] | (upper & 7) << 8;
        vstore8(d * (convert_float8(as_char8(grid_iq1[index])) + delta), l, x);
    }
}
