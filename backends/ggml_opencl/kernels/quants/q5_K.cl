// 8 groups of 32 with six-bit scales and minima in 12 bytes; fifth bits apart: bit k of high[j]
// belongs to value j of group k.
PART(_k_scales)

static inline void group_q5_K(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 176 * (g / 8), *fifth = b + 16;
    const global uchar *from = b + 48 + g % 8 / 2 * 32;
    const uint k = g % 8, shift = k % 2 * 4;
    const uint4 head = words16(b);
    const uint2 by = k_scales(head.yzw, k);
    const float d = f16_of(head.x & 0xffff) * by.x, m = f16_of(head.x >> 16) * by.y;
    uchar q[32], high[32];
    bytes16(from, q), bytes16(from + 16, q + 16);
    bytes16(fifth, high), bytes16(fifth + 16, high + 16);
    for (uint j = 0; j < 32; j++) {
        x[j] = d * ((q[j] >> shift & 15) | (high[j] >> k & 1) << 4) - m;
    }
}
