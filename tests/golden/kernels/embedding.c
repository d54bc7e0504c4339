/* gather over (d0, 32): store. b0 float32[11, 32], b1 int64[d0], b2 float32[d0, 32]. */
#include <stdint.h>

#if defined(__wasm__)
#define CUVIL_KERNEL
#else
#define CUVIL_KERNEL __attribute__((visibility("hidden")))
#endif
#define CUVIL_INLINE static inline __attribute__((always_inline, unused))
#define CUVIL_LOCAL static __attribute__((noinline))

typedef float f32x8 __attribute__((vector_size(32)));

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

CUVIL_INLINE int64_t cuvil_max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

CUVIL_INLINE int64_t cuvil_min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

CUVIL_INLINE void cuvil_scatter_f32x8(float *p, int64_t step, f32x8 v)
{
    for (int64_t i = 0; i < 8; i++)
        p[i * step] = v[i];
}

CUVIL_INLINE void cuvil_store_f32x8(float *p, f32x8 v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

CUVIL_KERNEL void gather_47da4ec5(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
    void *scratch);

CUVIL_KERNEL void gather_47da4ec5(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
    void *scratch)
{
    const float *const b0 = buffers[0];
    const int64_t *const b1 = buffers[1];
    float *const b2 = buffers[2];
    const int64_t d0 = dims[0];
    (void)scratch;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        for (int64_t i0 = 0; i0 < d0; i0++) {
            const int64_t v0 = b1[i0];
            const int64_t at0 = cuvil_max_i64(cuvil_min_i64(v0, 10), INT64_C(0));
            for (int64_t i1 = 0; i1 < 32; i1 += 8) {
                const f32x8 v1 = cuvil_load_f32x8(b0 + 32 * at0 + i1);
                cuvil_store_f32x8(b2 + 32 * i0 + i1, v1);
            }
        }
    }
}
