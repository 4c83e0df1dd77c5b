// Triangles and constants.

#define UPPER_DIAG 0
#define UPPER 1
#define LOWER_DIAG 2
#define LOWER 3

KERNEL tri(TENSOR(a), TENSOR(dst), const int kind) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const bool above = kind == UPPER_DIAG || kind == UPPER;
    const bool diagonal = kind == UPPER_DIAG || kind == LOWER_DIAG;
    const bool keep = i.x == i.y ? diagonal : (i.x > i.y) == above;
    STORE(T1, AT(dst, i), keep ? LOAD(T0, AT(a, i)) : 0.0f);
}

KERNEL fill(TENSOR(dst), const float value) {
    if (get_global_id(0) >= count(&dst_)) return;
    STORE(T0, AT(dst, unflatten(&dst_, get_global_id(0))), value);
}

KERNEL diag_mask(TENSOR(a), TENSOR(dst), const int n_past, const float masked) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    STORE(T1, AT(dst, i), i.x > n_past + i.y ? masked : LOAD(T0, AT(a, i)));
}
