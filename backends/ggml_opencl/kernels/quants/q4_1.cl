// 32 four-bit values with half scale and minimum: x = d q + m.
static inline void group_q4_1(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 20 * g;
    const float d = load_f16(b), m = load_f16(b + 2);
    for (uint j = 0; j < 16; j++) {
        x[j] = d * (b[4 + j] & 15) + m;
        x[j + 16] = d * (b[4 + j] >> 4) + m;
    }
}
