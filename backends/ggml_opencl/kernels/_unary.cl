// Functions of single elements x and of two numbers.

#define UNARY_FUNCTIONS(F) \
    F(sqr, x * x) \
    F(sqrt, sqrt(x)) \
    F(log, log(x)) \
    F(sin, sin(x)) \
    F(cos, cos(x)) \
    F(abs, fabs(x)) \
    F(sgn, (float)((x > 0) - (x < 0))) \
    F(neg, -x) \
    F(step, (float)(x > 0)) \
    F(tanh, tanh(x)) \
    F(elu, x > 0 ? x : expm1(x)) \
    F(relu, fmax(x, 0.0f)) \
    F(sigmoid, sigmoid(x)) \
    F(gelu, gelu_(x)) \
    F(gelu_quick, x * sigmoid(1.702f * x)) \
    F(gelu_erf, gelu_erf_(x)) \
    F(silu, x * sigmoid(x)) \
    F(hardswish, x * clamp((x + 3.0f) / 6.0f, 0.0f, 1.0f)) \
    F(hardsigmoid, clamp((x + 3.0f) / 6.0f, 0.0f, 1.0f)) \
    F(exp, exp(x)) \
    F(expm1, expm1(x)) \
    F(softplus, x > 20.0f ? x : log1p(exp(x))) \
    F(floor, floor(x)) \
    F(ceil, ceil(x)) \
    F(round, round(x)) \
    F(trunc, trunc(x)) \
    F(leaky_relu, x > 0 ? x : p * x) \
    F(scale, x * p + q) \
    F(clamp, fmin(fmax(x, p), q))

#define FUNCTION(name, expression) \
    static inline float f_##name(float x, float p, float q) { return expression; }

UNARY_FUNCTIONS(FUNCTION)
