// 256 four-bit values in 8 groups: x = d scale q - d_min min, with scales and minima of six bits.
static inline void group_q4_K(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 144 * (g / 8), *s = b + 4, *from = b + 16 + g % 8 / 2 * 32;
    const uint k = g % 8, shift = k % 2 * 4;
    const int scale = k < 4 ? s[k] & 63 : (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
    const int low = k < 4 ? s[k + 4] & 63 : (s[k + 4] >> 4) | (s[k] >> 6) << 4;
    const float d = load_f16(b) * scale, m = load_f16(b + 2) * low;
    uchar q[32];
    bytes16(from, q), bytes16(from + 16, q + 16);
    for (uint j = 0; j < 32; j++) x[j] = d * (q[j] >> shift & 15) - m;
}
