// 8 groups of 32 with four-bit scales, x = d (2 scale + 1) point: 8 points of 4 values, each with
// an index of nine bits, the uppermost apart, and 4 signs.
GRID(iq3_s)

static inline void group_iq3_s(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 110 * (g / 8), *low = b + 2 + 8 * k, *signs = b + 74 + 4 * k;
    const uint high = b[66 + k] << 8;
    const float d = load_f16(b) * (1 + 2 * (b[106 + k / 2] >> (k % 2 * 4) & 15));
    for (uint l = 0; l < 4; l++) {
        const uint first = low[2 * l] | (high >> (2 * l) & 256);
        const uint second = low[2 * l + 1] | (high >> (2 * l + 1) & 256);
        const uint2 both = (uint2)(grid_iq3_s[first], grid_iq3_s[second]);
        vstore8(with_signs(d * convert_float8(as_char8(both)), signs[l]), l, x);
    }
}
