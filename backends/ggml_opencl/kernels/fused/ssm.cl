// SSM_CONV and what follows: sx [d_conv - 1 + T, C, B], c [d_conv, C], bias [C] -> [C, T, B].

#define CONVOLVED(name, bias_of_i, parameters) \
    KERNEL name parameters { \
        if (get_global_id(0) >= count(&dst_)) return; \
        const uint4 i = unflatten(&dst_, get_global_id(0)); \
        float sum = 0; \
        for (uint j = 0; j < c_.ne[0]; j++) { \
            const float w = load_f32(AT(c, ((uint4)(j, i.x, 0, 0)))); \
            sum += w * load_f32(AT(sx, ((uint4)(i.y + j, i.x, i.z, 0)))); \
        } \
        sum += bias_of_i; \
        store_f32(AT(dst, i), sum * (1.0f / (1.0f + exp(-sum)))); \
    }

CONVOLVED(ssm_conv_silu, 0.0f, (TENSOR(sx), TENSOR(c), TENSOR(dst)))
CONVOLVED(ssm_conv_bias_silu, load_f32(AT(bias, ((uint4)(i.x, 0, 0, 0)))),
          (TENSOR(sx), TENSOR(c), TENSOR(bias), TENSOR(dst)))
