// 256 values -1, 0 or 1 times one scale, five to a byte: a byte is a fraction of 256 in base 3, and
// multiplied by 3^n modulo 256 its leading digit is value n. 32 bytes have the first digits of 32
// values, then the second; so do the next 16 bytes; the last 4 have four digits.
constant uchar tq1_0_powers[5] = {1, 3, 9, 27, 81};

static inline void group_tq1_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 54 * (g / 8);
    const float d = load_f16(b + 52);
    for (uint j = 0; j < 32; j++) {
        const uint i = 32 * (g % 8) + j; // of the block
        const uint start = i < 160 ? 0 : i < 240 ? 160 : 240;
        const uint size = i < 160 ? 32 : i < 240 ? 16 : 4, at = i < 160 ? 0 : i < 240 ? 32 : 48;
        const uchar q = b[at + (i - start) % size] * tq1_0_powers[(i - start) / size];
        x[j] = d * ((q * 3 >> 8) - 1);
    }
}
