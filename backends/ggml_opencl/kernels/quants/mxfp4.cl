// 32 four-bit floats (e2m1, doubled to integers) with a power of two as scale: x = 2^(e - 128) level.
constant char mxfp4_levels[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void group_mxfp4(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 17 * g;
    const float d = ldexp(1.0f, (int)b[0] - 128);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * mxfp4_levels[b[1 + j] & 15];
        x[j + 16] = d * mxfp4_levels[b[1 + j] >> 4];
    }
}
