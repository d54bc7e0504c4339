/* Mathematical functions over vectors, for kernels. Not a header to include: the printer takes the sections
 * that a kernel needs, once for each number of lanes, with every "xN" replaced by "x8", "x4", ..., "x1".
 *
 * A section starts with a line of '@', its name and the names of the sections that it calls. Vectors are
 * gcc and clang vectors (f32xN, i32xN, u32xN, ...); comparisons of them give masks of 0 and -1. Nothing
 * calls a library and nothing depends on rounding modes other than to nearest. Largest errors in units in
 * the last place (ULP), with or without fused multiply-add, are stated where they are not 0.5.
 */

@ select_f32
CUVIL_INLINE f32xN cuvil_select_f32xN(i32xN m, f32xN a, f32xN b)
{
    return (f32xN)((m & (i32xN)a) | (~m & (i32xN)b));
}

@ select_f64
CUVIL_INLINE f64xN cuvil_select_f64xN(i64xN m, f64xN a, f64xN b)
{
    return (f64xN)((m & (i64xN)a) | (~m & (i64xN)b));
}

@ abs_f32
CUVIL_INLINE f32xN cuvil_abs_f32xN(f32xN x)
{
    return (f32xN)((u32xN)x & 0x7fffffffu);
}

@ abs_f64
CUVIL_INLINE f64xN cuvil_abs_f64xN(f64xN x)
{
    return (f64xN)((u64xN)x & 0x7fffffffffffffffu);
}

@ copysign_f32
CUVIL_INLINE f32xN cuvil_copysign_f32xN(f32xN x, f32xN s)
{
    return (f32xN)(((u32xN)x & 0x7fffffffu) | ((u32xN)s & 0x80000000u));
}

@ copysign_f64
CUVIL_INLINE f64xN cuvil_copysign_f64xN(f64xN x, f64xN s)
{
    return (f64xN)(((u64xN)x & 0x7fffffffffffffffu) | ((u64xN)s & 0x8000000000000000u));
}

/* The larger; NaN where either is one. */
@ max_f32 select_f32
CUVIL_INLINE f32xN cuvil_max_f32xN(f32xN a, f32xN b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f32xN((i32xN)(a > b) | (i32xN)(a != a), a, b);
#endif
}

@ max_f64 select_f64
CUVIL_INLINE f64xN cuvil_max_f64xN(f64xN a, f64xN b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f64xN((i64xN)(a > b) | (i64xN)(a != a), a, b);
#endif
}

@ min_f32 select_f32
CUVIL_INLINE f32xN cuvil_min_f32xN(f32xN a, f32xN b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_minimum(a, b);
#else
    return cuvil_select_f32xN((i32xN)(a < b) | (i32xN)(a != a), a, b);
#endif
}

@ min_f64 select_f64
CUVIL_INLINE f64xN cuvil_min_f64xN(f64xN a, f64xN b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_minimum(a, b);
#else
    return cuvil_select_f64xN((i64xN)(a < b) | (i64xN)(a != a), a, b);
#endif
}

/* The same where b is no NaN: one instruction on most machines. */
@ max_number_f32 select_f32
CUVIL_INLINE f32xN cuvil_max_number_f32xN(f32xN a, f32xN b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f32xN((i32xN)(b > a), b, a);
#endif
}

@ max_number_f64 select_f64
CUVIL_INLINE f64xN cuvil_max_number_f64xN(f64xN a, f64xN b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f64xN((i64xN)(b > a), b, a);
#endif
}

@ min_number_f32 select_f32
CUVIL_INLINE f32xN cuvil_min_number_f32xN(f32xN a, f32xN b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_minimum(a, b);
#else
    return cuvil_select_f32xN((i32xN)(b < a), b, a);
#endif
}

@ min_number_f64 select_f64
CUVIL_INLINE f64xN cuvil_min_number_f64xN(f64xN a, f64xN b)
{
#if CUVIL_EXTREMES
    return __builtin_elementwise_minimum(a, b);
#else
    return cuvil_select_f64xN((i64xN)(b < a), b, a);
#endif
}

@ sign_f32 select_f32
CUVIL_INLINE f32xN cuvil_sign_f32xN(f32xN x)
{
    f32xN one = (f32xN)(((u32xN)x & 0x80000000u) | 0x3f800000u);
    return cuvil_select_f32xN((i32xN)(x < 0.0f) | (i32xN)(x > 0.0f), one, x);
}

@ sign_f64 select_f64
CUVIL_INLINE f64xN cuvil_sign_f64xN(f64xN x)
{
    f64xN one = (f64xN)(((u64xN)x & 0x8000000000000000u) | 0x3ff0000000000000u);
    return cuvil_select_f64xN((i64xN)(x < 0.0) | (i64xN)(x > 0.0), one, x);
}

@ sqrt_f32
CUVIL_INLINE f32xN cuvil_sqrt_f32xN(f32xN x)
{
#if defined(__clang__)
    return __builtin_elementwise_sqrt(x);
#else
    for (unsigned i = 0; i < sizeof x / 4; i++)
        x[i] = __builtin_sqrtf(x[i]);
    return x;
#endif
}

@ sqrt_f64
CUVIL_INLINE f64xN cuvil_sqrt_f64xN(f64xN x)
{
#if defined(__clang__)
    return __builtin_elementwise_sqrt(x);
#else
    for (unsigned i = 0; i < sizeof x / 8; i++)
        x[i] = __builtin_sqrt(x[i]);
    return x;
#endif
}

/* To the nearest integer, halves to even; keeps the sign of zero. Adding 2^23 leaves no fraction bits. */
@ rint_f32 select_f32 abs_f32 copysign_f32
CUVIL_INLINE f32xN cuvil_rint_f32xN(f32xN x)
{
#if CUVIL_ROUNDS
    return __builtin_elementwise_roundeven(x);
#else
    f32xN a = cuvil_abs_f32xN(x);
    f32xN r = (a + 8388608.0f) - 8388608.0f;
    return cuvil_select_f32xN((i32xN)(a < 8388608.0f), cuvil_copysign_f32xN(r, x), x);
#endif
}

@ rint_f64 select_f64 abs_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_rint_f64xN(f64xN x)
{
#if CUVIL_ROUNDS
    return __builtin_elementwise_roundeven(x);
#else
    f64xN a = cuvil_abs_f64xN(x);
    f64xN r = (a + 4503599627370496.0) - 4503599627370496.0;
    return cuvil_select_f64xN((i64xN)(a < 4503599627370496.0), cuvil_copysign_f64xN(r, x), x);
#endif
}

