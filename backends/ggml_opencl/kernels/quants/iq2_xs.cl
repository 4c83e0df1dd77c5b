// 16 groups of 16 with four-bit scales, x = d (scale + 1/2) / 4 point: 2 points of 8 values, each
// with an index of nine bits and 8 signs in seven.
GRID(iq2_xs)

static inline void group_iq2_xs(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 74 * (g / 8), *q = b + 2 + 8 * (g % 8);
    const uint scales = b[66 + g % 8];
    for (uint l = 0; l < 4; l++) {
        const float d = load_f16(b) * (0.5f + (scales >> (l / 2 * 4) & 15)) * 0.25f;
        const uint bits = bits16(q + 2 * l);
        const float8 point = d * convert_float8(as_char8(grid_iq2_xs[bits & 511]));
        vstore8(with_signs(point, even(bits >> 9)), l, x);
    }
}
