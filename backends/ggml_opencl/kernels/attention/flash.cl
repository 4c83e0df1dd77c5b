// Attention without a score matrix: online softmax (arXiv 2205.14135), long caches in parts.
//
// ROWS query rows that share a head of keys are a group's: row i of a head of keys is head i % G of
// its G query heads and token i / G. Keys come WG at a time. An item scores one of them for all
// rows; then it makes some of each row's values.

#define GROUPS_OF(n) (((n) + 31) / 32)
#define WIDE (32 * GROUPS_OF(DK)) // a query, with zeros behind it
#define OWN ((DV + WG - 1) / WG)  // values of a row that one item makes
#define AT_ONCE 8                 // cells whose values are read at once
#define TEAM (WG / ROWS < 8 ? WG / ROWS : 8) // items that look for the largest score of a row

typedef struct {
    uint token, head;
    bool is_there;
} place_t;

static inline place_t place_of(uint i, uint kv_head, uint shared_by, uint n_token) {
    place_t p;
    p.token = i / shared_by, p.head = kv_head * shared_by + i % shared_by;
    p.is_there = p.token < n_token;
    return p;
}

// What a row's values are to be multiplied by in the end, with a sink among its scores.
static inline float weight_of_sum(float top, float sum, const global uchar *sink) {
    float shrink = 1;
#if SINKS
    const float s = load_f32(sink), higher = fmax(top, s);
    shrink = exp(top - higher);
    sum = sum * shrink + exp(s - higher);
#endif
    return sum == 0 ? 0.0f : shrink / sum;
}

// Scores of key j for all rows, its bias added; a bias of -INFINITY hides it.
static inline void score(const global uchar *key, const local float *query, const float *bias,
                         float softcap, float *scores) {
    float x[32];
    for (uint r = 0; r < ROWS; r++) scores[r] = 0;
    for (uint g = 0; g < GROUPS_OF(DK); g++) {
        GROUP(T1, key, g, DK, x);
        #pragma unroll
        for (uint r = 0; r < ROWS; r++) {
            const local float *y = query + r * WIDE + 32 * g;
            float sum = 0;
            #pragma unroll
            for (uint d = 0; d < 32; d++) sum += x[d] * y[d];
            scores[r] += sum;
        }
    }
    #pragma unroll
    for (uint r = 0; r < ROWS; r++) {
        const float s = softcap > 0 ? softcap * tanh(scores[r] / softcap) : scores[r];
        scores[r] = bias[r] == -INFINITY ? -INFINITY : s + bias[r];
    }
}

// Value d of up to AT_ONCE cells, `stride` bytes apart, times what all rows' scores have come to.
static inline void add_values(const global uchar *cell, long stride, uint d, uint n,
                              const local float *weights, float *sums) {
    float x[AT_ONCE];
    #pragma unroll
    for (uint c = 0; c < AT_ONCE; c++) { // all are asked for before the first is there
        x[c] = ELEMENT(T2, cell + stride * min(c, n - 1), d);
    }
    #pragma unroll
    for (uint c = 0; c < AT_ONCE; c++) { // those behind n have no weights
        if (isfinite(x[c])) {
            #pragma unroll
            for (uint r = 0; r < ROWS; r++) sums[r] += weights[c * ROWS + r] * x[c];
        } else { // counts only where it is seen
            for (uint r = 0; r < ROWS; r++) {
                const float w = weights[c * ROWS + r];
                sums[r] += w == 0 ? 0.0f : w * x[c];
            }
        }
    }
}