@ floor_f32 rint_f32 select_f32 copysign_f32
CUVIL_INLINE f32xN cuvil_floor_f32xN(f32xN x)
{
#if CUVIL_ROUNDS
    return __builtin_elementwise_floor(x);
#else
    f32xN r = cuvil_rint_f32xN(x);
    return cuvil_select_f32xN((i32xN)(r > x), r - 1.0f, r);
#endif
}

@ floor_f64 rint_f64 select_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_floor_f64xN(f64xN x)
{
#if CUVIL_ROUNDS
    return __builtin_elementwise_floor(x);
#else
    f64xN r = cuvil_rint_f64xN(x);
    return cuvil_select_f64xN((i64xN)(r > x), r - 1.0, r);
#endif
}

@ ceil_f32 rint_f32 select_f32 copysign_f32
CUVIL_INLINE f32xN cuvil_ceil_f32xN(f32xN x)
{
#if CUVIL_ROUNDS
    return __builtin_elementwise_ceil(x);
#else
    f32xN r = cuvil_rint_f32xN(x);
    return cuvil_copysign_f32xN(cuvil_select_f32xN((i32xN)(r < x), r + 1.0f, r), x);
#endif
}

@ ceil_f64 rint_f64 select_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_ceil_f64xN(f64xN x)
{
#if CUVIL_ROUNDS
    return __builtin_elementwise_ceil(x);
#else
    f64xN r = cuvil_rint_f64xN(x);
    return cuvil_copysign_f64xN(cuvil_select_f64xN((i64xN)(r < x), r + 1.0, r), x);
#endif
}

@ trunc_f32 floor_f32 abs_f32 copysign_f32
CUVIL_INLINE f32xN cuvil_trunc_f32xN(f32xN x)
{
    return cuvil_copysign_f32xN(cuvil_floor_f32xN(cuvil_abs_f32xN(x)), x);
}

@ trunc_f64 floor_f64 abs_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_trunc_f64xN(f64xN x)
{
    return cuvil_copysign_f64xN(cuvil_floor_f64xN(cuvil_abs_f64xN(x)), x);
}

/* Halves away from zero. */
@ round_f32 trunc_f32 abs_f32 copysign_f32 select_f32
CUVIL_INLINE f32xN cuvil_round_f32xN(f32xN x)
{
    f32xN t = cuvil_trunc_f32xN(x);
    f32xN far = cuvil_copysign_f32xN(cuvil_abs_f32xN(t) + 1.0f, x);
    return cuvil_select_f32xN((i32xN)(cuvil_abs_f32xN(x - t) >= 0.5f), far, t);
}

@ round_f64 trunc_f64 abs_f64 copysign_f64 select_f64
CUVIL_INLINE f64xN cuvil_round_f64xN(f64xN x)
{
    f64xN t = cuvil_trunc_f64xN(x);
    f64xN far = cuvil_copysign_f64xN(cuvil_abs_f64xN(t) + 1.0, x);
    return cuvil_select_f64xN((i64xN)(cuvil_abs_f64xN(x - t) >= 0.5), far, t);
}

/* 2^n * p; two factors, so that results may be infinite or subnormal. n within -252..254. */
@ scale_f32
CUVIL_INLINE f32xN cuvil_scale_f32xN(f32xN p, i32xN n)
{
    i32xN half = n >> 1;
    f32xN one = (f32xN)((u32xN)(half + 127) << 23);
    f32xN two = (f32xN)((u32xN)(n - half + 127) << 23);
    return p * one * two;
}

@ scale_f64
CUVIL_INLINE f64xN cuvil_scale_f64xN(f64xN p, i64xN n)
{
    i64xN half = n >> 1;
    f64xN one = (f64xN)((u64xN)(half + 1023) << 52);
    f64xN two = (f64xN)((u64xN)(n - half + 1023) << 52);
    return p * one * two;
}

/* 1 ULP. Cody and Waite's reduction by ln 2 in two parts, then a polynomial on [-ln 2 / 2, ln 2 / 2]. The
 * rounding shift leaves the integer in the low bits, so no conversion can overflow. */
@ exp_f32 min_number_f32 max_number_f32 scale_f32
CUVIL_INLINE f32xN cuvil_exp_f32xN(f32xN x)
{
    x = cuvil_min_number_f32xN(x, (f32xN){0} + 89.0f);
    x = cuvil_max_number_f32xN(x, (f32xN){0} - 105.0f);
    f32xN shifted = x * 1.44269504f + 12582912.0f;
    f32xN n = shifted - 12582912.0f;
    f32xN r = x - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    f32xN p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    return cuvil_scale_f32xN(p, (i32xN)((u32xN)shifted - 0x4b400000u));
}

/* 1 ULP. */
@ exp_f64 min_number_f64 max_number_f64 scale_f64
CUVIL_INLINE f64xN cuvil_exp_f64xN(f64xN x)
{
    x = cuvil_min_number_f64xN(x, (f64xN){0} + 710.0);
    x = cuvil_max_number_f64xN(x, (f64xN){0} - 750.0);
    f64xN shifted = x * 1.4426950408889634074 + 6755399441055744.0;
    f64xN n = shifted - 6755399441055744.0;
    f64xN r = x - n * 6.93145751953125e-1;
    r = r - n * 1.42860682030941723212e-6;
    f64xN p = r * 1.6059043836821613e-10 + 2.0876756987868099e-9;
    p = p * r + 2.5052108385441719e-8;
    p = p * r + 2.7557319223985891e-7;
    p = p * r + 2.7557319223985893e-6;
    p = p * r + 2.4801587301587302e-5;
    p = p * r + 1.9841269841269841e-4;
    p = p * r + 1.3888888888888889e-3;
    p = p * r + 8.3333333333333333e-3;
    p = p * r + 4.1666666666666667e-2;
    p = p * r + 1.6666666666666667e-1;
    p = p * r + 0.5;
    p = p * (r * r) + r + 1.0;
    return cuvil_scale_f64xN(p, (i64xN)((u64xN)shifted - 0x4338000000000000u));
}

