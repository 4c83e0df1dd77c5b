// 8 groups of 32 with three-bit scales and a delta of 1/8 or -1/8, x = d (2 scale + 1) (point +
// delta): 4 points of 8 values, each with an index of 11 bits, the upper three apart.
GRID(iq1)

static inline void group_iq1_s(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 50 * (g / 8), *low = b + 2 + 4 * (g % 8);
    const uint high = bits16(b + 34 + 2 * (g % 8));
    const float d = load_f16(b) * (2 * (high >> 12 & 7) + 1);
    const float delta = high >> 15 ? -0.125f : 0.125f;
    for (uint l = 0; l < 4; l++) {
        const uint index = low[l] | (high >> (3 * l) & 7) << 8;
        vstore8(d * (convert_float8(as_char8(grid_iq1[index])) + delta), l, x);
    }
}
