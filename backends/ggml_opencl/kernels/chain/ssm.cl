// A chain behind SSM_CONV: sx [d_conv - 1 + T, C, B], c [d_conv, C] -> [C, T, B].

PART(ssm/_conv)
PART(chain/_common)

KERNEL ssm_conv_chain(TENSOR(sx), TENSOR(c), TENSOR(dst) LEAVES NUMBERS) {
    const uint flat = get_global_id(0), n = c_.ne[1], n_tokens = sx_.ne[0] - c_.ne[0] + 1;
    if (flat >= count(&dst_)) return;
    const uint4 i = (uint4)(flat % n, flat / n % n_tokens, flat / n / n_tokens, 0), j = PLACE(flat);
    const float v = convolved(sx, sx_, c, c_, i);
    CHAIN;
    STORE_Y(AT(dst, j), y);
}
