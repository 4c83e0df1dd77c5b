// A chain without a head.

PART(chain/_common)

KERNEL chain(TENSOR(dst) LEAVES NUMBERS) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 j = unflatten(&dst_, get_global_id(0));
    CHAIN;
    STORE_Y(AT(dst, j), y);
}
