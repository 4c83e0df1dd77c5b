// 16 groups of 16 six-bit indices, scales of eight bits: x = d scale level. Levels are a cubic of
// the index; some groups add 1.
static inline void group_iq6_k(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8, shift = k % 4 * 2;
    const global uchar *b = row + 212 * (g / 8), *q = b + 20 + 32 * (k / 2);
    const global uchar *high = b + 148 + 32 * (k / 4);
    const uint shifts = bits16(b + 2) >> (2 * k);
    for (uint j = 0; j < 32; j++) {
        const uint h = j / 16;
        const float i = (q[j] >> (k % 2 * 4) & 15) | (high[j] >> shift & 3) << 4;
        const float level = fma(i, fma(i, fma(i, 0.0011972f, -0.11218f), 6.2568f), -127.0f);
        const float d = load_f16(b) * (char)b[4 + 2 * k + h];
        x[j] = d * (shifts >> h & 1 ? level + 1.0f : level);
    }
}
