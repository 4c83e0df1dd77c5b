// Copies. Types are as stored, or integers of their size.

#if !defined(DEQUANTIZED) && !defined(QUANTIZED)
// Elements in order; the shapes may differ.
KERNEL cpy(TENSOR(a), TENSOR(dst)) {
    const uint i = get_global_id(0);
    if (i >= count(&dst_)) return;
    STORE(T1, AT(dst, unflatten(&dst_, i)), LOAD(T0, AT(a, unflatten(&a_, i))));
}
#endif

#if defined(DEQUANTIZED)
// All values of a quantized tensor, in order, into dst of any shape.
KERNEL dequantize(TENSOR(a), TENSOR(dst)) {
    const uint groups = a_.ne[0] / 32, g = get_global_id(0) % groups;
    if (get_global_id(0) >= count(&a_) / 32) return;
    const uint r = get_global_id(0) / groups;
    float x[32];
    GROUP(T0, AT(a, row_of(&a_, r)), g, a_.ne[0], x);
    const uint first = r * a_.ne[0] + 32 * g;
    for (uint j = 0; j < 32; j++) STORE(T1, AT(dst, unflatten(&dst_, first + j)), x[j]);
}
#endif

#if defined(QUANTIZED)
// All values in order, from a of any shape, into dense rows of blocks.
KERNEL quantize(TENSOR(a), TENSOR(dst)) {
    const uint blocks = dst_.ne[0] / SPAN, g = get_global_id(0) % blocks;
    if (get_global_id(0) >= count(&dst_) / SPAN) return;
    const uint r = get_global_id(0) / blocks, first = r * dst_.ne[0] + SPAN * g;
    float x[SPAN];
    for (uint j = 0; j < SPAN; j++) x[j] = LOAD(T0, AT(a, unflatten(&a_, first + j)));
    QUANTIZE(T1, x, AT(dst, row_of(&dst_, r)) + BLOCK * g);
}
#endif
