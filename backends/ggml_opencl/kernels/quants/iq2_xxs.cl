// 8 groups of 32 with four-bit scales, x = d (scale + 1/2) / 4 point: 4 points of 8 values, each
// with 8 signs in seven bits.
GRID(iq2_xxs)

static inline void group_iq2_xxs(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 66 * (g / 8), *q = b + 2 + 8 * (g % 8);
    const uint signs = bits32(q + 4);
    const float d = load_f16(b) * (0.5f + (signs >> 28)) * 0.25f;
    for (uint l = 0; l < 4; l++) {
        const float8 point = d * convert_float8(as_char8(grid_iq2_xxs[q[l]]));
        vstore8(with_signs(point, even(signs >> (7 * l) & 127)), l, x);
    }
}
