// Pooling: the largest or the mean of a window k0 x k1. An item makes one element.

KERNEL pool(TENSOR(a), TENSOR(dst), const int mean, const int k0, const int k1, const int s0,
            const int s1, const int p0, const int p1, const int count_all) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int x = (int)i.x * s0 - p0, y = (int)i.y * s1 - p1;
    float top = -FLT_MAX, sum = 0;
    int n = 0;
    for (int v = max(y, 0); v < min(y + k1, a_.ne[1]); v++) {
        for (int u = max(x, 0); u < min(x + k0, a_.ne[0]); u++) {
            const float value = LOAD(T0, AT(a, ((uint4)(u, v, i.z, i.w))));
            top = fmax(top, value);
            sum += value;
            n++;
        }
    }
    const int divisor = count_all ? k0 * k1 : max(n, 1);
    STORE(T1, AT(dst, i), mean ? sum / divisor : top);
}
