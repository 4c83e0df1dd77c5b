// CONCAT, SSM_CONV and SILU, and the inputs that CPY keeps: state [D - 1, C, B], with IN_ROWS rows
// `ids` of a cache, x [T, C, B], c [D, C] -> dst [C, T, B]; kept [D - 1, C, B] from time `first` on.

static inline float input_at(TENSOR(state), TENSOR(x), uint time, uint channel, uint row, uint seq) {
    const uint n = state_.ne[0];
    return load_f32(time < n ? AT(state, ((uint4)(time, channel, row, 0)))
                             : AT(x, ((uint4)(time - n, channel, seq, 0))));
}

#define INPUT(time) input_at(state, state_, x, x_, time, i.x, row, i.z)

KERNEL conv_silu(TENSOR(state), TENSOR(x), TENSOR(c), TENSOR(dst), TENSOR(kept),
#if IN_ROWS
                 TENSOR(ids), const int first, CHECKED
#else
                 const int first
#endif
) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    uint row = i.z;
#if IN_ROWS
    row = load_i32(AT(ids, ((uint4)(i.z, 0, 0, 0))));
    if (!IN_RANGE((int)row, state_.ne[2])) return;
#endif
    float sum = 0;
    for (uint j = 0; j < c_.ne[0]; j++) {
        sum += load_f32(AT(c, ((uint4)(j, i.x, 0, 0)))) * INPUT(i.y + j);
    }
    store_f32(AT(dst, i), sum * sigmoid(sum));
    if (i.y > 0) return;
    // Upwards: what is kept may lie where it came from.
    for (uint j = 0; j < kept_.ne[0]; j++) {
        store_f32(AT(kept, ((uint4)(j, i.x, i.z, 0))), INPUT(first + j));
    }
}

// The inputs kept of one more time.
KERNEL keep_inputs(TENSOR(state), TENSOR(x), TENSOR(kept), const int first) {
    if (get_global_id(0) >= count(&kept_)) return;
    const uint4 j = unflatten(&kept_, get_global_id(0)), i = (uint4)(j.y, 0, j.z, 0);
    const uint row = i.z;
    store_f32(AT(kept, j), INPUT(first + j.x));
}
