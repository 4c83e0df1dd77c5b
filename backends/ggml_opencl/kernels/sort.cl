// Ordering the elements of rows.

PART(sort/_key)

static inline int key(const global uchar *p) { return key_of(load_i32(p)); }

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

// Whether element i of a row comes before element j.
static inline bool before(const global uchar *x, long step, int i, int j, int descending) {
    const int a = key(x + i * step), b = key(x + j * step);
    return a == b ? i < j : descending ? a > b : a < b;
}

// 0, 1, 2, .. in each row.
KERNEL number(TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    store_i32(AT(dst, i), i.x);
}

// One step of a merge: the indices at two places of a row of dst, in order. The places are
// `distance` apart, or mirror each other in 2 * distance of them.
KERNEL exchange(TENSOR(a), TENSOR(dst), const int descending, const int distance,
                const int mirrored) {
    const uint n = dst_.ne[0], pairs = (n + 2 * distance - 1) / (2 * distance) * distance;
    const uint u = get_global_id(0) % pairs, r = get_global_id(0) / pairs;
    if (r >= count(&dst_) / n) return;
    const uint start = u / distance * 2 * distance, j = u % distance;
    const uint first = start + j;
    const uint second = mirrored ? start + 2 * distance - 1 - j : first + distance;
    if (second >= n) return;
    const uint4 row = row_of(&dst_, r);
    global uchar *p = AT(dst, row) + first * dst_.nb[0], *q = AT(dst, row) + second * dst_.nb[0];
    const int i = load_i32(p), k = load_i32(q);
    if (before(AT(a, row), a_.nb[0], k, i, descending)) store_i32(p, k), store_i32(q, i);
}

// The sum of n over the group's items, and of those before this one.
static inline uint group_count(uint n, local uint *shared, uint *earlier) {
    uint sum = *earlier = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    shared[get_local_id(0)] = n;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint j = 0; j < WG; j++) {
        if (j == get_local_id(0)) *earlier = sum;
        sum += shared[j];
    }
    return sum;
}

// A group finds the indices of a row's largest elements, the first ones of equals, as many as dst
// has. The least of these is found bit by bit, from the top: how many are not below it?
KERNEL select_top(TENSOR(a), TENSOR(dst)) {
    local uint shared[WG];
    const uint4 row = row_of(&dst_, get_group_id(0));
    const global uchar *x = AT(a, row);
    const uint n = a_.ne[0], k = dst_.ne[0], sign = 1u << 31; // keys in the order of unsigned ones
    uint least = 0, earlier;
    for (uint bit = sign; bit > 0; bit >>= 1) {
        uint found = 0;
        EACH(j, n) found += ((uint)key(x + j * a_.nb[0]) ^ sign) >= (least | bit);
        if (group_count(found, shared, &earlier) >= k) least |= bit;
    }
    const uint span = (n + WG - 1) / WG, start = min(n, span * (uint)get_local_id(0));
    const uint stop = min(n, start + span);
    uint above = 0, equal = 0, above_before, equal_before;
    for (uint j = start; j < stop; j++) {
        const uint mine = (uint)key(x + j * a_.nb[0]) ^ sign;
        above += mine > least, equal += mine == least;
    }
    const uint all_above = group_count(above, shared, &above_before);
    group_count(equal, shared, &equal_before);
    equal_before += all_above;
    for (uint j = start; j < stop; j++) {
        const uint mine = (uint)key(x + j * a_.nb[0]) ^ sign;
        const uint place = mine > least ? above_before++ : mine == least ? equal_before++ : k;
        if (place < k) store_i32(AT(dst, row) + place * dst_.nb[0], j);
    }
}
