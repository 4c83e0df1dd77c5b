// 32 four-bit floats (e2m1, doubled to integers) with a power of two as scale: x = 2^(e - 128) level.
static inline float mxfp4_scale(uint e) { return ldexp(1.0f, (int)e - 128); }

static inline void group_mxfp4(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 17 * g;
    const float d = mxfp4_scale(b[0]);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * fp4_levels[b[1 + j] & 15];
        x[j + 16] = d * fp4_levels[b[1 + j] >> 4];
    }
}

static inline void quantize_mxfp4(const float *x, global uchar *b) {
    const float top = largest(x, 32);
    b[0] = top > 0 ? ilogb(top) - 2 + 127 : 0;
    const float d = mxfp4_scale(b[0]);
    for (uint j = 0; j < 16; j++) {
        b[1 + j] = fp4_nearest(x[j], d) | fp4_nearest(x[j + 16], d) << 4;
    }
}
