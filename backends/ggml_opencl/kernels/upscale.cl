// Resizing of images. Scales s are new size / old size.

// Exact to the last bit, as the edge between two pixels needs; x / y may be off by some.
static inline float divide(float x, float y) {
    const float q = x / y;
    return fma(fma(-q, y, x), 1.0f / y, q);
}

static inline uint source(uint i, float scale, int n) { return min((int)divide(i, scale), n - 1); }

KERNEL nearest(TENSOR(a), TENSOR(dst), const float s0, const float s1, const float s2,
               const float s3) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    uint4 j;
    j.x = source(i.x, s0, a_.ne[0]), j.y = source(i.y, s1, a_.ne[1]);
    j.z = source(i.z, s2, a_.ne[2]), j.w = source(i.w, s3, a_.ne[3]);
    STORE(T1, AT(dst, i), LOAD(T0, AT(a, j)));
}

// The share of a pixel x away: a triangle, or Keys' cubic with a = -0.75.
static inline float share(float x, int cubic) {
    x = fabs(x);
    if (!cubic) return fmax(1.0f - x, 0.0f);
    if (x <= 1.0f) return (1.25f * x - 2.25f) * x * x + 1.0f;
    return x < 2.0f ? ((-0.75f * x + 3.75f) * x - 6.0f) * x + 3.0f : 0.0f;
}

// Means of the pixels within `reach` times `wide`. A pixel's middle is `middle` from its edge.
// Beyond the image its edge repeats, or, if it is cut, there is nothing.
KERNEL interpolate(TENSOR(a), TENSOR(dst), const float s0, const float s1, const float s2,
                   const float s3, const float middle, const int cubic, const int cut,
                   const float wide0, const float wide1) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const uint z = source(i.z, s2, a_.ne[2]), w = source(i.w, s3, a_.ne[3]);
    const float x = divide(i.x + middle, s0) - middle, y = divide(i.y + middle, s1) - middle;
    const float reach = cubic ? 2.0f : 1.0f, reach0 = reach * wide0, reach1 = reach * wide1;
    const int right = a_.ne[0] - 1, bottom = a_.ne[1] - 1;
    float sum = 0, shares = 0;
    for (int v = (int)ceil(y - reach1); v <= y + reach1; v++) {
        for (int u = (int)ceil(x - reach0); u <= x + reach0; u++) {
            const int p = clamp(u, 0, right), q = clamp(v, 0, bottom);
            if (cut && (p != u || q != v)) continue;
            const float part = share((u - x) / wide0, cubic) * share((v - y) / wide1, cubic);
            sum += part * LOAD(T0, AT(a, ((uint4)(p, q, z, w))));
            shares += part;
        }
    }
    STORE(T1, AT(dst, i), sum / shares);
}
