// 256 four-bit values in 8 groups: x = d scale q - d_min min, with scales and minima of six bits.
PART(_k_scales)

static inline void group_q4_K(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 144 * (g / 8), *from = b + 16 + g % 8 / 2 * 32;
    const uint k = g % 8, shift = k % 2 * 4;
    const uint4 head = words16(b);
    const uint2 by = k_scales(head.yzw, k);
    const float d = f16_of(head.x & 0xffff) * by.x, m = f16_of(head.x >> 16) * by.y;
    uchar q[32];
    bytes16(from, q), bytes16(from + 16, q + 16);
    for (uint j = 0; j < 32; j++) x[j] = d * (q[j] >> shift & 15) - m;
}