// Group (part of the keys and block of rows, head of keys, sequence). A part has `length` keys.
KERNEL flash_attn_ext(TENSOR(q), TENSOR(k), TENSOR(v), TENSOR(mask), TENSOR(sinks), TENSOR(dst),
                      TENSOR(parts), const float scale, const float max_bias, const float softcap,
                      const int power, const int n_part, const int length) {
    local float query[ROWS * WIDE], p[WG * ROWS], tops[TEAM * ROWS], shrinks[ROWS];
    local int seen;
    const uint item = get_local_id(0), part = get_group_id(0) % n_part;
    const uint first = get_group_id(0) / n_part * ROWS;
    const uint kv_head = get_group_id(1), seq = get_group_id(2), mine = item % ROWS;
    const uint shared_by = q_.ne[2] / k_.ne[2], n_token = q_.ne[1];
    EACH(i, ROWS * WIDE) {
        const place_t row = place_of(first + i / WIDE, kv_head, shared_by, n_token);
        const uint4 x = (uint4)(i % WIDE, row.token, row.head, seq);
        query[i] = row.is_there && x.x < DK ? scale * LOAD(T0, AT(q, x)) : 0.0f;
    }
    float own[OWN * ROWS], top = -INFINITY, sum = 0; // top and sum: of row `mine`
    for (uint i = 0; i < OWN * ROWS; i++) own[i] = 0;
    const uint from = part * length, end = min(from + length, (uint)k_.ne[1]);
    for (uint start = from; start < end; start += WG) {
        const uint j = start + item, n = min((uint)WG, end - start);
        float bias[ROWS], scores[ROWS];
        bool is_seen = false;
        #pragma unroll
        for (uint r = 0; r < ROWS; r++) {
            const place_t row = place_of(first + r, kv_head, shared_by, n_token);
            bias[r] = item < n && row.is_there ? 0.0f : -INFINITY;
#if MASK
            if (bias[r] == 0) {
                const uint4 m = (uint4)(j, row.token, row.head % mask_.ne[2], seq % mask_.ne[3]);
                bias[r] = slope_of(row.head, max_bias, power) * load_f16(AT(mask, m));
            }
#endif
            is_seen |= bias[r] != -INFINITY;
            scores[r] = -INFINITY;
        }
        if (item == 0) seen = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (is_seen) seen = 1;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (seen) {
            if (is_seen) {
                score(AT(k, ((uint4)(0, j, kv_head, seq))), query, bias, softcap, scores);
            }
            for (uint r = 0; r < ROWS; r++) p[item * ROWS + r] = scores[r];
            barrier(CLK_LOCAL_MEM_FENCE);
            if (item < TEAM * ROWS) {
                float high = -INFINITY;
                for (uint c = item / ROWS; c < WG; c += TEAM) high = fmax(high, p[c * ROWS + mine]);
                tops[item] = high;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            float higher = top;
            for (uint i = 0; i < TEAM; i++) higher = fmax(higher, tops[i * ROWS + mine]);
            const float base = higher == -INFINITY ? 0.0f : higher; // nothing seen so far
            const float shrink = exp(top - base);
            sum *= shrink, top = higher;
            if (item < ROWS) shrinks[item] = shrink;
            EACH(i, WG * ROWS) {
                const float e = exp(p[i] - base);
                p[i] = e, sum += e;
            }
            barrier(CLK_LOCAL_MEM_FENCE);
            #pragma unroll
            for (uint i = 0; i < OWN * ROWS; i++) own[i] *= shrinks[i % ROWS];
            #pragma unroll
            for (uint o = 0; o < OWN; o++) {
                const uint d = item + WG * o;
                for (uint c = 0; c < n && d < DV; c += AT_ONCE) {
                    const global uchar *value = AT(v, ((uint4)(0, start + c, kv_head, seq)));
                    add_values(value, v_.nb[1], d, n - c, p + c * ROWS, own + o * ROWS);
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    p[item] = sum, shrinks[mine] = top; // the same from all that have the row
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint r = 0; r < ROWS; r++) {
        const place_t row = place_of(first + r, kv_head, shared_by, n_token);
        float whole = 0;
        for (uint i = r; i < WG; i += ROWS) whole += p[i];
        if (!row.is_there) continue;
#if PARTS
        const uint i = row.token + n_token * (row.head + q_.ne[2] * seq);
        global float *to = (global float *)AT(parts, ((uint4)(0, part, i, 0)));
        if (item == 0) to[DV] = shrinks[r], to[DV + 1] = whole;
        for (uint o = 0, d = item; d < DV; o++, d += WG) to[d] = own[o * ROWS + r];
#else
        const global uchar *sink = AT(sinks, ((uint4)(row.head, 0, 0, 0)));
        const float w = weight_of_sum(shrinks[r], whole, sink);
        for (uint o = 0, d = item; d < DV; o++, d += WG) {
            const float x = own[o * ROWS + r];
            store_f32(AT(dst, ((uint4)(d, row.head, row.token, seq))), w == 0 ? 0.0f : x * w);
        }
#endif
    }
}

// Group (token, head, sequence): its parts, each with its values, its top and its sum.
KERNEL flash_merge(TENSOR(parts), TENSOR(sinks), TENSOR(dst)) {
    const uint token = get_group_id(0), head = get_group_id(1), seq = get_group_id(2);
    const uint row = token + dst_.ne[2] * (head + dst_.ne[1] * seq);
    const global float *x = (const global float *)AT(parts, ((uint4)(0, 0, row, 0)));
    float top = -INFINITY, sum = 0;
    for (uint i = 0; i < parts_.ne[1]; i++) top = fmax(top, x[i * (DV + 2) + DV]);
    const float base = top == -INFINITY ? 0.0f : top;
    for (uint i = 0; i < parts_.ne[1]; i++) {
        sum += x[i * (DV + 2) + DV + 1] * exp(x[i * (DV + 2) + DV] - base);
    }
    const float w = weight_of_sum(top, sum, AT(sinks, ((uint4)(head, 0, 0, 0))));
    EACH(d, DV) {
        float whole = 0;
        for (uint i = 0; i < parts_.ne[1]; i++) {
            const float e = exp(x[i * (DV + 2) + DV] - base);
            if (e != 0) whole += e * x[i * (DV + 2) + d];
        }
        store_f32(AT(dst, ((uint4)(d, head, token, seq))), w == 0 ? 0.0f : whole * w);
    }
}
