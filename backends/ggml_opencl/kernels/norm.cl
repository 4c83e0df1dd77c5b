// Normalisation: one group a row (or a group of channels). The source may be the result.

KERNEL rms_norm(TENSOR(a), TENSOR(dst), const float eps) {
    local float shared[WG];
    const uint4 row = row_of(&a_, get_group_id(0));
    const global uchar *x = AT(a, row);
    global uchar *y = AT(dst, row);
    float sum = 0;
    EACH(j, a_.ne[0]) sum += load_f32(x + 4 * j) * load_f32(x + 4 * j);
    const float scale = 1.0f / sqrt(group_sum(sum, shared) / a_.ne[0] + eps);
    EACH(j, a_.ne[0]) store_f32(y + 4 * j, scale * load_f32(x + 4 * j));
}

KERNEL l2_norm(TENSOR(a), TENSOR(dst), const float eps) {
    local float shared[WG];
    const uint4 row = row_of(&a_, get_group_id(0));
    const global uchar *x = AT(a, row);
    const long step = a_.nb[0];
    global uchar *y = AT(dst, row);
    float sum = 0;
    EACH(j, a_.ne[0]) sum += load_f32(x + step * j) * load_f32(x + step * j);
    const float scale = 1.0f / fmax(sqrt(group_sum(sum, shared)), eps);
    EACH(j, a_.ne[0]) store_f32(y + 4 * j, scale * load_f32(x + step * j));
}

KERNEL norm(TENSOR(a), TENSOR(dst), const float eps) {
    local float shared[WG];
    const uint4 row = row_of(&a_, get_group_id(0));
    const global uchar *x = AT(a, row);
    const long step = a_.nb[0];
    global uchar *y = AT(dst, row);
    float sum = 0, squares = 0;
    EACH(j, a_.ne[0]) sum += load_f32(x + step * j);
    const float mean = group_sum(sum, shared) / a_.ne[0];
    EACH(j, a_.ne[0]) {
        const float d = load_f32(x + step * j) - mean;
        squares += d * d;
    }
    const float scale = 1.0f / sqrt(group_sum(squares, shared) / a_.ne[0] + eps);
    EACH(j, a_.ne[0]) store_f32(y + 4 * j, scale * (load_f32(x + step * j) - mean));
}

// Work group (g, batch): channels g * size .. of dimension 2, the last group may be smaller.
KERNEL group_norm(TENSOR(a), TENSOR(dst), const int size, const float eps) {
    local float shared[WG];
    const uint plane = a_.ne[0] * a_.ne[1], first = get_group_id(0) * size;
    const uint n = plane * min(size, a_.ne[2] - (int)first), batch = get_group_id(1);
    const uint start = (batch * a_.ne[2] + first) * plane;
    float sum = 0, squares = 0;
    EACH(j, n) sum += load_f32(AT(a, unflatten(&a_, start + j)));
    const float mean = group_sum(sum, shared) / n;
    EACH(j, n) {
        const float d = load_f32(AT(a, unflatten(&a_, start + j))) - mean;
        squares += d * d;
    }
    const float scale = 1.0f / sqrt(group_sum(squares, shared) / n + eps);
    EACH(j, n) {
        const uint4 i = unflatten(&a_, start + j);
        store_f32(AT(dst, i), scale * (load_f32(AT(a, i)) - mean));
    }
}
