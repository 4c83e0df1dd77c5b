// 8 groups of 32 four-bit indices of uneven levels, x = d ((scale & 254) - 127) level; bit 0 of a
// scale shifts the levels.
PART(_ik_levels)

static inline void group_iq4_ks(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 140 * (g / 8), *q = b + 12 + 16 * k;
    const int scale = b[4 + k], shift = (scale & 1) * 4;
    const float d = load_f32(b) * ((scale & 254) - 127);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * (ik_levels_4[q[j] & 15] + shift);
        x[j + 16] = d * (ik_levels_4[q[j] >> 4] + shift);
    }
}
