// Ordering the elements of rows.

// Integers in the order of floats: total, also with NaN.
static inline int key(const global uchar *p) {
    const int bits = load_i32(p);
    return bits < 0 ? bits ^ 0x7fffffff : bits;
}

// The rank of an element is the number of those before it; equal ones keep their order. Ranks
// from dst's length on are dropped: TOP_K.
KERNEL argsort(TENSOR(a), TENSOR(dst), const int descending) {
    if (get_global_id(0) >= count(&a_)) return;
    const uint4 i = unflatten(&a_, get_global_id(0));
    const global uchar *x = AT(a, ((uint4)(0, i.y, i.z, i.w)));
    const int mine = key(x + i.x * a_.nb[0]);
    uint rank = 0;
    for (uint j = 0; j < a_.ne[0]; j++) {
        const int other = key(x + j * a_.nb[0]);
        rank += (descending ? other > mine : other < mine) || (other == mine && j < i.x);
    }
    if (rank < dst_.ne[0]) store_i32(AT(dst, ((uint4)(rank, i.y, i.z, i.w))), i.x);
}
