// Windows of images, and the positions in them.

#if defined(WINDOWS)
// a [C, W, H] -> [C, w, w, n], `across` windows a row
KERNEL win_part(TENSOR(a), TENSOR(dst), const int across) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const uint x = i.w % across * dst_.ne[1] + i.y, y = i.w / across * dst_.ne[2] + i.z;
    const bool inside = x < a_.ne[1] && y < a_.ne[2];
    STORE(T1, AT(dst, i), inside ? LOAD(T0, AT(a, ((uint4)(i.x, x, y, 0)))) : 0.0f);
}

KERNEL win_unpart(TENSOR(a), TENSOR(dst), const int across) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const uint4 j = (uint4)(i.x, i.y % a_.ne[1], i.z % a_.ne[2],
                            i.z / a_.ne[2] * across + i.y / a_.ne[1]);
    STORE(T1, AT(dst, i), LOAD(T0, AT(a, j)));
}

// a [C, 2n - 1] -> [C, n (key), n (query)]
KERNEL get_rel_pos(TENSOR(a), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const uint row = i.z + dst_.ne[1] - 1 - i.y;
    STORE(T1, AT(dst, i), LOAD(T0, AT(a, ((uint4)(i.x, row, 0, 0)))));
}
#endif

#if defined(POSITIONS)
// a [n*n (key h*n + w), Q, B], pw and ph [n, QW, QH, B] with QW*QH = Q
KERNEL add_rel_pos(TENSOR(a), TENSOR(pw), TENSOR(ph), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const uint n = pw_.ne[0], qx = i.y % pw_.ne[1], qy = i.y / pw_.ne[1];
    const float across = LOAD(T1, AT(pw, ((uint4)(i.x % n, qx, qy, i.z))));
    const float down = LOAD(T2, AT(ph, ((uint4)(i.x / n, qx, qy, i.z))));
    STORE(T3, AT(dst, i), LOAD(T0, AT(a, i)) + down + across);
}
#endif
