// 8 groups of 32 five-bit indices of uneven levels, x = d ((scale & 254) - 127) level; bit 0 of a
// scale shifts the levels. The fifth bits are apart.
PART(_ik_levels)

static inline void group_iq5_ks(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 172 * (g / 8), *q = b + 12 + 32 * (k / 2), *fifth = b + 140;
    const int scale = b[4 + k], shift = (scale & 1) * 2;
    const float d = load_f32(b) * ((scale & 254) - 127);
    for (uint j = 0; j < 32; j++) {
        const uint index = (q[j] >> (k % 2 * 4) & 15) | (fifth[j] >> k & 1) << 4;
        x[j] = d * (ik_levels_5[index] + shift);
    }
}
