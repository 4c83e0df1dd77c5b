// 32 four-bit indices of 16 uneven levels with one half scale: x = d level[q].
constant char iq4_nl_levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1, 13, 25, 38, 53, 69, 89, 113};

static inline void group_iq4_nl(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 18 * g;
    const float d = load_f16(b);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * iq4_nl_levels[b[2 + j] & 15];
        x[j + 16] = d * iq4_nl_levels[b[2 + j] >> 4];
    }
}
