// The convolution at i of [C, T, B]: sx [d_conv - 1 + T, C, B], c [d_conv, C].
static inline float convolved(TENSOR(sx), TENSOR(c), uint4 i) {
    float sum = 0;
    for (uint j = 0; j < c_.ne[0]; j++) {
        const float w = load_f32(AT(c, ((uint4)(j, i.x, 0, 0))));
        sum += w * load_f32(AT(sx, ((uint4)(i.y + j, i.x, i.z, 0))));
    }
    return sum;
}
