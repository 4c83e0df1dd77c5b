// Scores of keys. An item has one key, of D values, and one token.

// q [D, H, T, B], k [D, 1, n, B], weights [H, T, 1, B], mask [n, T, 1, ..] -> [n, T, 1, B]
KERNEL lightning_indexer(TENSOR(q), TENSOR(k), TENSOR(weights), TENSOR(mask), TENSOR(dst)) {
    if (get_global_id(0) >= count(&dst_)) return;
    const uint4 i = unflatten(&dst_, get_global_id(0));
    float key[(D + 31) / 32 * 32];
    for (uint g = 0; 32 * g < D; g++) {
        GROUP(T1, AT(k, ((uint4)(0, 0, i.x, i.w))), g, D, key + 32 * g);
    }
    float score = LOAD(T3, AT(mask, repeated(&mask_, i)));
    for (uint h = 0; h < q_.ne[1]; h++) {
        const global uchar *row = AT(q, ((uint4)(0, h, i.y, i.w)));
        float sum = 0;
        for (uint j = 0; j < D; j++) sum += key[j] * load_f32(row + j * q_.nb[0]);
        score += load_f32(AT(weights, ((uint4)(h, i.y, 0, i.w)))) * fmax(sum, 0.0f);
    }
    store_f32(AT(dst, i), score);
}
