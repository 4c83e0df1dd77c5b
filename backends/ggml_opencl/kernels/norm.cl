// Normalisation: one group a row (or a group of channels). The source may be the result.

PART(norm/_of)

#define NORM(name) \
    OF_ROWS(name, name, (TENSOR(a), TENSOR(dst), const float eps), const float y = v, \
            store_f32(AT(dst, i), y))

NORM(rms_norm)
NORM(l2_norm)
NORM(norm)

// Work group (g, batch): channels g * size .. of dimension 2, the last group may be smaller.
KERNEL group_norm(TENSOR(a), TENSOR(dst), const int size, const float eps) {
    local float2 shared[WG];
    const uint plane = a_.ne[0] * a_.ne[1], first = get_group_id(0) * size;
    const uint n = plane * min(size, a_.ne[2] - (int)first), batch = get_group_id(1);
    const uint start = (batch * a_.ne[2] + first) * plane;
    float2 sum = 0, squares = 0;
    EACH(j, n) sum = plus(sum, load_f32(AT(a, unflatten(&a_, start + j))));
    const float mean = group_sum(sum, shared) / n;
    EACH(j, n) {
        const float d = load_f32(AT(a, unflatten(&a_, start + j))) - mean;
        squares = plus(squares, d * d);
    }
    const float scale = 1.0f / sqrt(group_sum(squares, shared) / n + eps);
    EACH(j, n) {
        const uint4 i = unflatten(&a_, start + j);
        store_f32(AT(dst, i), scale * (load_f32(AT(a, i)) - mean));
    }
}
