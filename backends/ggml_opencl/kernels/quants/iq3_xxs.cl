// 8 groups of 32 with four-bit scales, x = d (scale + 1/2) / 2 point: 8 points of 4 values, each
// two with 8 signs in seven bits.
GRID(iq3_xxs)

static inline void group_iq3_xxs(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 98 * (g / 8), *q = b + 2 + 8 * (g % 8);
    const uint signs = bits32(b + 66 + 4 * (g % 8));
    const float d = load_f16(b) * (0.5f + (signs >> 28)) * 0.5f;
    for (uint l = 0; l < 4; l++) {
        const uint2 both = (uint2)(grid_iq3_xxs[q[2 * l]], grid_iq3_xxs[q[2 * l + 1]]);
        const float8 points = d * convert_float8(as_char8(both));
        vstore8(with_signs(points, even(signs >> (7 * l) & 127)), l, x);
    }
}
