// Arithmetic of two tensors with broadcast.

#define BINARY(name, expression) \
    KERNEL name(TENSOR(a), TENSOR(b), TENSOR(dst)) { \
        if (get_global_id(0) >= count(&dst_)) return; \
        const uint4 i = unflatten(&dst_, get_global_id(0)); \
        const float x = LOAD(T0, AT(a, i)), y = LOAD(T1, AT(b, repeated(&b_, i))); \
        STORE(T2, AT(dst, i), expression); \
    }

BINARY(add, x + y)
BINARY(sub, x - y)
BINARY(mul, x * y)
BINARY(div, x / y)

// a[:, e, t] + b[:, ids[e, t]]
KERNEL add_id(TENSOR(a), TENSOR(b), TENSOR(dst), TENSOR(ids), CHECKED) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int row = load_i32(AT(ids, ((uint4)(i.y, i.z, 0, 0))));
    if (!IN_RANGE(row, b_.ne[1])) return;
    const float bias = LOAD(T1, AT(b, ((uint4)(i.x, row, 0, 0))));
    STORE(T2, AT(dst, i), LOAD(T0, AT(a, i)) + bias);
}
