/* window over (d0, 6, d1, d2): max over (3, 3); store. b0 float32[d0, 6, d3, d4], b1 float32[d0, 6, d1, d2]. */
#include <stdint.h>

#if defined(__wasm__)
#define CUVIL_KERNEL
#else
#define CUVIL_KERNEL __attribute__((visibility("hidden")))
#endif
#define CUVIL_INLINE static inline __attribute__((always_inline, unused))
#define CUVIL_LOCAL static __attribute__((noinline))

#if defined(__clang__)
#define CUVIL_UNROLL(n) _Pragma(CUVIL_TEXT(clang loop unroll_count(n)))
#define CUVIL_NO_UNROLL _Pragma("clang loop unroll(disable)")
#else
#define CUVIL_UNROLL(n) _Pragma(CUVIL_TEXT(GCC unroll n))
#define CUVIL_NO_UNROLL _Pragma("GCC unroll 1")
#endif
#define CUVIL_TEXT(x) #x

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
typedef int32_t i32x1 __attribute__((vector_size(4)));
typedef int32_t i32x4 __attribute__((vector_size(16)));

CUVIL_INLINE int64_t cuvil_floordiv(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && (a < 0) != (b < 0));
}

CUVIL_INLINE int64_t cuvil_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

CUVIL_INLINE int64_t cuvil_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

