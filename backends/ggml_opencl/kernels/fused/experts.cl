// A token's experts: who they are, and their weighted sum.

#if defined(ROUTER)
PART(sort/_key)

// Group t: probabilities of a token's N experts, those in descending order, the weights of the
// first of them, of which dst has as many as it has elements for each token.
KERNEL route(TENSOR(logits), TENSOR(order), TENSOR(dst),
#if BIASED
             TENSOR(bias),
#endif
             const int n_used, const float scale, const float low, const float high) {
    local float2 shared[WG];
    local float probs[N], weights[N];
    local int keys[N];
    const uint t = get_group_id(0);
#if SOFTMAX
    float top = -INFINITY;
    float2 sum = 0;
    EACH(e, N) top = fmax(top, probs[e] = scale * load_f32(AT(logits, ((uint4)(e, t, 0, 0)))));
    top = group_max(top, shared);
    EACH(e, N) sum = plus(sum, probs[e] = exp(probs[e] - top));
    const float whole = group_sum(sum, shared);
    EACH(e, N) probs[e] /= whole;
#else
    EACH(e, N) probs[e] = sigmoid(load_f32(AT(logits, ((uint4)(e, t, 0, 0)))));
#endif
    EACH(e, N) {
#if BIASED
        keys[e] = key_of(as_int(probs[e] + load_f32(AT(bias, ((uint4)(e, 0, 0, 0))))));
#else
        keys[e] = key_of(as_int(probs[e]));
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    EACH(e, N) {
        uint rank = 0;
        for (uint j = 0; j < N; j++) rank += keys[j] > keys[e] || (keys[j] == keys[e] && j < e);
        store_i32(AT(order, ((uint4)(rank, t, 0, 0))), e);
        weights[rank] = probs[e];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float by = 1;
#if NORMED
    float2 total = 0;
    EACH(j, n_used) total = plus(total, weights[j]);
    by = fmin(fmax(group_sum(total, shared), low), high);
#endif
    global float *y = (global float *)(dst + dst_.offset) + n_used * t;
    EACH(j, n_used) y[j] = weights[j] / by;
}
#else
// x [n, n_used, T] and weights w [1, n_used, T] -> [n, T]: the weighted sum of a token's experts.
KERNEL weighted_sum(TENSOR(x), TENSOR(w), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (uint e = 0; e < x_.ne[1]; e++) {
        const float weight = load_f32(AT(w, ((uint4)(0, e, i.y, 0))));
        sum += weight * load_f32(AT(x, ((uint4)(i.x, e, i.y, 0))));
    }
    store_f32(AT(dst, i), sum);
}
#endif
