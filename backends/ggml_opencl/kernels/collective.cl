// The sum of n parts, one type and shape and no gaps, which is written to all of them. A part whose
// bit in `receivers` is 1 is not added. What comes after the first n parts is not used.

#define PARTS TENSOR(p0), TENSOR(p1), TENSOR(p2), TENSOR(p3), TENSOR(p4), \
              TENSOR(p5), TENSOR(p6), TENSOR(p7), TENSOR(p8), TENSOR(p9)
#define START(p) p + p##_.offset
#define STARTS {START(p0), START(p1), START(p2), START(p3), START(p4), \
                START(p5), START(p6), START(p7), START(p8), START(p9)}

#if defined(BLOCK)
// An item makes one block.
KERNEL reduce(PARTS, const int n, const int receivers) {
    global uchar *parts[] = STARTS;
    const uint i = get_global_id(0);
    if (i >= count(&p0_) / SPAN) return;
    float sum[SPAN] = {0}, x[32];
    for (int k = 0; k < n; k++) {
        if (receivers >> k & 1) continue;
        for (uint g = 0; g < SPAN / 32; g++) {
            GROUP(T0, parts[k] + BLOCK * i, g, SPAN, x);
            for (uint j = 0; j < 32; j++) sum[32 * g + j] += x[j];
        }
    }
    for (int k = 0; k < n; k++) QUANTIZE(T0, sum, parts[k] + BLOCK * i);
}
#else
KERNEL reduce(PARTS, const int n, const int receivers) {
    global uchar *parts[] = STARTS;
    const uint i = get_global_id(0);
    if (i >= count(&p0_)) return;
    float sum = 0;
    for (int k = 0; k < n; k++) {
        if (!(receivers >> k & 1)) sum += ELEMENT(T0, parts[k], i);
    }
    for (int k = 0; k < n; k++) STORE(T0, parts[k] + SIZE(T0) * i, sum);
}
#endif
