/* map over (d0, 5, d1, 7): store. b0 float32[d0, 5, d1, 7], b1 float32[5], b2 float32[5], b3 float32[d0, 5, d1, 7]. */
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
typedef float f32x8 __attribute__((vector_size(32)));
typedef int32_t i32x1 __attribute__((vector_size(4)));
typedef int32_t i32x8 __attribute__((vector_size(32)));

CUVIL_INLINE f32x1 cuvil_select_f32x1(i32x1 m, f32x1 a, f32x1 b)
{
    return (f32x1)((m & (i32x1)a) | (~m & (i32x1)b));
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

CUVIL_INLINE f32x8 cuvil_select_f32x8(i32x8 m, f32x8 a, f32x8 b)
{
    return (f32x8)((m & (i32x8)a) | (~m & (i32x8)b));
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

CUVIL_INLINE float cuvil_max_number_f32(float x, float y)
{
    f32x1 r = cuvil_max_number_f32x1((f32x1){x}, (f32x1){y});
    return r[0];
}

CUVIL_INLINE void cuvil_scatter_f32x8(float *p, int64_t step, f32x8 v)
{
    for (int64_t i = 0; i < 8; i++)
        p[i * step] = v[i];
}

CUVIL_INLINE f32x8 cuvil_splat_f32x8(float x)
{
    return (f32x8){x, x, x, x, x, x, x, x};
}

CUVIL_INLINE void cuvil_store_f32x8(float *p, f32x8 v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

CUVIL_KERNEL void map_94c77206(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
    void *scratch);

CUVIL_KERNEL void map_94c77206(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
    void *scratch)
{
    const float *const b0 = buffers[0];
    const float *const b1 = buffers[1];
    const float *const b2 = buffers[2];
    float *const b3 = buffers[3];
    const int64_t d1 = dims[1];
    (void)scratch;
    const int64_t main0 = 8 * ((7 * d1) / 8);
    for (int64_t i0 = begin; i0 < end; i0++) {
        for (int64_t i1 = 0; i1 < 5; i1++) {
            const float v0 = b1[i1];
            const float v1 = b2[i1];
            for (int64_t i3 = 0; i3 < main0; i3 += 8) {
                const f32x8 v2 = cuvil_max_number_f32x8(((cuvil_load_f32x8(b0 + 35 * d1 * i0 + 7 * d1 * i1 + i3) * cuvil_splat_f32x8(v0)) + cuvil_splat_f32x8(v1)), cuvil_splat_f32x8(0.0f));
                cuvil_store_f32x8(b3 + 35 * d1 * i0 + 7 * d1 * i1 + i3, v2);
            }
            for (int64_t i3 = main0; i3 < (7 * d1); i3++) {
                const float v3 = cuvil_max_number_f32(((b0[35 * d1 * i0 + 7 * d1 * i1 + i3] * v0) + v1), 0.0f);
                b3[35 * d1 * i0 + 7 * d1 * i1 + i3] = v3;
            }
        }
    }
}
