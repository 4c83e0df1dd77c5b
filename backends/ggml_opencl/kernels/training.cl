// What training needs: the loss, labels counted, the steps of optimizers.

#if defined(LOSSES)
// The logarithm of the sum of the exponentials of a dense row.
static inline float log_sum(const global uchar *x, uint n, local float2 *shared) {
    float top = -INFINITY;
    float2 sum = 0;
    EACH(j, n) top = fmax(top, load_f32(x + 4 * j));
    top = group_max(top, shared);
    EACH(j, n) sum = plus(sum, exp(load_f32(x + 4 * j) - top));
    return top + log(group_sum(sum, shared));
}

// One group.
KERNEL cross_entropy_loss(TENSOR(logits), TENSOR(labels), TENSOR(dst)) {
    local float2 shared[WG];
    const uint n = logits_.ne[0], rows = count(&logits_) / n;
    float2 sum = 0;
    for (uint r = 0; r < rows; r++) {
        const global uchar *x = AT(logits, row_of(&logits_, r));
        const global uchar *y = AT(labels, row_of(&labels_, r));
        const float whole = log_sum(x, n, shared);
        EACH(j, n) sum = plus(sum, load_f32(y + 4 * j) * (whole - load_f32(x + 4 * j)));
    }
    const float total = group_sum(sum, shared);
    if (get_local_id(0) == 0) store_f32(AT(dst, (uint4)(0)), total / rows);
}

// One group a row.
KERNEL cross_entropy_loss_back(TENSOR(grad), TENSOR(logits), TENSOR(labels), TENSOR(dst)) {
    local float2 shared[WG];
    const uint n = logits_.ne[0];
    const uint4 row = row_of(&dst_, get_group_id(0));
    const global uchar *x = AT(logits, row), *y = AT(labels, row);
    const float whole = log_sum(x, n, shared);
    const float scale = load_f32(AT(grad, (uint4)(0))) / (count(&logits_) / n);
    EACH(j, n) {
        const float share = exp(load_f32(x + 4 * j) - whole);
        store_f32(AT(dst, row) + 4 * j, scale * (share - load_f32(y + 4 * j)));
    }
}
#endif

#if defined(COUNTS)
// One group.
KERNEL count_equal(TENSOR(a), TENSOR(b), TENSOR(dst)) {
    local int shared[WG];
    const uint item = get_local_id(0);
    int equal = 0;
    for (uint j = item; j < count(&a_); j += WG) {
        equal += LOAD(T0, AT(a, unflatten(&a_, j))) == LOAD(T1, AT(b, unflatten(&b_, j)));
    }
    shared[item] = equal;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item > 0) return;
    for (uint j = 1; j < WG; j++) equal += shared[j];
    STORE(T2, AT(dst, (uint4)(0)), equal);
}
#endif

#if defined(STEPS)
#define VALUES(x) ((global float *)(x + x##_.offset))

KERNEL opt_step_adamw(TENSOR(a), TENSOR(grad), TENSOR(m), TENSOR(v), TENSOR(params), TENSOR(dst)) {
    const uint i = get_global_id(0);
    if (i >= count(&dst_)) return;
    const global float *p = VALUES(params); // rate, beta1, beta2, eps, decay, and two scales
    const float slope = VALUES(grad)[i];
    const float mean = VALUES(m)[i] * p[1] + slope * (1.0f - p[1]);
    const float square = VALUES(v)[i] * p[2] + slope * slope * (1.0f - p[2]);
    VALUES(m)[i] = mean;
    VALUES(v)[i] = square;
    const float step = mean * p[5] / (sqrt(square * p[6]) + p[3]);
    VALUES(dst)[i] = VALUES(a)[i] * (1.0f - p[0] * p[4]) - p[0] * step;
}

KERNEL opt_step_sgd(TENSOR(a), TENSOR(grad), TENSOR(params), TENSOR(dst)) {
    const uint i = get_global_id(0);
    if (i >= count(&dst_)) return;
    const float rate = VALUES(params)[0], decay = VALUES(params)[1];
    VALUES(dst)[i] = VALUES(a)[i] * (1.0f - rate * decay) - rate * VALUES(grad)[i];
}
#endif
