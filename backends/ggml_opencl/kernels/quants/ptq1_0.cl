// 128 values -1, 0 or 1 times one scale, five to a byte: a byte is a fraction of 256 in base 3, and
// multiplied by 3^n modulo 256 its leading digit is value n. 16 bytes have the first digits of 16
// values, then the second; so do the next 8 bytes; the last 2 have four digits.
constant uchar ptq1_0_powers[5] = {1, 3, 9, 27, 81};

static inline void group_ptq1_0(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 28 * (g / 4);
    const float d = load_f16(b + 26);
    for (uint j = 0; j < 32; j++) {
        const uint i = 32 * (g % 4) + j; // of the block
        const uint start = i < 80 ? 0 : i < 120 ? 80 : 120;
        const uint size = i < 80 ? 16 : i < 120 ? 8 : 2, at = i < 80 ? 0 : i < 120 ? 16 : 24;
        const uchar q = b[at + (i - start) % size] * ptq1_0_powers[(i - start) / size];
        x[j] = d * ((q * 3 >> 8) - 1);
    }
}

// A byte of n digits, of values that are `step` apart: rounded upwards.
static inline uchar ptq1_0_byte(const float *x, float id, uint step, uint n) {
    uint number = 0;
    for (uint j = 0; j < 5; j++) {
        number = 3 * number + (j < n ? (int)round(x[step * j] * id) + 1 : 0);
    }
    return (number * 256 + 242) / 243;
}

static inline void quantize_ptq1_0(const float *x, global uchar *b) {
    const float d = largest(x, 128), id = d == 0 ? 0 : 1 / d;
    store_f16(b + 26, d);
    for (uint k = 0; k < 16; k++) b[k] = ptq1_0_byte(x + k, id, 16, 5);
    for (uint k = 0; k < 8; k++) b[16 + k] = ptq1_0_byte(x + 80 + k, id, 8, 5);
    for (uint k = 0; k < 2; k++) b[24 + k] = ptq1_0_byte(x + 120 + k, id, 2, 4);
}
