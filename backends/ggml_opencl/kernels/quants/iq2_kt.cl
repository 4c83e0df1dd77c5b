// 8 groups of four 16-bit indices of 8 values: x = d level[code] value.
PART(_ik_levels)

static inline void group_iq2_kt(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 72 * (g / 8), *q = b + 8 + 8 * k;
    const float d = load_f32(b) * ik_levels_4[code_by_four(b + 4, k)];
    for (uint i = 0; i < 4; i++) trellis_values(bits16(q + 2 * i), 8, d, x + 8 * i);
}
