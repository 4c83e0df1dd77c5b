// Scale and minimum of group k of 8: six bits each, in the twelve bytes s.
static inline uint2 k_scales(uint3 s, uint k) {
    const uint by = k % 4 * 8;
    const uint2 low = (uint2)(s.x, s.y) >> by;
    if (k < 4) return low & 63;
    return (uint2)(s.z, s.z >> 4) >> by & 15 | (low >> 6 & 3) << 4;
}
