// 8 groups of four 16-bit indices of 8 values: x = d code |value|, with signs.
PART(_ik_levels)

static inline void group_iq3_kt(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 104 * (g / 8), *q = b + 8 + 8 * k, *signs = b + 72;
    const float d = load_f32(b) * code_by_four(b + 4, k);
    for (uint i = 0; i < 4; i++) trellis_values(bits16(q + 2 * i), 8, 1, x + 8 * i);
    for (uint j = 0; j < 32; j++) x[j] = (signs[j] >> k & 1 ? -d : d) * fabs(x[j]);
}
