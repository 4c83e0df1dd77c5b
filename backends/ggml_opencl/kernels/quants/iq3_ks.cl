// 8 groups of 32 three-bit indices of uneven levels, five-bit codes: x = d (code - 16) level. The
// third bits are apart.
PART(_ik_levels)

static inline void group_iq3_ks(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 104 * (g / 8), *q = b + 8 + 32 * (k / 4), *third = b + 72;
    const int code = code_by_four(b + 4, k) | (b[2] >> k & 1) << 4, shift = (b[3] >> k & 1) * 4;
    const float d = load_f16(b) * (code - 16);
    for (uint j = 0; j < 32; j++) {
        const uint index = (q[j] >> (k % 4 * 2) & 3) | (third[j] >> k & 1) << 2;
        x[j] = d * (ik_levels_3[index] + shift);
    }
}
