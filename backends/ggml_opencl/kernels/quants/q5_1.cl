// 32 five-bit values with half scale and minimum: x = d q + m; the fifth bits are apart.
static inline void group_q5_1(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 24 * g;
    const float d = load_f16(b), m = load_f16(b + 2);
    for (uint j = 0; j < 32; j++) {
        const int high = b[4 + j / 8] >> (j % 8) & 1;
        x[j] = d * (b[8 + j % 16] >> (j / 16 * 4) & 15 | high << 4) + m;
    }
}
