// 8 groups of 32 indices of 16 uneven levels, six-bit scales: x = d (scale - 32) level[q].
constant char iq4_xs_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1, 13, 25, 38, 53, 69, 89, 113};

static inline void group_iq4_xs(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 136 * (g / 8), *from = b + 8 + 16 * (g % 8);
    const uint k = g % 8, highs = b[2] | b[3] << 8;
    const int scale = (b[4 + k / 2] >> (k % 2 * 4) & 15) | (highs >> (2 * k) & 3) << 4;
    const float d = load_f16(b) * (scale - 32);
    uchar q[16];
    even16(from, q);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * iq4_xs_levels[q[j] & 15];
        x[j + 16] = d * iq4_xs_levels[q[j] >> 4];
    }
}
