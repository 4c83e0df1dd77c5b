// How far ROPE turns a pair of channels. DIRECTION is -1 for turning back.

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

typedef struct {
    int n_dims, mode, n_pairs, first, apart, stride; // a pair: first + stride * unit, and `apart` from it
    float log_base, freq_scale, ext_factor, magnitude, low, high;
    int4 sections;
} rope_t;

// A kernel's arguments, and what becomes of them.
#define ROPE \
    const int n_dims, const int mode, const int n_pairs, const int first, const int apart, \
        const int stride, const float log_base, const float freq_scale, const float ext_factor, \
        const float magnitude, const float low, const float high, const int s0, const int s1, \
        const int s2, const int s3
#define ROPE_T \
    { n_dims, mode, n_pairs, first, apart, stride, log_base, freq_scale, ext_factor, magnitude, low, \
      high, (int4)(s0, s1, s2, s3) }

// Cosine and sine, times the magnitude, of pair `unit` of token `token` of n_tokens.
static inline float2 turn_of(const rope_t *t, uint unit, uint token, uint n_tokens, TENSOR(pos),
                             TENSOR(factors)) {
    const uint2 turn = t->mode & MROPE ? axis_of(unit, t->mode, t->sections) : (uint2)(0, unit);
    const int position = load_i32(AT(pos, ((uint4)(turn.x * n_tokens + token, 0, 0, 0))));
    float angle = position * exp(-2.0f * turn.y / t->n_dims * t->log_base);
#if FACTORS
    angle /= load_f32(AT(factors, ((uint4)(unit, 0, 0, 0))));
#endif
    const float ramp = 1.0f - clamp((unit - t->low) / fmax(0.001f, t->high - t->low), 0.0f, 1.0f);
    const float mix = ramp * t->ext_factor;
    angle = t->freq_scale * angle * (1.0f - mix) + angle * mix;
    return (float2)(t->magnitude * cos(angle), DIRECTION * t->magnitude * sin(angle));
}
