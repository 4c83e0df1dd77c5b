// 16 groups of 16 three-bit indices of uneven levels, four-bit codes and a sign:
// x = d (2 code + 1) level. The third bits are apart.
PART(_ik_levels)

static inline void group_iq3_k(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8, shift = k % 4 * 2;
    const global uchar *b = row + 110 * (g / 8), *q = b + 14 + 32 * (k / 4), *high = b + 78;
    const uint shifts = bits16(b + 2) >> (2 * k), signs = bits16(b + 4) >> (2 * k);
    for (uint j = 0; j < 32; j++) {
        const uint h = j / 16;
        const int code = 2 * (b[6 + k] >> (h * 4) & 15) + 1;
        const float d = load_f16(b) * (signs >> h & 1 ? -code : code);
        const uint index = (q[j] >> shift & 3) | (high[j] >> k & 1) << 2;
        x[j] = d * (ik_levels_3[index] + (int)(shifts >> h & 1) * 4);
    }
}
