// 8 groups of 16 five-bit indices of pairs of values, six-bit codes: x = d (code - 32) value. The
// fifth bits are apart.
PART(_ik_levels)
constant char iq2_kl_pairs[64] = {
    -63, -23, -63, 13, -40, -63, -40, -10, -40, 13, -40, 47, -23, -40, -23, -23,
    -23, 1, -23, 13, -23, 28, -10, -63, -10, 1, -10, 13, -10, 47, 1, -23,
    1, -10, 1, 1, 1, 13, 1, 28, 13, -40, 13, -23, 13, -10, 13, 1,
    13, 13, 28, -63, 28, -23, 28, 1, 28, 28, 28, 47, 47, -23, 47, 13};

static inline void group_iq2_kl(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 88 * (g / 8), *q = b + 8 + 16 * (k / 2), *fifth = b + 72;
    const int code = code_by_four(b + 4, k) | (bits16(b + 2) >> (2 * k) & 3) << 4;
    const float d = load_f16(b) * (code - 32);
    for (uint j = 0; j < 16; j++) {
        const uint index = (q[j] >> (k % 2 * 4) & 15) | (fifth[j] >> k & 1) << 4;
        x[2 * j] = d * iq2_kl_pairs[2 * index];
        x[2 * j + 1] = d * iq2_kl_pairs[2 * index + 1];
    }
}
