// Integers in the order of floats, of their bits: total, also with NaN.
static inline int key_of(int bits) { return bits < 0 ? bits ^ 0x7fffffff : bits; }
