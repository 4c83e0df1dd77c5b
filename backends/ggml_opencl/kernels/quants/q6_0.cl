// 32 six-bit values around 32 with one half scale: x = d (q - 32). The upper two bits of values j
// and j + 16 are a nibble; byte j % 8 has it.
static inline void group_q6_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 26 * g, *q = b + 10;
    const float d = load_f16(b);
    for (uint j = 0; j < 16; j++) {
        const uint high = b[2 + j % 8] >> (j / 8 * 4);
        x[j] = d * (int)((q[j] & 15 | (high & 3) << 4) - 32);
        x[j + 16] = d * (int)((q[j] >> 4 | (high & 12) << 2) - 32);
    }
}

static inline void quantize_q6_0(const float *x, global uchar *b) {
    #pragma OPENCL FP_CONTRACT OFF
    const float d = extreme(x) / -32, id = d == 0 ? 0 : 1 / d;
    uchar high[8];
    store_f16(b, d);
    for (uint j = 0; j < 16; j++) {
        const uint first = min(63, (int)(x[j] * id + 32.5f));
        const uint last = min(63, (int)(x[j + 16] * id + 32.5f));
        const uchar upper = first >> 4 | last >> 4 << 2;
        b[10 + j] = (first & 15) | (last & 15) << 4;
        high[j % 8] = j < 8 ? upper : high[j % 8] | upper << 4;
    }
    for (uint j = 0; j < 8; j++) b[2 + j] = high[j];
}
