// 32 five-bit values around 16 with one half scale: x = d (q - 16); the fifth bits are apart.
static inline void group_q5_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 22 * g;
    const float d = load_f16(b);
    for (uint j = 0; j < 32; j++) {
        const int high = b[2 + j / 8] >> (j % 8) & 1;
        x[j] = d * ((b[6 + j % 16] >> (j / 16 * 4) & 15 | high << 4) - 16);
    }
}
