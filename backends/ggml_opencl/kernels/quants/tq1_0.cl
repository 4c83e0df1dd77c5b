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

// A byte of n digits, of values that are `step` apart: rounded upwards.
static inline uchar tq1_0_byte(const float *x, float id, uint step, uint n) {
    uint number = 0;
    for (uint j = 0; j < 5; j++) {
        number = 3 * number + (j < n ? (int)round(x[step * j] * id) + 1 : 0);
    }
    return (number * 256 + 242) / 243;
}

static inline void quantize_tq1_0(const float *x, global uchar *b) {
    const float d = largest(x, 256), id = d == 0 ? 0 : 1 / d;
    store_f16(b + 52, d);
    for (uint k = 0; k < 32; k++) b[k] = tq1_0_byte(x + k, id, 32, 5);
    for (uint k = 0; k < 16; k++) b[32 + k] = tq1_0_byte(x + 160 + k, id, 16, 5);
    for (uint k = 0; k < 4; k++) b[48 + k] = tq1_0_byte(x + 240 + k, id, 4, 4);
}
