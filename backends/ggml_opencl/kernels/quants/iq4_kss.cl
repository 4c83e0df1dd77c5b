// 8 groups of eight words: their indices are u ^ u >> 1, u the word without bit 0; bits 0 are the
// scale. x = d ((scale & 254) - 127) level; bit 0 of the scale shifts the levels.
PART(_ik_levels)

static inline void group_iq4_kss(const global uchar *row, uint g, uint n, float *x) {
    const global uchar *b = row + 132 * (g / 8), *words = b + 4 + 16 * (g % 8);
    int scale = 0;
    for (uint i = 0; i < 8; i++) scale |= (words[2 * i] & 1) << i;
    const int shift = (scale & 1) * 4;
    const float d = load_f32(b) * ((scale & 254) - 127);
    for (uint i = 0; i < 8; i++) {
        const uint u = bits16(words + 2 * i) & 0xfffe, four = u ^ u >> 1;
        x[2 * i] = d * (ik_levels_4[four & 15] + shift);
        x[2 * i + 16] = d * (ik_levels_4[four >> 4 & 15] + shift);
        x[2 * i + 1] = d * (ik_levels_4[four >> 8 & 15] + shift);
        x[2 * i + 17] = d * (ik_levels_4[four >> 12 & 15] + shift);
    }
}
