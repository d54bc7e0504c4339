/* reduce over (d0): max over (33); store over (33); sum over (33); store over (33). b0 float32[d0, 33], b1 float32[d0, 33]. */
#include <stdint.h>

#if defined(__wasm__)
#define CUVIL_KERNEL
#else
#define CUVIL_KERNEL __attribute__((visibility("hidden")))
#endif
#define CUVIL_INLINE static inline __attribute__((always_inline, unused))
#define CUVIL_LOCAL static __attribute__((noinline))

/* Whether the larger and the smaller number, or NaN where there is one, are one instruction. */
#define CUVIL_EXTREMES 0
#if defined(__clang__) && (defined(__aarch64__) || defined(__wasm_simd128__))
#if __has_builtin(__builtin_elementwise_maximum)
#undef CUVIL_EXTREMES
#define CUVIL_EXTREMES 1
#endif
#endif

typedef float f32x1 __attribute__((vector_size(4)));
typedef float f32x4 __attribute__((vector_size(16)));
typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x1 __attribute__((vector_size(4)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x1 __attribute__((vector_size(4)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));

CUVIL_INLINE f32x1 cuvil_select_f32x1(i32x1 m, f32x1 a, f32x1 b)
{
    return (f32x1)((m & (i32x1)a) | (~m & (i32x1)b));
}

CUVIL_INLINE f32x1 cuvil_min_number_f32x1(f32x1 a, f32x1 b)
{
#if CUVIL_EXTREMES && !defined(__wasm__)
    return __builtin_elementwise_minimum(a, b);
#else
    return cuvil_select_f32x1((i32x1)(b < a), b, a);
#endif
}

/* The same where b is no NaN: one instruction on most machines. Of WebAssembly's two kinds engines have to mend the
   one that gives any NaN of the two, with six instructions; the select below is the other one. */
CUVIL_INLINE f32x1 cuvil_max_number_f32x1(f32x1 a, f32x1 b)
{
#if CUVIL_EXTREMES && !defined(__wasm__)
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f32x1((i32x1)(b > a), b, a);
#endif
}

/* 2^n * p; two factors, so that results may be infinite or subnormal. n within -252..254. */
CUVIL_INLINE f32x1 cuvil_scale_f32x1(f32x1 p, i32x1 n)
{
    i32x1 half = n >> 1;
    f32x1 one = (f32x1)((u32x1)(half + 127) << 23);
    f32x1 two = (f32x1)((u32x1)(n - half + 127) << 23);
    return p * one * two;
}

/* 1 ULP. Cody and Waite's reduction by ln 2 in two parts, then a polynomial on [-ln 2 / 2, ln 2 / 2]. The
 * rounding shift leaves the integer in the low bits, so no conversion can overflow. What is too small for any
 * number becomes zero before it is scaled: x86 CPUs take over a hundred cycles for a product that underflows, and
 * masked scores of attention are such arguments. */
CUVIL_INLINE f32x1 cuvil_exp_f32x1(f32x1 x)
{
    i32x1 gone = (i32x1)(x < -103.98f);
    x = cuvil_min_number_f32x1(x, (f32x1){0} + 89.0f);
    x = cuvil_max_number_f32x1(x, (f32x1){0} - 105.0f);
    f32x1 shifted = x * 1.44269504f + 12582912.0f;
    f32x1 n = shifted - 12582912.0f;
    f32x1 r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    f32x1 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    p = (f32x1)((i32x1)p & ~gone);
    return cuvil_scale_f32x1(p, (i32x1)((u32x1)shifted - 0x4b400000u));
}

CUVIL_INLINE f32x8 cuvil_select_f32x8(i32x8 m, f32x8 a, f32x8 b)
{
    return (f32x8)((m & (i32x8)a) | (~m & (i32x8)b));
}

CUVIL_INLINE f32x8 cuvil_min_number_f32x8(f32x8 a, f32x8 b)
{
#if CUVIL_EXTREMES && !defined(__wasm__)
    return __builtin_elementwise_minimum(a, b);
#else
    return cuvil_select_f32x8((i32x8)(b < a), b, a);
#endif
}

/* The same where b is no NaN: one instruction on most machines. Of WebAssembly's two kinds engines have to mend the
   one that gives any NaN of the two, with six instructions; the select below is the other one. */
CUVIL_INLINE f32x8 cuvil_max_number_f32x8(f32x8 a, f32x8 b)
{
#if CUVIL_EXTREMES && !defined(__wasm__)
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f32x8((i32x8)(b > a), b, a);
#endif
}

/* 2^n * p; two factors, so that results may be infinite or subnormal. n within -252..254. */
CUVIL_INLINE f32x8 cuvil_scale_f32x8(f32x8 p, i32x8 n)
{
    i32x8 half = n >> 1;
    f32x8 one = (f32x8)((u32x8)(half + 127) << 23);
    f32x8 two = (f32x8)((u32x8)(n - half + 127) << 23);
    return p * one * two;
}

/* 1 ULP. Cody and Waite's reduction by ln 2 in two parts, then a polynomial on [-ln 2 / 2, ln 2 / 2]. The
 * rounding shift leaves the integer in the low bits, so no conversion can overflow. What is too small for any
 * number becomes zero before it is scaled: x86 CPUs take over a hundred cycles for a product that underflows, and
 * masked scores of attention are such arguments. */
CUVIL_INLINE f32x8 cuvil_exp_f32x8(f32x8 x)
{
    i32x8 gone = (i32x8)(x < -103.98f);
    x = cuvil_min_number_f32x8(x, (f32x8){0} + 89.0f);
    x = cuvil_max_number_f32x8(x, (f32x8){0} - 105.0f);
    f32x8 shifted = x * 1.44269504f + 12582912.0f;
    f32x8 n = shifted - 12582912.0f;
    f32x8 r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    f32x8 p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    p = (f32x8)((i32x8)p & ~gone);
    return cuvil_scale_f32x8(p, (i32x8)((u32x8)shifted - 0x4b400000u));
}

/* The larger; NaN where either is one. */
CUVIL_INLINE f32x1 cuvil_max_f32x1(f32x1 a, f32x1 b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f32x1((i32x1)(a > b) | (i32x1)(a != a), a, b);
#endif
}

/* The larger; NaN where either is one. */
CUVIL_INLINE f32x8 cuvil_max_f32x8(f32x8 a, f32x8 b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f32x8((i32x8)(a > b) | (i32x8)(a != a), a, b);
#endif
}

CUVIL_INLINE float cuvil_exp_f32(float x)
{
    f32x1 r = cuvil_exp_f32x1((f32x1){x});
    return r[0];
}

CUVIL_INLINE f32x8 cuvil_gather_f32x8(const float *p, int64_t step)
{
    return (f32x8){p[0 * step], p[1 * step], p[2 * step], p[3 * step], p[4 * step], p[5 * step], p[6 * step], p[7 * step]};
}

CUVIL_INLINE f32x8 cuvil_load_f32x8(const float *p)
{
    f32x8 v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

CUVIL_INLINE float cuvil_max_f32(float x, float y)
{
    f32x1 r = cuvil_max_f32x1((f32x1){x}, (f32x1){y});
    return r[0];
}

CUVIL_INLINE float cuvil_max_lanes_f32x4(f32x4 v)
{
    const float s0_0 = cuvil_max_f32(v[0], v[2]);
    const float s0_1 = cuvil_max_f32(v[1], v[3]);
    const float s1_0 = cuvil_max_f32(s0_0, s0_1);
    return s1_0;
}

CUVIL_INLINE float cuvil_max_lanes_f32x8(f32x8 v)
{
    const float s0_0 = cuvil_max_f32(v[0], v[4]);
    const float s0_1 = cuvil_max_f32(v[1], v[5]);
    const float s0_2 = cuvil_max_f32(v[2], v[6]);
    const float s0_3 = cuvil_max_f32(v[3], v[7]);
    const float s1_0 = cuvil_max_f32(s0_0, s0_2);
    const float s1_1 = cuvil_max_f32(s0_1, s0_3);
    const float s2_0 = cuvil_max_f32(s1_0, s1_1);
    return s2_0;
}

CUVIL_INLINE void cuvil_scatter_f32x8(float *p, int64_t step, f32x8 v)
{
    for (int64_t i = 0; i < 8; i++)
        p[i * step] = v[i];
}

CUVIL_INLINE f32x4 cuvil_splat_f32x4(float x)
{
    return (f32x4){x, x, x, x};
}

CUVIL_INLINE f32x8 cuvil_splat_f32x8(float x)
{
    return (f32x8){x, x, x, x, x, x, x, x};
}

CUVIL_INLINE void cuvil_store_f32x8(float *p, f32x8 v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

CUVIL_INLINE float cuvil_sum_lanes_f32x4(f32x4 v)
{
    const float s0_0 = (v[0] + v[2]);
    const float s0_1 = (v[1] + v[3]);
    const float s1_0 = (s0_0 + s0_1);
    return s1_0;
}

CUVIL_INLINE float cuvil_sum_lanes_f32x8(f32x8 v)
{
    const float s0_0 = (v[0] + v[4]);
    const float s0_1 = (v[1] + v[5]);
    const float s0_2 = (v[2] + v[6]);
    const float s0_3 = (v[3] + v[7]);
    const float s1_0 = (s0_0 + s0_2);
    const float s1_1 = (s0_1 + s0_3);
    const float s2_0 = (s1_0 + s1_1);
    return s2_0;
}

CUVIL_KERNEL void reduce_08aac5c6(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
    void *scratch);

CUVIL_KERNEL void reduce_08aac5c6(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
    void *scratch)
{
    const float *const b0 = buffers[0];
    float *const b1 = buffers[1];
    const int64_t d0 = dims[0];
    (void)scratch;
    float t1[33] __attribute__((aligned(64)));
    for (int64_t chunk = begin; chunk < end; chunk++) {
        for (int64_t i0 = 0; i0 < d0; i0++) {
            f32x8 sum0 = cuvil_splat_f32x8((-__builtin_inff()));
            float rest0 = (-__builtin_inff());
            f32x4 narrow0 = cuvil_splat_f32x4((-__builtin_inff()));
            for (int64_t j0 = 0; j0 < 32; j0 += 8) {
                sum0 = cuvil_max_f32x8(sum0, cuvil_load_f32x8(b0 + 33 * i0 + j0));
            }
            for (int64_t j0 = 32; j0 < 33; j0++) {
                rest0 = cuvil_max_f32(rest0, b0[33 * i0 + j0]);
            }
            const float t0_0 = cuvil_max_f32(cuvil_max_f32(cuvil_max_lanes_f32x8(sum0), cuvil_max_lanes_f32x4(narrow0)), rest0);
            f32x8 sum1 = cuvil_splat_f32x8(0.0f);
            float rest1 = 0.0f;
            f32x4 narrow1 = cuvil_splat_f32x4(0.0f);
            for (int64_t j0 = 0; j0 < 32; j0 += 8) {
                const f32x8 v0 = cuvil_exp_f32x8((cuvil_load_f32x8(b0 + 33 * i0 + j0) - cuvil_splat_f32x8(t0_0)));
                cuvil_store_f32x8(t1 + j0, v0);
                sum1 = (sum1 + v0);
            }
            for (int64_t j0 = 32; j0 < 33; j0++) {
                const float v1 = cuvil_exp_f32((b0[33 * i0 + j0] - t0_0));
                t1[j0] = v1;
                rest1 = (rest1 + v1);
            }
            const float t2_0 = ((cuvil_sum_lanes_f32x8(sum1) + cuvil_sum_lanes_f32x4(narrow1)) + rest1);
            for (int64_t j0 = 0; j0 < 32; j0 += 8) {
                const f32x8 v2 = (cuvil_load_f32x8(t1 + j0) / cuvil_splat_f32x8(t2_0));
                cuvil_store_f32x8(b1 + 33 * i0 + j0, v2);
            }
            for (int64_t j0 = 32; j0 < 33; j0++) {
                const float v3 = (t1[j0] / t2_0);
                b1[33 * i0 + j0] = v3;
            }
        }
    }
}
