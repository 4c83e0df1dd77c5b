// Rotary position embedding. One item a pair of channels, or a channel that is only copied.
// DIRECTION is -1 for turning back.

#define MROPE 8
#define VISION 24
#define IMROPE 40

// Which of the four positions turns a pair, and the exponent of its frequency.
static inline uint2 axis_of(uint pair, int mode, int4 sections) {
    const int4 ends = (int4)(sections.x, sections.x + sections.y,
                             sections.x + sections.y + sections.z, 0);
    const int sector = pair % (ends.z + sections.w);
    if (mode == IMROPE) {
        const int third = sector % 3;
        const int size = third == 0 ? sections.x : third == 1 ? sections.y : sections.z;
        return (uint2)(sector < 3 * size ? third : 3, pair);
    }
    const uint axis = (sector >= ends.x) + (sector >= ends.y) + (sector >= ends.z);
    const int start = axis == 0 ? 0 : axis == 1 ? ends.x : axis == 2 ? ends.y : ends.z;
    return (uint2)(axis, mode == VISION ? sector - start : pair);
}

KERNEL rope(TENSOR(a), TENSOR(pos), TENSOR(factors), TENSOR(dst), const int n_dims, const int mode,
            const int n_pairs, const int first, const int apart, const int step,
            const float log_base, const float freq_scale, const float ext_factor,
            const float magnitude, const float low, const float high, const int s0, const int s1,
            const int s2, const int s3) {
    const uint units = a_.ne[0] - n_pairs, unit = get_global_id(0) % units;
    const uint r = get_global_id(0) / units;
    if (r >= a_.ne[1] * a_.ne[2] * a_.ne[3]) return;
    const uint4 row = row_of(&a_, r);
    const global uchar *x = AT(a, row);
    global uchar *y = AT(dst, row);
    if (unit >= n_pairs) {
        const uint rest = unit - n_pairs, i = rest < first ? rest : rest + 2 * n_pairs;
        STORE(T3, y + i * dst_.nb[0], LOAD(T0, x + i * a_.nb[0]));
        return;
    }
    const uint2 turn = mode & MROPE ? axis_of(unit, mode, (int4)(s0, s1, s2, s3))
                                    : (uint2)(0, unit);
    const int position = load_i32(AT(pos, ((uint4)(turn.x * a_.ne[2] + row.z, 0, 0, 0))));
    float angle = position * exp(-2.0f * turn.y / n_dims * log_base);
#if FACTORS
    angle /= load_f32(AT(factors, ((uint4)(unit, 0, 0, 0))));
#endif
    const float ramp = 1.0f - clamp((unit - low) / fmax(0.001f, high - low), 0.0f, 1.0f);
    const float mix = ramp * ext_factor;
    angle = freq_scale * angle * (1.0f - mix) + angle * mix;
    const float c = magnitude * cos(angle), s = DIRECTION * magnitude * sin(angle);
    const uint i = first + step * unit, j = i + apart;
    const float u = LOAD(T0, x + i * a_.nb[0]), v = LOAD(T0, x + j * a_.nb[0]);
    STORE(T3, y + i * dst_.nb[0], u * c - v * s);
    STORE(T3, y + j * dst_.nb[0], u * s + v * c);
}
