// 64 values -1, 0 or 1 with the half scale of their row: three bytes of five digits for 15 of 16
// values; the last values are four digits of a byte.
static inline int ternary_digit(uint byte, uint i) {
    const uint power = i == 0 ? 81 : i == 1 ? 27 : i == 2 ? 9 : i == 3 ? 3 : 1;
    const uint fraction = byte * power & 255;
    return (int)((fraction + (fraction >> 1)) >> 7) - 1;
}

static inline void group_iq1_bn(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 15 * (g / 2);
    const float d = f16_of(b[0] | b[1] << 8);
    for (uint j = 0; j < 32; j++) {
        const uint k = g % 2 * 2 + j / 16, i = j % 16;
        const uint byte = i < 15 ? b[2 + 3 * k + i / 5] : b[14];
        x[j] = d * ternary_digit(byte, i < 15 ? i % 5 : k);
    }
}
