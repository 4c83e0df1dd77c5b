// 8 groups of four 13-bit indices of 8 values: x = d level[code] value.
PART(_ik_levels)

static inline void group_iq1_kt(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8, both = row[60 * (g / 8) + 4 + k];
    const global uchar *b = row + 60 * (g / 8), *low = b + 12 + 4 * k, *high = b + 44 + k % 4 * 4;
    const float d = load_f32(b) * ik_levels_4[both & 15];
    for (uint i = 0; i < 4; i++) {
        const uint upper = (high[i] >> (k / 4 * 4) & 15) << 8 | (both >> (4 + i) & 1) << 12;
        trellis_values(low[i] | upper, 8, d, x + 8 * i);
    }
}
