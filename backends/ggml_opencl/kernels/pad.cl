// Elements before and after those of a tensor, and elements that go round.

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

KERNEL roll(TENSOR(a), TENSOR(dst), const int s0, const int s1, const int s2, const int s3) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int4 n = (int4)(a_.ne[0], a_.ne[1], a_.ne[2], a_.ne[3]);
    const int4 j = (convert_int4(i) - (int4)(s0, s1, s2, s3) + n) % n;
    STORE(T1, AT(dst, i), LOAD(T0, AT(a, convert_uint4(j))));
}

// a begins at p; before and behind it is mirrored about its first and last element.
KERNEL pad_reflect_1d(TENSOR(a), TENSOR(dst), const int p) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int last = a_.ne[0] - 1, x = abs((int)i.x - p), j = x > last ? 2 * last - x : x;
    STORE(T1, AT(dst, i), LOAD(T0, AT(a, ((uint4)(j, i.y, i.z, i.w)))));
}
