// Chains: the host defines LEAVES and NUMBERS, parameters of kernels, CHAIN, which makes y of a
// head's value v and of leaves at j, STORE_Y, and RESHAPED, if the result has not the head's shape.

PART(_unary)

// Where in the result the head's element i lies, whose number is `flat`.
#if RESHAPED
#define PLACE(flat) unflatten(&dst_, flat)
#else
#define PLACE(flat) i
#endif

#define SAME(x) AT(x, j)
#define REPEATED(x) AT(x, repeated(&x##_, j))
