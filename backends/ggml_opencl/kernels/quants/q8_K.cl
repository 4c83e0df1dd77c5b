// 256 bytes with one f32 scale, and sums, which are not needed here.
static inline void group_q8_K(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 292 * (g / 8);
    const global char *q = (const global char *)b + 4 + 32 * (g % 8);
    const float d = load_f32(b);
    for (uint j = 0; j < 32; j++) x[j] = d * q[j];
}