/* 1 ULP. x = 2^e * m with m in [sqrt(1/2), sqrt(2)); zero, infinity and NaN are put right at the end. */
@ log_f32 select_f32
CUVIL_INLINE f32xN cuvil_log_f32xN(f32xN x)
{
    i32xN tiny = (i32xN)(x < 1.17549435e-38f);
    f32xN y = cuvil_select_f32xN(tiny, x * 8388608.0f, x);
    u32xN bits = (u32xN)y + (0x3f800000u - 0x3f3504f3u);
    f32xN e = __builtin_convertvector((i32xN)(bits >> 23) - 127 + (tiny & -23), f32xN);
    f32xN m = (f32xN)((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    f32xN z = m * m;
    f32xN p = m * 7.0376836292e-2f - 1.1514610310e-1f;
    p = p * m + 1.1676998740e-1f;
    p = p * m - 1.2420140846e-1f;
    p = p * m + 1.4249322787e-1f;
    p = p * m - 1.6668057665e-1f;
    p = p * m + 2.0000714765e-1f;
    p = p * m - 2.4999993993e-1f;
    p = p * m + 3.3333331174e-1f;
    f32xN r = p * m * z;
    r = r - e * 2.12194440e-4f;
    r = r - z * 0.5f;
    r = m + r;
    r = r + e * 0.693359375f;
    r = cuvil_select_f32xN((i32xN)(x < 0.0f) | (i32xN)(x != x), (f32xN)((u32xN)x | 0x7fc00000u), r);
    r = cuvil_select_f32xN((i32xN)(x == 0.0f), (f32xN)((u32xN){0} + 0xff800000u), r);
    return cuvil_select_f32xN((i32xN)((u32xN)x == 0x7f800000u), x, r);
}

/* 1 ULP. The method of fdlibm's e_log.c: s = f / (2 + f), then a polynomial in s * s. */
@ log_f64 select_f64
CUVIL_INLINE f64xN cuvil_log_f64xN(f64xN x)
{
    i64xN tiny = (i64xN)(x < 2.2250738585072014e-308);
    f64xN y = cuvil_select_f64xN(tiny, x * 18014398509481984.0, x);
    u64xN bits = (u64xN)y + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
    f64xN e = __builtin_convertvector((i64xN)(bits >> 52) - 1023 + (tiny & -54), f64xN);
    f64xN f = (f64xN)((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0;
    f64xN half = 0.5 * f * f;
    f64xN s = f / (2.0 + f);
    f64xN z = s * s;
    f64xN w = z * z;
    f64xN t1 = w * (w * (w * 1.531383769920937332e-01 + 2.222219843214978396e-01) + 3.999999999940941908e-01);
    f64xN t2 = w * 1.479819860511658591e-01 + 1.818357216161805012e-01;
    t2 = z * (w * (w * t2 + 2.857142874366239149e-01) + 6.666666666666735130e-01);
    f64xN r = s * (half + t1 + t2) + e * 1.90821492927058770002e-10;
    r = r - half + f + e * 6.93147180369123816490e-01;
    r = cuvil_select_f64xN((i64xN)(x < 0.0) | (i64xN)(x != x), (f64xN)((u64xN)x | 0x7ff8000000000000u), r);
    r = cuvil_select_f64xN((i64xN)(x == 0.0), (f64xN)((u64xN){0} + 0xfff0000000000000u), r);
    return cuvil_select_f64xN((i64xN)((u64xN)x == 0x7ff0000000000000u), x, r);
}

/* 3 ULP. */
@ sigmoid_f32 exp_f32 select_f32
CUVIL_INLINE f32xN cuvil_sigmoid_f32xN(f32xN x)
{
    f32xN e = cuvil_exp_f32xN((f32xN)((u32xN)x | 0x80000000u));
    f32xN r = 1.0f / (1.0f + e);
    return cuvil_select_f32xN((i32xN)(x < 0.0f), e * r, r);
}

@ sigmoid_f64 exp_f64 select_f64
CUVIL_INLINE f64xN cuvil_sigmoid_f64xN(f64xN x)
{
    f64xN e = cuvil_exp_f64xN((f64xN)((u64xN)x | 0x8000000000000000u));
    f64xN r = 1.0 / (1.0 + e);
    return cuvil_select_f64xN((i64xN)(x < 0.0), e * r, r);
}

/* 2 ULP. */
@ tanh_f32 exp_f32 select_f32 abs_f32 copysign_f32
CUVIL_INLINE f32xN cuvil_tanh_f32xN(f32xN x)
{
    f32xN a = cuvil_abs_f32xN(x);
    f32xN far = 1.0f - 2.0f / (cuvil_exp_f32xN(a + a) + 1.0f);
    f32xN z = x * x;
    f32xN p = z * -5.70498872745e-3f + 2.06390887954e-2f;
    p = p * z - 5.37397155531e-2f;
    p = p * z + 1.33314422036e-1f;
    p = p * z - 3.33332819422e-1f;
    p = p * z * x + x;
    return cuvil_copysign_f32xN(cuvil_select_f32xN((i32xN)(a < 0.625f), p, far), x);
}

/* 2 ULP. Cephes' rational function below 0.625. */
@ tanh_f64 exp_f64 select_f64 abs_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_tanh_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    f64xN far = 1.0 - 2.0 / (cuvil_exp_f64xN(a + a) + 1.0);
    f64xN z = x * x;
    f64xN p = (z * -9.64399179425052238628e-1 - 9.92877231001918586564e1) * z - 1.61468768441708447952e3;
    f64xN q = ((z + 1.12811678491632931402e2) * z + 2.23548839060100448583e3) * z + 4.84406305325125486048e3;
    p = x + x * z * (p / q);
    return cuvil_copysign_f64xN(cuvil_select_f64xN((i64xN)(a < 0.625), p, far), x);
}

/* 2 ULP. Two polynomials: for small arguments odd, for large ones in the exponent of 1 - exp. */
@ erf_f32 exp_f32 select_f32 abs_f32 copysign_f32
CUVIL_INLINE f32xN cuvil_erf_f32xN(f32xN x)
{
    f32xN a = cuvil_abs_f32xN(x);
    f32xN s = x * x;
    f32xN r = a * -1.72853470e-5f + 3.83197126e-4f;
    f32xN u = a * -3.88396438e-3f + 2.42546219e-2f;
    r = r * s + u;
    r = r * a - 1.06777877e-1f;
    r = r * a - 6.34846687e-1f;
    r = r * a - 1.28717512e-1f;
    r = r * a - a;
    f32xN far = cuvil_copysign_f32xN(1.0f - cuvil_exp_f32xN(r), x);
    f32xN p = s * -5.96761703e-4f + 4.99119423e-3f;
    p = p * s - 2.67681349e-2f;
    p = p * s + 1.12819925e-1f;
    p = p * s - 3.76125336e-1f;
    p = p * s + 1.28379166e-1f;
    p = p * x + x;
    return cuvil_select_f32xN((i32xN)(a > 0.927734375f), far, p);
}

/* 1 ULP. The rational functions of fdlibm's s_erf.c. */
@ erf_f64 exp_f64 select_f64 abs_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_erf_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    f64xN z = x * x;
    f64xN p = z * -2.37630166566501626084e-05 - 5.77027029648944159157e-03;
    p = (p * z - 2.84817495755985104766e-02) * z - 3.25042107247001499370e-01;
    p = p * z + 1.28379167095512558561e-01;
    f64xN q = z * -3.96022827877536812320e-06 + 1.32494738004321644526e-04;
    q = (q * z + 5.08130628187576562776e-03) * z + 6.50222499887672944485e-02;
    q = (q * z + 3.97917223959155352819e-01) * z + 1.0;
    f64xN near = x + x * (p / q);

    f64xN t = a - 1.0;
    p = t * -2.16637559486879084300e-03 + 3.54783043256182359371e-02;
    p = (p * t - 1.10894694282396677476e-01) * t + 3.18346619901161753674e-01;
    p = (p * t - 3.72207876035701323847e-01) * t + 4.14856118683748331666e-01;
    p = p * t - 2.36211856075265944077e-03;
    q = t * 1.19844998467991074170e-02 + 1.36370839120290507362e-02;
    q = (q * t + 1.26171219808761642112e-01) * t + 7.18286544141962662868e-02;
    q = (q * t + 5.40397917702171048937e-01) * t + 1.06420880400844228286e-01;
    q = q * t + 1.0;
    f64xN middle = 8.45062911510467529297e-01 + p / q;

    f64xN s = 1.0 / z;
    f64xN early = s * -9.81432934416914548592e+00 - 8.12874355063065934246e+01;
    early = (early * s - 1.84605092906711035994e+02) * s - 1.62396669462573470355e+02;
    early = (early * s - 6.23753324503260060396e+01) * s - 1.05586262253232909814e+01;
    early = (early * s - 6.93858572707181764372e-01) * s - 9.86494403484714822705e-03;
    f64xN below = s * -6.04244152148580987438e-02 + 6.57024977031928170135e+00;
    below = (below * s + 1.08635005541779435134e+02) * s + 4.29008140027567833386e+02;
    below = (below * s + 6.45387271733267880336e+02) * s + 4.34565877475229228821e+02;
    below = (below * s + 1.37657754143519042600e+02) * s + 1.96512716674392571292e+01;
    early = early / (below * s + 1.0);
    f64xN late = s * -4.83519191608651397019e+02 - 1.02509513161107724954e+03;
    late = (late * s - 6.37566443368389627722e+02) * s - 1.60636384855821916062e+02;
    late = (late * s - 1.77579549177547519889e+01) * s - 7.99283237680523006574e-01;
    late = late * s - 9.86494292470009928597e-03;
    below = s * -2.24409524465858183362e+01 + 4.74528541206955367215e+02;
    below = (below * s + 2.55305040643316442583e+03) * s + 3.19985821950859553908e+03;
    below = (below * s + 1.53672958608443695994e+03) * s + 3.25792512996573918826e+02;
    below = (below * s + 3.03380607434824582924e+01) * s + 1.0;
    late = late / below;
    f64xN tail = cuvil_select_f64xN((i64xN)(a < 2.857142857142857), early, late);
    f64xN far = 1.0 - cuvil_exp_f64xN(-z - 0.5625 + tail) / a;

    far = cuvil_select_f64xN((i64xN)(a < 1.25), middle, far);
    far = cuvil_select_f64xN((i64xN)(a > 6.0), (f64xN){0} + 1.0, far);
    return cuvil_select_f64xN((i64xN)(a < 0.84375), near, cuvil_copysign_f64xN(far, x));
}

/* x = n * pi/2 + the result, |result| <= pi/4, for finite x. Below 2^26 pi/2 in two parts is exact enough;
 * above, the product with 2/pi is taken in 96 bits at the place that x's exponent says. */
@ reduce_f32 rint_f64
CUVIL_INLINE f64xN cuvil_reduce_f32xN(f32xN x, i64xN *quadrant)
{
    static const uint32_t inverse[24] = {
        0x000000a2, 0x0000a2f9, 0x00a2f983, 0xa2f9836e, 0xf9836e4e, 0x836e4e44, 0x6e4e4415, 0x4e441529,
        0x441529fc, 0x1529fc27, 0x29fc2757, 0xfc2757d1, 0x2757d1f5, 0x57d1f534, 0xd1f534dd, 0xf534ddc0,
        0x34ddc0db, 0xddc0db62, 0xc0db6295, 0xdb629599, 0x6295993c, 0x95993c43, 0x993c4390, 0x3c439041,
    };
    f64xN wide = __builtin_convertvector(x, f64xN);
    u32xN bits = (u32xN)x;
    f64xN shifted = wide * 6.36619772367581382433e-01 + 6755399441055744.0;
    f64xN n = shifted - 6755399441055744.0;
    f64xN r = wide - n * 1.57079631090164184570e+00 - n * 1.58932547735281966916e-08;
    i64xN quarter = (i64xN)((u64xN)shifted - 0x4338000000000000u);
    for (unsigned i = 0; i < sizeof x / 4; i++) {
        uint32_t own = bits[i];
        if ((own & 0x7fffffffu) < 0x4c800000u)
            continue;
        const uint32_t *window = inverse + ((own >> 26) & 15);
        uint64_t m = (uint64_t)(((own & 0xffffffu) | 0x800000u) << ((own >> 23) & 7));
        uint64_t product = ((m * window[8]) >> 32) | (((m * window[0]) & 0xffffffffu) << 32);
        product += m * window[4];
        uint64_t turns = (product + ((uint64_t)1 << 61)) >> 62;
        double rest = (double)(int64_t)(product - (turns << 62)) * 3.4061215800304646e-19;
        int negative = own >> 31;
        r[i] = negative ? -rest : rest;
        quarter[i] = negative ? -(int64_t)turns : (int64_t)turns;
    }
    *quadrant = quarter;
    return r;
}

/* Sine for an even quadrant and cosine for an odd one, with the quadrant's sign. */
@ sin_quadrant_f32 reduce_f32 select_f64
CUVIL_INLINE f32xN cuvil_sin_quadrant_f32xN(f32xN x, int shift)
{
    i64xN n;
    f64xN r = cuvil_reduce_f32xN(x, &n);
    n += shift;
    f64xN z = r * r;
    f64xN s = z * 2.718311493989822e-06 - 1.9839334836096632e-04;
    s = (s * z + 8.333329385889463e-03) * z - 1.6666666641626524e-01;
    s = r + r * z * s;
    f64xN c = z * 2.439044879627741e-05 - 1.388676377460993e-03;
    c = (c * z + 4.16666233237390631894e-02) * z - 4.99999997251031003120e-01;
    c = 1.0 + z * c;
    f64xN y = cuvil_select_f64xN((i64xN)((n & 1) == 0), s, c);
    y = (f64xN)((u64xN)y ^ ((u64xN)(n & 2) << 62));
    f32xN narrow = __builtin_convertvector(y, f32xN);
    u32xN infinite = (u32xN)(((u32xN)x & 0x7f800000u) == 0x7f800000u);
    return (f32xN)((u32xN)narrow | (infinite & 0x7fc00000u));
}

/* 1 ULP. */
@ sin_f32 sin_quadrant_f32 select_f32
CUVIL_INLINE f32xN cuvil_sin_f32xN(f32xN x)
{
    return cuvil_select_f32xN((i32xN)(x == 0.0f), x, cuvil_sin_quadrant_f32xN(x, 0));
}

/* 1 ULP. */
@ cos_f32 sin_quadrant_f32
CUVIL_INLINE f32xN cuvil_cos_f32xN(f32xN x)
{
    return cuvil_sin_quadrant_f32xN(x, 1);
}

/* 2 ULP. */
@ tan_f32 sin_f32 cos_f32
CUVIL_INLINE f32xN cuvil_tan_f32xN(f32xN x)
{
    return cuvil_sin_f32xN(x) / cuvil_cos_f32xN(x);
}

/* 3 ULP. Cephes' ranges and polynomial. */
@ atan_f32 select_f32 abs_f32 copysign_f32
CUVIL_INLINE f32xN cuvil_atan_f32xN(f32xN x)
{
    f32xN a = cuvil_abs_f32xN(x);
    i32xN large = (i32xN)(a > 2.414213562373095f);
    i32xN medium = (i32xN)(a > 0.4142135623730950f) & ~large;
    f32xN one = (f32xN){0} + 1.0f;
    f32xN top = cuvil_select_f32xN(large, -one, cuvil_select_f32xN(medium, a - 1.0f, a));
    f32xN bottom = cuvil_select_f32xN(large, a, cuvil_select_f32xN(medium, a + 1.0f, one));
    f32xN base = (f32xN)((large & 0x3fc90fdb) | (medium & 0x3f490fdb));
    f32xN t = top / bottom;
    f32xN z = t * t;
    f32xN p = z * 8.05374449538e-2f - 1.38776856032e-1f;
    p = p * z + 1.99777106478e-1f;
    p = p * z - 3.33329491539e-1f;
    return cuvil_copysign_f32xN(base + (p * z * t + t), x);
}

/* 3 ULP. Cephes' polynomial; above 0.5 by asin(x) = pi/2 - 2 asin(sqrt((1 - x) / 2)). */
@ asin_f32 sqrt_f32 select_f32 abs_f32 copysign_f32
CUVIL_INLINE f32xN cuvil_asin_f32xN(f32xN x)
{
    f32xN a = cuvil_abs_f32xN(x);
    i32xN large = (i32xN)(a > 0.5f);
    f32xN z = cuvil_select_f32xN(large, 0.5f * (1.0f - a), a * a);
    f32xN t = cuvil_select_f32xN(large, cuvil_sqrt_f32xN(z), a);
    f32xN p = z * 4.2163199048e-2f + 2.4181311049e-2f;
    p = p * z + 4.5470025998e-2f;
    p = p * z + 7.4953002686e-2f;
    p = p * z + 1.6666752422e-1f;
    p = p * z * t + t;
    return cuvil_copysign_f32xN(cuvil_select_f32xN(large, 1.57079637f - (p + p), p), x);
}

/* 3 ULP. */
@ acos_f32 asin_f32 sqrt_f32 select_f32 abs_f32
CUVIL_INLINE f32xN cuvil_acos_f32xN(f32xN x)
{
    f32xN half = cuvil_asin_f32xN(cuvil_sqrt_f32xN(0.5f * (1.0f - cuvil_abs_f32xN(x))));
    f32xN far = cuvil_select_f32xN((i32xN)(x < 0.0f), 3.14159274f - (half + half), half + half);
    f32xN near = 1.57079637f - cuvil_asin_f32xN(x);
    return cuvil_select_f32xN((i32xN)(cuvil_abs_f32xN(x) > 0.5f), far, near);
}

/* 1 ULP: exp(y log |x|) in double, then the signs and limits of C's pow. */
@ pow_f32 exp_f64 log_f64 floor_f32 select_f32 abs_f32
CUVIL_INLINE f32xN cuvil_pow_f32xN(f32xN x, f32xN y)
{
    f64xN size = cuvil_log_f64xN(__builtin_convertvector(cuvil_abs_f32xN(x), f64xN));
    f64xN power = cuvil_exp_f64xN(__builtin_convertvector(y, f64xN) * size);
    f32xN r = __builtin_convertvector(power, f32xN);
    f32xN half = 0.5f * y;
    i32xN whole = (i32xN)(cuvil_floor_f32xN(y) == y);
    i32xN odd = whole & (i32xN)(cuvil_floor_f32xN(half) != half);
    u32xN sign = (u32xN)odd & ((u32xN)x & 0x80000000u);
    r = (f32xN)((u32xN)r | sign);
    i32xN finite = (i32xN)(cuvil_abs_f32xN(x) != __builtin_inff());
    i32xN undefined = (i32xN)(x < 0.0f) & ~whole & finite;
    r = (f32xN)((u32xN)r | ((u32xN)undefined & 0x7fc00000u));
    i32xN endless = (i32xN)(cuvil_abs_f32xN(y) == __builtin_inff());
    i32xN one = (i32xN)(y == 0.0f) | (i32xN)(x == 1.0f) | ((i32xN)(x == -1.0f) & endless);
    return cuvil_select_f32xN(one, (f32xN){0} + 1.0f, r);
}

/* Exact remainders of truncated division, one lane after the other. */
@ fmod_f32
CUVIL_INLINE f32xN cuvil_fmod_f32xN(f32xN x, f32xN y)
{
    for (unsigned i = 0; i < sizeof x / 4; i++) {
        double a = x[i] < 0.0f ? -(double)x[i] : (double)x[i];
        double b = y[i] < 0.0f ? -(double)y[i] : (double)y[i];
        if (!(b > 0.0) || !(a < (double)__builtin_inff())) {
            x[i] = __builtin_nanf("");
            continue;
        }
        double limit = b;
        while (limit <= a * 0.5)
            limit += limit;
        for (double d = limit; d >= b && a >= b; d *= 0.5)
            a = a >= d ? a - d : a;
        x[i] = x[i] < 0.0f ? (float)-a : (float)a;
    }
    return x;
}

@ fmod_f64
CUVIL_INLINE f64xN cuvil_fmod_f64xN(f64xN x, f64xN y)
{
    for (unsigned i = 0; i < sizeof x / 8; i++) {
        double a = x[i] < 0.0 ? -x[i] : x[i];
        double b = y[i] < 0.0 ? -y[i] : y[i];
        if (!(b > 0.0) || !(a < __builtin_inf())) {
            x[i] = __builtin_nan("");
            continue;
        }
        double limit = b;
        while (limit <= a * 0.5)
            limit += limit;
        for (double d = limit; d >= b && a >= b; d *= 0.5)
            a = a >= d ? a - d : a;
        x[i] = x[i] < 0.0 ? -a : a;
    }
    return x;
}

/* Remainders with the sign of the divisor. */
@ mod_f32 fmod_f32 select_f32
CUVIL_INLINE f32xN cuvil_mod_f32xN(f32xN x, f32xN y)
{
    f32xN r = cuvil_fmod_f32xN(x, y);
    i32xN differ = (i32xN)((i32xN)(r < 0.0f) != (i32xN)(y < 0.0f)) & (i32xN)(r != 0.0f);
    return cuvil_select_f32xN(differ, r + y, r);
}

@ mod_f64 fmod_f64 select_f64
CUVIL_INLINE f64xN cuvil_mod_f64xN(f64xN x, f64xN y)
{
    f64xN r = cuvil_fmod_f64xN(x, y);
    i64xN differ = (i64xN)((i64xN)(r < 0.0) != (i64xN)(y < 0.0)) & (i64xN)(r != 0.0);
    return cuvil_select_f64xN(differ, r + y, r);
}

/* Conversions to integers: toward zero, what does not fit becomes the nearest that does, NaN becomes 0. */
@ f32_to_i32 min_number_f32 max_number_f32
CUVIL_INLINE i32xN cuvil_f32_to_i32xN(f32xN x)
{
    x = (f32xN)((u32xN)x & (u32xN)(x == x));
    x = cuvil_max_number_f32xN(cuvil_min_number_f32xN(x, (f32xN){0} + 2147483520.0f), (f32xN){0} - 2147483648.0f);
    return __builtin_convertvector(x, i32xN);
}

@ f32_to_i64 min_number_f32 max_number_f32
CUVIL_INLINE i64xN cuvil_f32_to_i64xN(f32xN x)
{
    x = (f32xN)((u32xN)x & (u32xN)(x == x));
    x = cuvil_min_number_f32xN(x, (f32xN){0} + 9223371487098961920.0f);
    x = cuvil_max_number_f32xN(x, (f32xN){0} - 9223372036854775808.0f);
    return __builtin_convertvector(x, i64xN);
}

@ f64_to_i32 min_number_f64 max_number_f64
CUVIL_INLINE i32xN cuvil_f64_to_i32xN(f64xN x)
{
    x = (f64xN)((u64xN)x & (u64xN)(x == x));
    x = cuvil_max_number_f64xN(cuvil_min_number_f64xN(x, (f64xN){0} + 2147483647.0), (f64xN){0} - 2147483648.0);
    return __builtin_convertvector(x, i32xN);
}

@ f64_to_i64 min_number_f64 max_number_f64
CUVIL_INLINE i64xN cuvil_f64_to_i64xN(f64xN x)
{
    x = (f64xN)((u64xN)x & (u64xN)(x == x));
    x = cuvil_min_number_f64xN(x, (f64xN){0} + 9223372036854774784.0);
    x = cuvil_max_number_f64xN(x, (f64xN){0} - 9223372036854775808.0);
    return __builtin_convertvector(x, i64xN);
}

@ f64_to_u32 f64_to_i64
CUVIL_INLINE u32xN cuvil_f64_to_u32xN(f64xN x)
{
    return __builtin_convertvector(cuvil_f64_to_i64xN(x), u32xN);
}

@ f32_to_u32 f32_to_i64
CUVIL_INLINE u32xN cuvil_f32_to_u32xN(f32xN x)
{
    return __builtin_convertvector(cuvil_f32_to_i64xN(x), u32xN);
}

/* From 2^63 on by the difference to it; negative numbers wrap around. */
@ f64_to_u64 f64_to_i64 select_f64 min_number_f64
CUVIL_INLINE u64xN cuvil_f64_to_u64xN(f64xN x)
{
    i64xN large = (i64xN)(x >= 9223372036854775808.0);
    x = cuvil_min_number_f64xN(x, (f64xN){0} + 18446744073709549568.0);
    i64xN r = cuvil_f64_to_i64xN(cuvil_select_f64xN(large, x - 9223372036854775808.0, x));
    return (u64xN)r ^ ((u64xN)large & 0x8000000000000000u);
}

@ f32_to_u64 f64_to_u64
CUVIL_INLINE u64xN cuvil_f32_to_u64xN(f32xN x)
{
    return cuvil_f64_to_u64xN(__builtin_convertvector(x, f64xN));
}

/* Dtypes that are only stored. Rounding is to nearest, halves to even; where a dtype has no infinity, what is
 * too large becomes NaN (float4e2m1: its largest number). Instructions where every machine of the kind has
 * them, else the integer forms of M. Dukhan's FP16 library: scaling by powers of two lets the hardware round. */
@ float16_to_f32
CUVIL_INLINE f32xN cuvil_float16_to_f32xN(u16xN x)
{
#if defined(__clang__) && (defined(__F16C__) || defined(__aarch64__))
    typedef _Float16 halves __attribute__((vector_size(sizeof(u16xN))));
    return __builtin_convertvector((halves)x, f32xN);
#else
    u32xN w = __builtin_convertvector(x, u32xN) << 16;
    u32xN sign = w & 0x80000000u;
    u32xN two = w + w;
    f32xN normal = (f32xN)((two >> 4) + 0x70000000u) * 0x1p-112f;
    f32xN small = (f32xN)((two >> 17) | 0x3f000000u) - 0.5f;
    u32xN is_small = (u32xN)(two < 0x08000000u);
    return (f32xN)(sign | (is_small & (u32xN)small) | (~is_small & (u32xN)normal));
#endif
}

@ f32_to_float16 abs_f32
CUVIL_INLINE u16xN cuvil_f32_to_float16xN(f32xN x)
{
#if defined(__clang__) && (defined(__F16C__) || defined(__aarch64__))
    typedef _Float16 halves __attribute__((vector_size(sizeof(u16xN))));
    return (u16xN)__builtin_convertvector(x, halves);
#else
    u32xN w = (u32xN)x;
    u32xN two = w + w;
    u32xN bias = two & 0xff000000u;
    u32xN is_low = (u32xN)(bias < 0x71000000u);
    bias = (is_low & 0x71000000u) | (~is_low & bias);
    f32xN base = cuvil_abs_f32xN(x) * 0x1p+112f * 0x1p-110f;
    u32xN bits = (u32xN)((f32xN)((bias >> 1) + 0x07800000u) + base);
    u32xN half = ((bits >> 13) & 0x7c00u) + (bits & 0x0fffu);
    u32xN is_nan = (u32xN)(two > 0xff000000u);
    half = (is_nan & 0x7e00u) | (~is_nan & half);
    return __builtin_convertvector((w >> 16 & 0x8000u) | half, u16xN);
#endif
}

@ bfloat16_to_f32
CUVIL_INLINE f32xN cuvil_bfloat16_to_f32xN(u16xN x)
{
    return (f32xN)(__builtin_convertvector(x, u32xN) << 16);
}

@ f32_to_bfloat16
CUVIL_INLINE u16xN cuvil_f32_to_bfloat16xN(f32xN x)
{
    u32xN w = (u32xN)x;
    u32xN is_nan = (u32xN)((w & 0x7fffffffu) > 0x7f800000u);
    u32xN rounded = w + 0x7fffu + (w >> 16 & 1u);
    rounded = (is_nan & ((w & 0x80000000u) | 0x7fc00000u)) | (~is_nan & rounded);
    return __builtin_convertvector(rounded >> 16, u16xN);
}

/* The magnitude of a small float with `m` bits of fraction, as its exponent and fraction say. */
@ small_to_f32
CUVIL_INLINE f32xN cuvil_small_to_f32xN(u32xN magnitude, int m, int bias)
{
    f32xN smallest = (f32xN)((u32xN){0} + ((uint32_t)(128 - bias - m) << 23));
    f32xN small = __builtin_convertvector((i32xN)magnitude, f32xN) * smallest;
    u32xN normal = (magnitude << (23 - m)) + ((uint32_t)(127 - bias) << 23);
    u32xN is_small = (u32xN)(magnitude < (1u << m));
    return (f32xN)((is_small & (u32xN)small) | (~is_small & normal));
}

/* Exponent and fraction of a magnitude; larger than the dtype's own where it does not fit. Adding a number
 * whose last place is the dtype's smallest one rounds subnormal numbers. */
@ f32_to_small
CUVIL_INLINE u32xN cuvil_f32_to_smallxN(u32xN magnitude, int m, int bias)
{
    u32xN normal = magnitude + ((1u << (22 - m)) - 1u) + (magnitude >> (23 - m) & 1u);
    normal = (normal >> (23 - m)) - ((uint32_t)(127 - bias) << m);
    u32xN shift = (u32xN){0} + ((uint32_t)(151 - bias - m) << 23);
    u32xN small = (u32xN)((f32xN)magnitude + (f32xN)shift) - shift;
    u32xN is_small = (u32xN)(magnitude < ((uint32_t)(128 - bias) << 23));
    return (is_small & small) | (~is_small & normal);
}

@ float8e4m3fn_to_f32 small_to_f32
CUVIL_INLINE f32xN cuvil_float8e4m3fn_to_f32xN(u8xN x)
{
    u32xN w = __builtin_convertvector(x, u32xN);
    u32xN is_nan = (u32xN)((w & 0x7fu) == 0x7fu);
    u32xN value = (u32xN)cuvil_small_to_f32xN(w & 0x7fu, 3, 7);
    return (f32xN)((w & 0x80u) << 24 | (is_nan & 0x7fc00000u) | (~is_nan & value));
}

@ f32_to_float8e4m3fn f32_to_small
CUVIL_INLINE u8xN cuvil_f32_to_float8e4m3fnxN(f32xN x)
{
    u32xN w = (u32xN)x;
    u32xN code = cuvil_f32_to_smallxN(w & 0x7fffffffu, 3, 7);
    u32xN is_nan = (u32xN)(code > 0x7eu);
    return __builtin_convertvector((w >> 24 & 0x80u) | (is_nan & 0x7fu) | (~is_nan & code), u8xN);
}

@ float8e4m3fnuz_to_f32 small_to_f32
CUVIL_INLINE f32xN cuvil_float8e4m3fnuz_to_f32xN(u8xN x)
{
    u32xN w = __builtin_convertvector(x, u32xN);
    u32xN is_nan = (u32xN)(w == 0x80u);
    u32xN value = (u32xN)cuvil_small_to_f32xN(w & 0x7fu, 3, 8);
    return (f32xN)((is_nan & 0x7fc00000u) | (~is_nan & ((w & 0x80u) << 24 | value)));
}

@ f32_to_float8e4m3fnuz f32_to_small
CUVIL_INLINE u8xN cuvil_f32_to_float8e4m3fnuzxN(f32xN x)
{
    u32xN w = (u32xN)x;
    u32xN code = cuvil_f32_to_smallxN(w & 0x7fffffffu, 3, 8);
    u32xN is_nan = (u32xN)(code > 0x7fu);
    code |= w >> 24 & 0x80u & (u32xN)(code != 0u);
    return __builtin_convertvector((is_nan & 0x80u) | (~is_nan & code), u8xN);
}

@ float8e5m2_to_f32 small_to_f32
CUVIL_INLINE f32xN cuvil_float8e5m2_to_f32xN(u8xN x)
{
    u32xN w = __builtin_convertvector(x, u32xN);
    u32xN magnitude = w & 0x7fu;
    u32xN is_nan = (u32xN)(magnitude > 0x7cu);
    u32xN is_large = (u32xN)(magnitude >= 0x7cu);
    u32xN value = (u32xN)cuvil_small_to_f32xN(magnitude, 2, 15);
    value = (is_large & 0x7f800000u) | (is_nan & 0x00400000u) | (~is_large & value);
    return (f32xN)((w & 0x80u) << 24 | value);
}

@ f32_to_float8e5m2 f32_to_small
CUVIL_INLINE u8xN cuvil_f32_to_float8e5m2xN(f32xN x)
{
    u32xN w = (u32xN)x;
    u32xN magnitude = w & 0x7fffffffu;
    u32xN is_nan = (u32xN)(magnitude > 0x7f800000u);
    u32xN code = cuvil_f32_to_smallxN(magnitude, 2, 15);
    u32xN is_large = (u32xN)(code > 0x7bu);
    code = (is_large & 0x7cu) | (~is_large & code);
    return __builtin_convertvector((w >> 24 & 0x80u) | (is_nan & 0x7eu) | (~is_nan & code), u8xN);
}

@ float8e5m2fnuz_to_f32 small_to_f32
CUVIL_INLINE f32xN cuvil_float8e5m2fnuz_to_f32xN(u8xN x)
{
    u32xN w = __builtin_convertvector(x, u32xN);
    u32xN is_nan = (u32xN)(w == 0x80u);
    u32xN value = (u32xN)cuvil_small_to_f32xN(w & 0x7fu, 2, 16);
    return (f32xN)((is_nan & 0x7fc00000u) | (~is_nan & ((w & 0x80u) << 24 | value)));
}

@ f32_to_float8e5m2fnuz f32_to_small
CUVIL_INLINE u8xN cuvil_f32_to_float8e5m2fnuzxN(f32xN x)
{
    u32xN w = (u32xN)x;
    u32xN code = cuvil_f32_to_smallxN(w & 0x7fffffffu, 2, 16);
    u32xN is_nan = (u32xN)(code > 0x7fu);
    code |= w >> 24 & 0x80u & (u32xN)(code != 0u);
    return __builtin_convertvector((is_nan & 0x80u) | (~is_nan & code), u8xN);
}

/* Powers of two; no zero and no sign: those become NaN. Halves go up. */
@ float8e8m0_to_f32
CUVIL_INLINE f32xN cuvil_float8e8m0_to_f32xN(u8xN x)
{
    u32xN w = __builtin_convertvector(x, u32xN);
    u32xN is_nan = (u32xN)(w == 0xffu);
    u32xN is_least = (u32xN)(w == 0u);
    return (f32xN)(w << 23 | (is_least & 0x00400000u) | (is_nan & 0x00400000u));
}

@ f32_to_float8e8m0
CUVIL_INLINE u8xN cuvil_f32_to_float8e8m0xN(f32xN x)
{
    u32xN w = (u32xN)x;
    u32xN is_small = (u32xN)(w < 0x00800000u);
    u32xN code = (is_small & (u32xN)(w > 0x005fffffu) & 1u) | (~is_small & (w + 0x00400000u) >> 23);
    u32xN is_nan = (u32xN)(code > 0xfeu) | (u32xN)(w == 0u) | (u32xN)(w > 0x7f800000u);
    return __builtin_convertvector(code | (is_nan & 0xffu), u8xN);
}

@ float4e2m1_to_f32 small_to_f32
CUVIL_INLINE f32xN cuvil_float4e2m1_to_f32xN(u8xN x)
{
    u32xN w = __builtin_convertvector(x, u32xN);
    return (f32xN)((w & 8u) << 28 | (u32xN)cuvil_small_to_f32xN(w & 7u, 1, 1));
}

/* NaN becomes zero with the other sign. */
@ f32_to_float4e2m1 f32_to_small
CUVIL_INLINE u8xN cuvil_f32_to_float4e2m1xN(f32xN x)
{
    u32xN w = (u32xN)x;
    u32xN magnitude = w & 0x7fffffffu;
    u32xN is_nan = (u32xN)(magnitude > 0x7f800000u);
    u32xN code = cuvil_f32_to_smallxN(magnitude, 1, 1);
    u32xN is_large = (u32xN)(code > 7u);
    code = (w >> 28 & 8u) | (is_large & 7u) | (~is_large & code);
    return __builtin_convertvector((is_nan & ((w >> 28 & 8u) ^ 8u)) | (~is_nan & code), u8xN);
}

@ int4_to_i8
CUVIL_INLINE i8xN cuvil_int4_to_i8xN(u8xN x)
{
    return (i8xN)(((x & 15) ^ 8) - 8);
}

@ i8_to_int4
CUVIL_INLINE u8xN cuvil_i8_to_int4xN(i8xN x)
{
    return (u8xN)x & 15;
}

@ uint4_to_u8
CUVIL_INLINE u8xN cuvil_uint4_to_u8xN(u8xN x)
{
    return x & 15;
}

@ u8_to_uint4
CUVIL_INLINE u8xN cuvil_u8_to_uint4xN(u8xN x)
{
    return x & 15;
}

@ int2_to_i8
CUVIL_INLINE i8xN cuvil_int2_to_i8xN(u8xN x)
{
    return (i8xN)(((x & 3) ^ 2) - 2);
}

@ i8_to_int2
CUVIL_INLINE u8xN cuvil_i8_to_int2xN(i8xN x)
{
    return (u8xN)x & 3;
}

@ uint2_to_u8
CUVIL_INLINE u8xN cuvil_uint2_to_u8xN(u8xN x)
{
    return x & 3;
}

@ u8_to_uint2
CUVIL_INLINE u8xN cuvil_u8_to_uint2xN(u8xN x)
{
    return x & 3;
}

/* To float32, but to the odd neighbour where it is not exact: rounding once more then gives what rounding
 * the double would (S. Boldo, G. Melquiond, "When double rounding is odd", 2005). */
@ f64_to_odd_f32
CUVIL_INLINE f32xN cuvil_f64_to_odd_f32xN(f64xN x)
{
    f32xN near = __builtin_convertvector(x, f32xN);
    f64xN back = __builtin_convertvector(near, f64xN);
    i64xN is_far = (i64xN)(((u64xN)back & 0x7fffffffffffffffu) > ((u64xN)x & 0x7fffffffffffffffu));
    i64xN is_other = (i64xN)(back != x) & (i64xN)(x == x);
    u32xN bits = (u32xN)near + __builtin_convertvector(is_far & is_other, u32xN);
    return (f32xN)(bits | (__builtin_convertvector(is_other, u32xN) & 1u));
}
