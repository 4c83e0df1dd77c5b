// Convolutions: a the kernels, b the images; strides s, paddings p, dilations d of width, height
// and depth. An item makes one element.

// Where element k of a kernel at place i of the result lies in an image of n; negative: outside.
static inline int under(uint i, uint k, int s, int p, int d, int n) {
    const int at = (int)i * s + (int)k * d - p;
    return at < n ? at : -1;
}

#define PLANE const int s0, const int s1, const int p0, const int p1, const int d0, const int d1
#define VOLUME const int s0, const int s1, const int s2, const int p0, const int p1, \
               const int p2, const int d0, const int d1, const int d2

#if defined(COLUMNS)
// b [W, H, C, N] -> [C*kh*kw, OW, OH, N]
KERNEL im2col(TENSOR(b), TENSOR(dst), const int kw, const int kh, PLANE) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int x = under(i.y, i.x % kw, s0, p0, d0, b_.ne[0]);
    const int y = under(i.z, i.x / kw % kh, s1, p1, d1, b_.ne[1]);
    const uint c = i.x / kw / kh;
    const float v = x < 0 || y < 0 ? 0.0f : LOAD(T0, AT(b, ((uint4)(x, y, c, i.w))));
    STORE(T1, AT(dst, i), v);
}

// b [W, H, D, C*N] -> [C*kd*kh*kw, OW, OH, OD*N]
KERNEL im2col_3d(TENSOR(b), TENSOR(dst), const int kw, const int kh, const int kd, const int depth,
                 const int channels, VOLUME) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const int x = under(i.y, i.x % kw, s0, p0, d0, b_.ne[0]);
    const int y = under(i.z, i.x / kw % kh, s1, p1, d1, b_.ne[1]);
    const int z = under(i.w % depth, i.x / kw / kh % kd, s2, p2, d2, b_.ne[2]);
    const uint c = i.w / depth * channels + i.x / kw / kh / kd;
    const bool outside = x < 0 || y < 0 || z < 0;
    const float v = outside ? 0.0f : LOAD(T0, AT(b, ((uint4)(x, y, z, c))));
    STORE(T1, AT(dst, i), v);
}
#endif

#if defined(DIRECT)
// a [KW, KH, C, OC], b [W, H, C, N] -> [OW, OH, OC, N]; if apart, each channel has its own kernel:
// a [KW, KH, 1, C].
KERNEL conv_2d(TENSOR(a), TENSOR(b), TENSOR(dst), const int apart, PLANE) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float sum = 0;
    for (uint ky = 0; ky < a_.ne[1]; ky++) {
        const int y = under(i.y, ky, s1, p1, d1, b_.ne[1]);
        for (uint kx = 0; y >= 0 && kx < a_.ne[0]; kx++) {
            const int x = under(i.x, kx, s0, p0, d0, b_.ne[0]);
            if (x < 0) continue;
            const global uchar *k = AT(a, ((uint4)(kx, ky, 0, i.z)));
            const global uchar *v = AT(b, ((uint4)(x, y, apart ? i.z : 0, i.w)));
            for (uint c = 0; c < a_.ne[2]; c++) {
                sum += LOAD(T0, k + c * a_.nb[2]) * LOAD(T1, v + c * b_.nb[2]);
            }
        }
    }
    STORE(T2, AT(dst, i), sum);
}

// a [KW, KH, KD, C*OC], b [W, H, D, C*N] -> [OW, OH, OD, OC*N]
KERNEL conv_3d(TENSOR(a), TENSOR(b), TENSOR(dst), const int channels, const int results, VOLUME) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const uint volume = a_.ne[0] * a_.ne[1] * a_.ne[2];
    float sum = 0;
    for (uint k = 0; k < volume; k++) {
        const uint kx = k % a_.ne[0], ky = k / a_.ne[0] % a_.ne[1], kz = k / a_.ne[0] / a_.ne[1];
        const int x = under(i.x, kx, s0, p0, d0, b_.ne[0]);
        const int y = under(i.y, ky, s1, p1, d1, b_.ne[1]);
        const int z = under(i.z, kz, s2, p2, d2, b_.ne[2]);
        if (x < 0 || y < 0 || z < 0) continue;
        const global uchar *w = AT(a, ((uint4)(kx, ky, kz, i.w % results * channels)));
        const global uchar *v = AT(b, ((uint4)(x, y, z, i.w / results * channels)));
        for (uint c = 0; c < channels; c++) {
            sum += LOAD(T0, w + c * a_.nb[3]) * LOAD(T1, v + c * b_.nb[3]);
        }
    }
    STORE(T2, AT(dst, i), sum);
}
#endif
