// A chain behind a norm of rows.

PART(norm/_of)
PART(chain/_common)

#define BEHIND(norm) \
    OF_ROWS(norm##_chain, norm, \
            (TENSOR(a), TENSOR(dst) LEAVES, const float eps NUMBERS), \
            const uint4 j = PLACE(i.x + n * get_group_id(0)); CHAIN, \
            const uint4 j = PLACE(i.x + n * get_group_id(0)); STORE_Y(AT(dst, j), y))

BEHIND(rms_norm)
BEHIND(l2_norm)
BEHIND(norm)
