// Copy, convert, concatenate, repeat, pad. Types are as stored, or integers of their size.

// Elements in order; the shapes may differ.
KERNEL cpy(TENSOR(a), TENSOR(dst)) {
    const uint i = get_global_id(0);
    if (i >= count(&dst_)) return;
    STORE(T1, AT(dst, unflatten(&dst_, i)), LOAD(T0, AT(a, unflatten(&a_, i))));
}

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

// a begins at (l0, l1, l2, l3) of dst; zero elsewhere, or a again and again if circular.
KERNEL pad(TENSOR(a), TENSOR(dst), const int l0, const int l1, const int l2, const int l3,
           const int circular) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int4 n = (int4)(a_.ne[0], a_.ne[1], a_.ne[2], a_.ne[3]);
    int4 j = convert_int4(i) - (int4)(l0, l1, l2, l3);
    if (circular) j = (j % n + n) % n;
    const int inside = all(j >= 0 && j < n);
    STORE(T1, AT(dst, i), inside ? LOAD(T0, AT(a, convert_uint4(j))) : 0);
}
