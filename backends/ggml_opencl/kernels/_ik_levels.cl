// Uneven levels of ik_llama.cpp's types, which some groups use with a shift.
constant char ik_levels_2[4] = {-31, -13, 1, 17};
constant char ik_levels_3[8] = {-63, -40, -23, -10, 1, 13, 28, 47};
constant char ik_levels_4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                 1, 13, 25, 38, 53, 69, 89, 113};
constant char ik_levels_5[32] = {-126, -114, -103, -92, -83, -74, -65, -57, -50, -43, -36,
                                 -30, -24, -18, -12, -6, -1, 5, 11, 17, 23, 29,
                                 36, 43, 51, 59, 68, 77, 87, 97, 109, 121};

// Values are numbers of a multiplicative generator; the first state is an index plus 4096.
static inline int trellis_next(uint *state) {
    *state *= 0xCBAC1FEDu;
    const uint s = *state & 0x3f3f3f3f;
    return (int)((s & 255) + (s >> 8 & 255) + (s >> 16 & 255) + (s >> 24)) - 126;
}

static inline void trellis_values(uint index, uint n, float d, float *x) {
    uint state = index + 4096;
    for (uint j = 0; j < n; j++) x[j] = d * trellis_next(&state);
}

// The code of group k: byte k % 4 has group k % 4, and that group + 4 above it.
static inline uint code_by_four(const global uchar *codes, uint k) {
    return codes[k % 4] >> (k / 4 * 4) & 15;
}
