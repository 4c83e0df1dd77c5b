// 64 values -1, 0, 1 or 2 with the scale of their row: bits 2 p of byte i are value 16 p + i.
static inline void group_iq2_bn(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 20 * (g / 2);
    const float d = load_f32(b);
    for (uint j = 0; j < 32; j++) {
        x[j] = d * ((b[4 + j % 16] >> (g % 2 * 4 + j / 16 * 2) & 3) - 1);
    }
}
