// Products of weights a, of any type in dense rows, and b, of floats: 32 values are a group.
static inline void group_of_b(const global uchar *column, const tensor_t *b, uint g, float *x) {
    if (b->nb[0] == SIZE(T1)) {
        GROUP(T1, column, g, b->ne[0], x);
        return;
    }
    for (uint j = 0; j < 32; j++) {
        const uint i = 32 * g + j;
        x[j] = i < b->ne[0] ? LOAD(T1, column + i * b->nb[0]) : 0.0f;
    }
}
