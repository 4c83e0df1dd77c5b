// A chain behind products of few columns.

PART(matrix/_rows)
PART(chain/_common)

OF_COLUMNS(mul_mat_chain, (TENSOR(a), TENSOR(b), TENSOR(dst) LEAVES NUMBERS),
           const uint4 j = PLACE(i.x + a_.ne[1] * (i.y + b_.ne[1] * get_group_id(2)));
           CHAIN;
           STORE_Y(AT(dst, j), y))
