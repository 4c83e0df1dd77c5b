// 32 int8 with the scale of their row: x = d q.
static inline void group_q8_kv(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 36 * g;
    const float d = load_f32(b);
    for (uint j = 0; j < 32; j++) x[j] = d * (char)b[4 + j];
}
