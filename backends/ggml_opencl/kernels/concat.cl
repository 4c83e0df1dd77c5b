// Tensors side by side. Types are integers of the size of an element.

// a, copied to its place in dst.
KERNEL place(TENSOR(a), TENSOR(dst), const int o0, const int o1, const int o2, const int o3) {
    if (get_global_id(0) >= count(&a_)) return;
    const uint4 i = unflatten(&a_, get_global_id(0));
    STORE(T1, AT(dst, i + (uint4)(o0, o1, o2, o3)), LOAD(T0, AT(a, i)));
}

KERNEL repeat(TENSOR(a), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    STORE(T1, AT(dst, i), LOAD(T0, AT(a, repeated(&a_, i))));
}