CUVIL_INLINE f32x1 cuvil_select_f32x1(i32x1 m, f32x1 a, f32x1 b)
{
    return (f32x1)((m & (i32x1)a) | (~m & (i32x1)b));
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

CUVIL_INLINE f32x4 cuvil_select_f32x4(i32x4 m, f32x4 a, f32x4 b)
{
    return (f32x4)((m & (i32x4)a) | (~m & (i32x4)b));
}

/* The larger; NaN where either is one. */
CUVIL_INLINE f32x4 cuvil_max_f32x4(f32x4 a, f32x4 b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f32x4((i32x4)(a > b) | (i32x4)(a != a), a, b);
#endif
}

CUVIL_INLINE f32x4 cuvil_gather_f32x4(const float *p, int64_t step)
{
    return (f32x4){p[0 * step], p[1 * step], p[2 * step], p[3 * step]};
}

CUVIL_INLINE f32x4 cuvil_load_f32x4(const float *p)
{
    f32x4 v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
}

CUVIL_INLINE float cuvil_max_f32(float x, float y)
{
    f32x1 r = cuvil_max_f32x1((f32x1){x}, (f32x1){y});
    return r[0];
}

CUVIL_INLINE void cuvil_scatter_f32x4(float *p, int64_t step, f32x4 v)
{
    for (int64_t i = 0; i < 4; i++)
        p[i * step] = v[i];
}

CUVIL_INLINE f32x4 cuvil_splat_f32x4(float x)
{
    return (f32x4){x, x, x, x};
}

CUVIL_INLINE void cuvil_store_f32x4(float *p, f32x4 v)
{
    __builtin_memcpy(p, &v, sizeof v);
}

CUVIL_KERNEL void window_57ff3697(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
    void *scratch);

CUVIL_KERNEL void window_57ff3697(void *const *buffers, const int64_t *dims, int64_t begin, int64_t end,
    void *scratch)
{
    const float *const b0 = buffers[0];
    float *const b1 = buffers[1];
    const int64_t d1 = dims[1];
    const int64_t d2 = dims[2];
    const int64_t d3 = dims[3];
    const int64_t d4 = dims[4];
    (void)scratch;
    const int64_t first0 = cuvil_min(d2, 1);
    const int64_t past0 = cuvil_max(first0, cuvil_min((d4 / 2), d2));
    const int64_t even0 = 7 * cuvil_floordiv(-first0 + past0, 7) + first0;
    const int64_t even1 = 3 * cuvil_floordiv(-even0 + past0, 3) + even0;
    for (int64_t chunk = begin; chunk < end; chunk++) {
        const int64_t i2 = (chunk % d1);
        const int64_t i0 = (chunk / d1);
        const int64_t from2 = cuvil_max(-2 * i2 + 1, 0);
        const int64_t to2 = cuvil_max(from2, cuvil_min(d3 - 2 * i2 + 1, 3));
        if ((2 * i2 - 1) >= 0 && (2 * i2 - 1) < d3 && (2 * i2 + 1) >= 0 && (2 * i2 + 1) < d3) {
            for (int64_t i3 = 0; i3 < first0; i3++) {
                const int64_t from0 = cuvil_max(-2 * i3 + 1, 0);
                const int64_t to0 = cuvil_max(from0, cuvil_min(d4 - 2 * i3 + 1, 3));
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum0 = cuvil_splat_f32x4((-__builtin_inff()));
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        for (int64_t j1 = from0; j1 < to0; j1++) {
                            sum0 = cuvil_max_f32x4(sum0, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum0);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum1 = (-__builtin_inff());
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        for (int64_t j1 = from0; j1 < to0; j1++) {
                            sum1 = cuvil_max_f32(sum1, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum1;
                }
            }
            for (int64_t i3 = first0; i3 < even0; i3 += 7) {
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum2 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum3 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum4 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum5 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum6 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum7 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum8 = cuvil_splat_f32x4((-__builtin_inff()));
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum2 = cuvil_max_f32x4(sum2, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                            sum3 = cuvil_max_f32x4(sum3, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 6));
                            sum4 = cuvil_max_f32x4(sum4, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 18));
                            sum5 = cuvil_max_f32x4(sum5, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 30));
                            sum6 = cuvil_max_f32x4(sum6, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 42));
                            sum7 = cuvil_max_f32x4(sum7, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 54));
                            sum8 = cuvil_max_f32x4(sum8, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 66));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum2);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 6, sum3);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 12, sum4);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 18, sum5);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 24, sum6);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 30, sum7);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 36, sum8);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum9 = (-__builtin_inff());
                    float sum10 = (-__builtin_inff());
                    float sum11 = (-__builtin_inff());
                    float sum12 = (-__builtin_inff());
                    float sum13 = (-__builtin_inff());
                    float sum14 = (-__builtin_inff());
                    float sum15 = (-__builtin_inff());
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum9 = cuvil_max_f32(sum9, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                            sum10 = cuvil_max_f32(sum10, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 6]);
                            sum11 = cuvil_max_f32(sum11, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 18]);
                            sum12 = cuvil_max_f32(sum12, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 30]);
                            sum13 = cuvil_max_f32(sum13, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 42]);
                            sum14 = cuvil_max_f32(sum14, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 54]);
                            sum15 = cuvil_max_f32(sum15, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 66]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum9;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 6] = sum10;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 12] = sum11;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 18] = sum12;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 24] = sum13;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 30] = sum14;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 36] = sum15;
                }
            }
            for (int64_t i3 = even0; i3 < even1; i3 += 3) {
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum16 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum17 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum18 = cuvil_splat_f32x4((-__builtin_inff()));
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum16 = cuvil_max_f32x4(sum16, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                            sum17 = cuvil_max_f32x4(sum17, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 6));
                            sum18 = cuvil_max_f32x4(sum18, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 18));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum16);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 6, sum17);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 12, sum18);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum19 = (-__builtin_inff());
                    float sum20 = (-__builtin_inff());
                    float sum21 = (-__builtin_inff());
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum19 = cuvil_max_f32(sum19, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                            sum20 = cuvil_max_f32(sum20, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 6]);
                            sum21 = cuvil_max_f32(sum21, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 18]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum19;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 6] = sum20;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 12] = sum21;
                }
            }
            for (int64_t i3 = even1; i3 < past0; i3++) {
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum22 = cuvil_splat_f32x4((-__builtin_inff()));
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum22 = cuvil_max_f32x4(sum22, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum22);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum23 = (-__builtin_inff());
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum23 = cuvil_max_f32(sum23, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum23;
                }
            }
            for (int64_t i3 = past0; i3 < d2; i3++) {
                const int64_t from1 = cuvil_max(-2 * i3 + 1, 0);
                const int64_t to1 = cuvil_max(from1, cuvil_min(d4 - 2 * i3 + 1, 3));
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum24 = cuvil_splat_f32x4((-__builtin_inff()));
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        for (int64_t j1 = from1; j1 < to1; j1++) {
                            sum24 = cuvil_max_f32x4(sum24, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum24);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum25 = (-__builtin_inff());
                    CUVIL_UNROLL(3)
                    for (int64_t j0 = 0; j0 < 3; j0++) {
                        for (int64_t j1 = from1; j1 < to1; j1++) {
                            sum25 = cuvil_max_f32(sum25, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum25;
                }
            }
        } else {
            for (int64_t i3 = 0; i3 < first0; i3++) {
                const int64_t from3 = cuvil_max(-2 * i3 + 1, 0);
                const int64_t to3 = cuvil_max(from3, cuvil_min(d4 - 2 * i3 + 1, 3));
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum26 = cuvil_splat_f32x4((-__builtin_inff()));
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        for (int64_t j1 = from3; j1 < to3; j1++) {
                            sum26 = cuvil_max_f32x4(sum26, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum26);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum27 = (-__builtin_inff());
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        for (int64_t j1 = from3; j1 < to3; j1++) {
                            sum27 = cuvil_max_f32(sum27, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum27;
                }
            }
            for (int64_t i3 = first0; i3 < even0; i3 += 7) {
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum28 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum29 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum30 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum31 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum32 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum33 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum34 = cuvil_splat_f32x4((-__builtin_inff()));
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum28 = cuvil_max_f32x4(sum28, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                            sum29 = cuvil_max_f32x4(sum29, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 6));
                            sum30 = cuvil_max_f32x4(sum30, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 18));
                            sum31 = cuvil_max_f32x4(sum31, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 30));
                            sum32 = cuvil_max_f32x4(sum32, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 42));
                            sum33 = cuvil_max_f32x4(sum33, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 54));
                            sum34 = cuvil_max_f32x4(sum34, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 66));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum28);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 6, sum29);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 12, sum30);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 18, sum31);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 24, sum32);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 30, sum33);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 36, sum34);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum35 = (-__builtin_inff());
                    float sum36 = (-__builtin_inff());
                    float sum37 = (-__builtin_inff());
                    float sum38 = (-__builtin_inff());
                    float sum39 = (-__builtin_inff());
                    float sum40 = (-__builtin_inff());
                    float sum41 = (-__builtin_inff());
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum35 = cuvil_max_f32(sum35, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                            sum36 = cuvil_max_f32(sum36, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 6]);
                            sum37 = cuvil_max_f32(sum37, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 18]);
                            sum38 = cuvil_max_f32(sum38, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 30]);
                            sum39 = cuvil_max_f32(sum39, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 42]);
                            sum40 = cuvil_max_f32(sum40, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 54]);
                            sum41 = cuvil_max_f32(sum41, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 66]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum35;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 6] = sum36;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 12] = sum37;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 18] = sum38;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 24] = sum39;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 30] = sum40;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 36] = sum41;
                }
            }
            for (int64_t i3 = even0; i3 < even1; i3 += 3) {
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum42 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum43 = cuvil_splat_f32x4((-__builtin_inff()));
                    f32x4 sum44 = cuvil_splat_f32x4((-__builtin_inff()));
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum42 = cuvil_max_f32x4(sum42, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                            sum43 = cuvil_max_f32x4(sum43, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 6));
                            sum44 = cuvil_max_f32x4(sum44, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 18));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum42);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 6, sum43);
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 12, sum44);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum45 = (-__builtin_inff());
                    float sum46 = (-__builtin_inff());
                    float sum47 = (-__builtin_inff());
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum45 = cuvil_max_f32(sum45, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                            sum46 = cuvil_max_f32(sum46, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 6]);
                            sum47 = cuvil_max_f32(sum47, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 + 18]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum45;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 6] = sum46;
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3 + 12] = sum47;
                }
            }
            for (int64_t i3 = even1; i3 < past0; i3++) {
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum48 = cuvil_splat_f32x4((-__builtin_inff()));
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum48 = cuvil_max_f32x4(sum48, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum48);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum49 = (-__builtin_inff());
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        CUVIL_UNROLL(3)
                        for (int64_t j1 = 0; j1 < 3; j1++) {
                            sum49 = cuvil_max_f32(sum49, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum49;
                }
            }
            for (int64_t i3 = past0; i3 < d2; i3++) {
                const int64_t from4 = cuvil_max(-2 * i3 + 1, 0);
                const int64_t to4 = cuvil_max(from4, cuvil_min(d4 - 2 * i3 + 1, 3));
                for (int64_t i1 = 0; i1 < 4; i1 += 4) {
                    f32x4 sum50 = cuvil_splat_f32x4((-__builtin_inff()));
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        for (int64_t j1 = from4; j1 < to4; j1++) {
                            sum50 = cuvil_max_f32x4(sum50, cuvil_load_f32x4(b0 + 6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6));
                        }
                    }
                    cuvil_store_f32x4(b1 + 6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3, sum50);
                }
                for (int64_t i1 = 4; i1 < 6; i1++) {
                    float sum51 = (-__builtin_inff());
                    for (int64_t j0 = from2; j0 < to2; j0++) {
                        for (int64_t j1 = from4; j1 < to4; j1++) {
                            sum51 = cuvil_max_f32(sum51, b0[6 * d3 * d4 * i0 - 6 * d4 + 12 * d4 * i2 + 6 * d4 * j0 + i1 + 12 * i3 + 6 * j1 - 6]);
                        }
                    }
                    b1[6 * d1 * d2 * i0 + 6 * d2 * i2 + i1 + 6 * i3] = sum51;
                }
            }
        }
    }
}
