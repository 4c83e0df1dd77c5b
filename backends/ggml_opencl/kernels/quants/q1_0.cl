// 128 signs with one scale.
static inline void group_q1_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 18 * (g / 4), *q = b + 2 + 4 * (g % 4);
    const float d = load_f16(b);
    for (uint j = 0; j < 32; j++) x[j] = q[j / 8] >> (j % 8) & 1 ? d : -d;
}

static inline void quantize_q1_0(const float *x, global uchar *b) {
    float sum = 0;
    for (uint j = 0; j < 128; j++) sum += fabs(x[j]);
    store_f16(b, sum / 128);
    for (uint k = 0; k < 16; k++) {
        uchar q = 0;
        for (uint j = 0; j < 8; j++) q |= (x[8 * k + j] >= 0) << j;
        b[2 + k] = q;
    }
}
