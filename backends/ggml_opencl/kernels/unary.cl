// Functions of single elements.

UNARY(op_sqr, x * x)
UNARY(op_sqrt, sqrt(x))
UNARY(op_log, log(x))
UNARY(op_sin, sin(x))
UNARY(op_cos, cos(x))
UNARY(op_abs, fabs(x))
UNARY(op_sgn, (float)((x > 0) - (x < 0)))
UNARY(op_neg, -x)
UNARY(op_step, (float)(x > 0))
UNARY(op_tanh, tanh(x))
UNARY(op_elu, x > 0 ? x : expm1(x))
UNARY(op_relu, fmax(x, 0.0f))
UNARY(op_sigmoid, sigmoid(x))
UNARY(op_gelu, gelu_(x))
UNARY(op_gelu_quick, x * sigmoid(1.702f * x))
UNARY(op_gelu_erf, gelu_erf_(x))
UNARY(op_silu, x * sigmoid(x))
UNARY(op_hardswish, x * clamp((x + 3.0f) / 6.0f, 0.0f, 1.0f))
UNARY(op_hardsigmoid, clamp((x + 3.0f) / 6.0f, 0.0f, 1.0f))
UNARY(op_exp, exp(x))
UNARY(op_expm1, expm1(x))
UNARY(op_softplus, x > 20.0f ? x : log1p(exp(x)))
UNARY(op_floor, floor(x))
UNARY(op_ceil, ceil(x))
UNARY(op_round, round(x))
UNARY(op_trunc, trunc(x))
UNARY(op_leaky_relu, x > 0 ? x : p * x)

KERNEL xielu(TENSOR(a), TENSOR(dst), const float alpha_n, const float alpha_p, const float beta,
             const float eps) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    const float x = LOAD(T0, AT(a, i));
    const float bent = x > 0 ? alpha_p * x * x : alpha_n * (expm1(fmin(x, eps)) - x);
    STORE(T1, AT(dst, i), bent + beta * x);
}
