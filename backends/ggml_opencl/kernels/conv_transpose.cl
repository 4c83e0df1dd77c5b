// Convolutions turned round. An item sums what reaches one element of the result.

// The inputs, s apart, whose k elements reach place t.
static inline int first(int t, int k, int s) { return t < k ? 0 : (t - k) / s + 1; }
static inline int last(int t, int s, int n) { return min(t / s, n - 1); }

#if defined(IMAGES)
// a [KW, KH, OC, C], b [W, H, C, N] -> [OW, OH, OC, N]
KERNEL conv_transpose(TENSOR(a), TENSOR(b), TENSOR(dst), const int s) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (int y = first(i.y, a_.ne[1], s); y <= last(i.y, s, b_.ne[1]); y++) {
        for (int x = first(i.x, a_.ne[0], s); x <= last(i.x, s, b_.ne[0]); x++) {
            const global uchar *k = AT(a, ((uint4)(i.x - x * s, i.y - y * s, i.z, 0)));
            const global uchar *v = AT(b, ((uint4)(x, y, 0, i.w)));
            for (uint c = 0; c < a_.ne[3]; c++) {
                sum += LOAD(T0, k + c * a_.nb[3]) * LOAD(T1, v + c * b_.nb[2]);
            }
        }
    }
    STORE(T2, AT(dst, i), sum);
}
#endif

#if defined(SIGNALS)
// a [k*OC, T] -> [n, OC]: columns added up s apart, p cut off in front
KERNEL col2im_1d(TENSOR(a), TENSOR(dst), const int k, const int s, const int p) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int t = i.x + p;
    float sum = 0;
    for (int j = first(t, k, s); j <= last(t, s, a_.ne[1]); j++) {
        sum += LOAD(T0, AT(a, ((uint4)(i.y * k + t - j * s, j, 0, 0))));
    }
    STORE(T1, AT(dst, i), sum);
}
#endif
