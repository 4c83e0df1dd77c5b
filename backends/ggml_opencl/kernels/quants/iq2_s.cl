// 16 groups of 16 with four-bit scales, x = d (scale + 1/2) / 4 point: 2 points of 8 values, each
// with an index of ten bits, the upper two apart, and 8 signs.
GRID(iq2_s)

static inline void group_iq2_s(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 82 * (g / 8), *low = b + 2 + 4 * (g % 8), *signs = low + 32;
    const uint high = b[66 + g % 8], scales = b[74 + g % 8];
    for (uint l = 0; l < 4; l++) {
        const float d = load_f16(b) * (0.5f + (scales >> (l / 2 * 4) & 15)) * 0.25f;
        const uint index = low[l] | (high >> (2 * l) & 3) << 8;
        const float8 point = d * convert_float8(as_char8(grid_iq2_s[index]));
        vstore8(with_signs(point, signs[l]), l, x);
    }
}
