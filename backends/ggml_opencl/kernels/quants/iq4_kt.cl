// 8 groups of eight 16-bit indices of 4 values: x = d (code - 64) value. A word of a group has bit
// 15 of its indices, the code of 7 bits, and bits 12 to 14 of each index.
PART(_ik_levels)

static inline void group_iq4_kt(const global uchar *row, uint g, uint n, float *x) {
    const uint k = g % 8;
    const global uchar *b = row + 132 * (g / 8), *low = b + 36 + 8 * k;
    const global uchar *high = b + 100 + k % 4 * 8;
    const uint word = bits32(b + 4 + 4 * k);
    const float d = load_f32(b) * ((int)(word >> 1 & 127) - 64);
    for (uint i = 0; i < 8; i++) {
        const uint upper = (word >> (8 + 3 * i) & 7) << 12 | (word & 1) << 15;
        const uint index = low[i] | (high[i] >> (k / 4 * 4) & 15) << 8 | upper;
        trellis_values(index, 4, d, x + 4 * i);
    }
}
