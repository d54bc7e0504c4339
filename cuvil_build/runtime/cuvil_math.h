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

/* The same where b is no NaN: one instruction on most machines. Of WebAssembly's two kinds engines have to mend the
   one that gives any NaN of the two, with six instructions; the select below is the other one. */
@ max_number_f32 select_f32
CUVIL_INLINE f32xN cuvil_max_number_f32xN(f32xN a, f32xN b)
{
#if CUVIL_EXTREMES && !defined(__wasm__)
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f32xN((i32xN)(b > a), b, a);
#endif
}

@ max_number_f64 select_f64
CUVIL_INLINE f64xN cuvil_max_number_f64xN(f64xN a, f64xN b)
{
#if CUVIL_EXTREMES && !defined(__wasm__)
    return __builtin_elementwise_maximum(a, b);
#else
    return cuvil_select_f64xN((i64xN)(b > a), b, a);
#endif
}

@ min_number_f32 select_f32
CUVIL_INLINE f32xN cuvil_min_number_f32xN(f32xN a, f32xN b)
{
#if CUVIL_EXTREMES && !defined(__wasm__)
    return __builtin_elementwise_minimum(a, b);
#else
    return cuvil_select_f32xN((i32xN)(b < a), b, a);
#endif
}

@ min_number_f64 select_f64
CUVIL_INLINE f64xN cuvil_min_number_f64xN(f64xN a, f64xN b)
{
#if CUVIL_EXTREMES && !defined(__wasm__)
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
 * rounding shift leaves the integer in the low bits, so no conversion can overflow. What is too small for any
 * number becomes zero before it is scaled: x86 CPUs take over a hundred cycles for a product that underflows, and
 * masked scores of attention are such arguments. */
@ exp_f32 min_number_f32 max_number_f32 scale_f32
CUVIL_INLINE f32xN cuvil_exp_f32xN(f32xN x)
{
    i32xN gone = (i32xN)(x < -103.98f);
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
    p = (f32xN)((i32xN)p & ~gone);
    return cuvil_scale_f32xN(p, (i32xN)((u32xN)shifted - 0x4b400000u));
}

/* 1 ULP. */
@ exp_f64 min_number_f64 max_number_f64 scale_f64
CUVIL_INLINE f64xN cuvil_exp_f64xN(f64xN x)
{
    i64xN gone = (i64xN)(x < -745.14);
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
    p = (f64xN)((i64xN)p & ~gone);
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

/* 3 ULP; zero where that is less than the smallest normal number, of which networks have many: see exp. */
@ sigmoid_f32 exp_f32 select_f32
CUVIL_INLINE f32xN cuvil_sigmoid_f32xN(f32xN x)
{
    i32xN gone = (i32xN)(x < -87.33f);
    f32xN e = cuvil_exp_f32xN((f32xN)(((u32xN)x | 0x80000000u) & ~(u32xN)gone));
    f32xN r = 1.0f / (1.0f + e);
    return cuvil_select_f32xN((i32xN)(x < 0.0f), (f32xN)((i32xN)(e * r) & ~gone), r);
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

/* 2 ULP. Two polynomials: for small arguments odd; for large ones of the fourth root of 1 - erf, which falls
 * almost evenly towards nothing: no exponential is needed, nothing above 1 comes out. From 4 on it is 1. */
@ erf_f32 min_number_f32 select_f32 abs_f32
CUVIL_INLINE f32xN cuvil_erf_f32xN(f32xN x)
{
    f32xN a = cuvil_abs_f32xN(x);
    f32xN s = x * x;
    f32xN p = s * 7.06350693e-5f - 7.76579720e-4f;
    p = p * s + 5.16025908e-3f;
    p = p * s - 2.68392228e-2f;
    p = p * s + 1.12832561e-1f;
    p = p * s - 3.76126021e-1f;
    p = p * s + 1.28379166e-1f;
    p = p * x + x;
    a = cuvil_min_number_f32xN(a, (f32xN){0} + 4.0f);
    f32xN q = a * -1.79496419e-4f + 3.23419715e-3f;
    q = q * a - 2.22133975e-2f;
    q = q * a + 6.61218464e-2f;
    q = q * a - 5.04793487e-2f;
    q = q * a - 6.34259358e-2f;
    q = q * a - 3.08785796e-1f;
    q = q * a + 1.00549853f;
    q = q * q;
    q = 1.0f - q * q;
    f32xN far = (f32xN)((u32xN)q | ((u32xN)x & 0x80000000u));
    return cuvil_select_f32xN((i32xN)(a > 1.125f), far, p);
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

/* a * b as the nearest double and, exactly but for its last bits, the rest. Heads of 26 bits: their products are
 * exact, with or without fused multiply-add. */
@ two_product_f64
CUVIL_INLINE f64xN cuvil_two_product_f64xN(f64xN a, f64xN b, f64xN *rest)
{
    f64xN p = a * b;
    f64xN ah = (f64xN)((u64xN)a & 0xfffffffff8000000u);
    f64xN bh = (f64xN)((u64xN)b & 0xfffffffff8000000u);
    f64xN al = a - ah;
    f64xN bl = b - bh;
    *rest = ah * bh - p + ah * bl + al * bh + al * bl;
    return p;
}

@ two_sum_f64
CUVIL_INLINE f64xN cuvil_two_sum_f64xN(f64xN a, f64xN b, f64xN *rest)
{
    f64xN s = a + b;
    f64xN t = s - a;
    *rest = (a - (s - t)) + (b - t);
    return s;
}

/* x = n * pi/2 + the result + rest, |result| <= pi/4, for finite x. Up to 2^20 pi/2 in four parts; above, the
 * product with 2/pi in 32-bit limbs, from the limb on whose multiples of 4 no longer vanish. */
@ reduce_f64 two_sum_f64 two_product_f64
CUVIL_INLINE f64xN cuvil_reduce_f64xN(f64xN x, f64xN *rest, i64xN *quadrant)
{
    static const uint32_t inverse[] = {
        0xa2f9836e, 0x4e441529, 0xfc2757d1, 0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab, 0xdebbc561,
        0xb7246e3a, 0x424dd2e0, 0x06492eea, 0x09d1921c, 0xfe1deb1c, 0xb129a73e, 0xe88235f5, 0x2ebb4484,
        0xe99c7026, 0xb45f7e41, 0x3991d639, 0x835339f4, 0x9c845f8b, 0xbdf9283b, 0x1ff897ff, 0xde05980f,
        0xef2f118b, 0x5a0a6d1f, 0x6d367ecf, 0x27cb09b7, 0x4f463f66, 0x9e5fea2d, 0x7527bac7, 0xebe5f17b,
        0x3d0739f7, 0x8a5292ea, 0x6bfb5fb1, 0x1f8d5d08, 0x56033046, 0xfc7b6bab,
    };
    f64xN shifted = x * 6.36619772367581382433e-01 + 6755399441055744.0;
    f64xN n = shifted - 6755399441055744.0;
    f64xN e1, e2;
    f64xN r = x - n * 1.5707963267341256;
    r = cuvil_two_sum_f64xN(r, n * -6.077100506303966e-11, &e1);
    r = cuvil_two_sum_f64xN(r, n * -2.0222662487111665e-21, &e2);
    f64xN low = e1 + e2 - n * 8.4784276603689e-32;
    f64xN high = r + low;
    low = low - (high - r);
    i64xN quarter = (i64xN)((u64xN)shifted - 0x4338000000000000u);
    for (unsigned i = 0; i < sizeof x / 8; i++) {
        uint64_t own = ((u64xN)x)[i];
        int exponent = (int)(own >> 52 & 0x7ff);
        if (exponent < 1023 + 20 || exponent == 0x7ff)
            continue;
        uint64_t m = (own & 0x000fffffffffffffu) | 0x0010000000000000u;
        int power = exponent - 1075;
        int first = power > 2 ? (power - 2) / 32 : 0;
        uint32_t limbs[9] = {0};
        for (int part = 0; part < 2; part++) {
            uint64_t factor = part ? m >> 32 : m & 0xffffffffu, carry = 0;
            for (int j = 0; j < 7; j++) {
                carry += factor * inverse[first + 6 - j] + limbs[part + j];
                limbs[part + j] = (uint32_t)carry;
                carry >>= 32;
            }
            limbs[part + 7] = (uint32_t)carry;
        }
        /* fraction bits of the product: 32 for each of the seven limbs, less the power of two */
        int point = 32 * (first + 7) - power, at = point / 32, by = point % 32;
        uint32_t words[5];
        for (int j = 0; j < 5; j++) {
            int k = at - j;
            uint64_t pair = (uint64_t)(k + 1 < 9 ? limbs[k + 1] : 0) << 32 | limbs[k];
            words[j] = (uint32_t)(pair >> by);
        }
        int up = (int)(words[1] >> 31);
        uint32_t flip = up ? 0xffffffffu : 0;
        double a = (double)(words[1] ^ flip) * 0x1p-32, b = (double)(words[2] ^ flip) * 0x1p-64;
        double c = (double)(words[3] ^ flip) * 0x1p-96 + (double)(words[4] ^ flip) * 0x1p-128;
        double sum = a + b, error = b - (sum - a) + c;
        double negative = up != (int)(own >> 63) ? -1.0 : 1.0;
        high[i] = negative * sum;
        low[i] = negative * error;
        int64_t turns = (int64_t)(words[0] & 3) + up;
        quarter[i] = own >> 63 ? -turns : turns;
    }
    f64xN product_rest;
    f64xN product = cuvil_two_product_f64xN(high, (f64xN){0} + 1.5707963267948966, &product_rest);
    product_rest += high * 6.123233995736766e-17 + low * 1.5707963267948966;
    u64xN is_large = (u64xN)(((u64xN)x & 0x7fffffffffffffffu) >= 0x4130000000000000u);
    *quadrant = quarter;
    *rest = (f64xN)((is_large & (u64xN)product_rest) | (~is_large & (u64xN)low));
    return (f64xN)((is_large & (u64xN)product) | (~is_large & (u64xN)high));
}

/* Sine for an even quadrant and cosine for an odd one, with the quadrant's sign. fdlibm's polynomials. */
@ sin_quadrant_f64 reduce_f64 select_f64
CUVIL_INLINE f64xN cuvil_sin_quadrant_f64xN(f64xN x, int shift)
{
    i64xN n;
    f64xN rest;
    f64xN r = cuvil_reduce_f64xN(x, &rest, &n);
    n += shift;
    f64xN z = r * r;
    f64xN p = z * 1.58969099521155010221e-10 - 2.50507602534068634195e-08;
    p = (p * z + 2.75573137070700676789e-06) * z - 1.98412698298579493134e-04;
    p = p * z + 8.33333333332248946124e-03;
    f64xN v = z * r;
    f64xN s = r - ((z * (0.5 * rest - v * p) - rest) + v * 1.66666666666666324348e-01);
    f64xN q = z * -1.13596475577881948265e-11 + 2.08757232129817482790e-09;
    q = (q * z - 2.75573143513906633035e-07) * z + 2.48015872894767294178e-05;
    q = (q * z - 1.38888888888741095749e-03) * z + 4.16666666666666019037e-02;
    f64xN half = 0.5 * z;
    f64xN w = 1.0 - half;
    f64xN c = w + ((1.0 - w - half) + (z * z * q - r * rest));
    f64xN y = cuvil_select_f64xN((i64xN)((n & 1) == 0), s, c);
    y = (f64xN)((u64xN)y ^ ((u64xN)(n & 2) << 62));
    u64xN infinite = (u64xN)(((u64xN)x & 0x7ff0000000000000u) == 0x7ff0000000000000u);
    return (f64xN)((u64xN)y | (infinite & 0x7ff8000000000000u));
}

/* 1 ULP. */
@ sin_f64 sin_quadrant_f64 select_f64
CUVIL_INLINE f64xN cuvil_sin_f64xN(f64xN x)
{
    return cuvil_select_f64xN((i64xN)(x == 0.0), x, cuvil_sin_quadrant_f64xN(x, 0));
}

/* 1 ULP. */
@ cos_f64 sin_quadrant_f64
CUVIL_INLINE f64xN cuvil_cos_f64xN(f64xN x)
{
    return cuvil_sin_quadrant_f64xN(x, 1);
}

/* 3 ULP. */
@ tan_f64 sin_f64 cos_f64
CUVIL_INLINE f64xN cuvil_tan_f64xN(f64xN x)
{
    return cuvil_sin_f64xN(x) / cuvil_cos_f64xN(x);
}

/* 1 ULP. The ranges and polynomial of fdlibm's s_atan.c. */
@ atan_f64 select_f64 abs_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_atan_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    f64xN one = (f64xN){0} + 1.0;
    i64xN r1 = (i64xN)(a >= 0.4375), r2 = (i64xN)(a >= 0.6875);
    i64xN r3 = (i64xN)(a >= 1.1875), r4 = (i64xN)(a >= 2.4375);
    f64xN top = cuvil_select_f64xN(r1, 2.0 * a - 1.0, a);
    top = cuvil_select_f64xN(r2, a - 1.0, top);
    top = cuvil_select_f64xN(r3, a - 1.5, top);
    top = cuvil_select_f64xN(r4, -one, top);
    f64xN bottom = cuvil_select_f64xN(r1, 2.0 + a, one);
    bottom = cuvil_select_f64xN(r2, a + 1.0, bottom);
    bottom = cuvil_select_f64xN(r3, 1.0 + 1.5 * a, bottom);
    bottom = cuvil_select_f64xN(r4, a, bottom);
    u64xN high = (u64xN)r1 & 0x3fddac670561bb4fu;
    high = ((u64xN)r2 & 0x3fe921fb54442d18u) | (~(u64xN)r2 & high);
    high = ((u64xN)r3 & 0x3fef730bd281f69bu) | (~(u64xN)r3 & high);
    high = ((u64xN)r4 & 0x3ff921fb54442d18u) | (~(u64xN)r4 & high);
    f64xN low = cuvil_select_f64xN(r1, (f64xN){0} + 2.26987774529616870924e-17, (f64xN){0});
    low = cuvil_select_f64xN(r2, (f64xN){0} + 3.06161699786838301793e-17, low);
    low = cuvil_select_f64xN(r3, (f64xN){0} + 1.39033110312309984516e-17, low);
    low = cuvil_select_f64xN(r4, (f64xN){0} + 6.12323399573676603587e-17, low);
    f64xN t = top / bottom;
    f64xN z = t * t;
    f64xN w = z * z;
    f64xN p = w * 1.62858201153657823623e-02 + 4.97687799461593236017e-02;
    p = (p * w + 6.66107313738753120669e-02) * w + 9.09088713343650656196e-02;
    p = (p * w + 1.42857142725034663711e-01) * w + 3.33333333333329318027e-01;
    f64xN q = w * -3.65315727442169155270e-02 - 5.83357013379057348645e-02;
    q = (q * w - 7.69187620504482999495e-02) * w - 1.11111104054623557880e-01;
    q = q * w - 1.99999999998764832476e-01;
    f64xN tail = t * (z * p + w * q);
    f64xN r = cuvil_select_f64xN(r1, (f64xN)high - ((tail - low) - t), t - tail);
    return cuvil_copysign_f64xN(r, x);
}

/* asin(t) = t + t * this, for z = t * t up to 1/4: the rational function of fdlibm's e_asin.c. */
@ asin_tail_f64
CUVIL_INLINE f64xN cuvil_asin_tail_f64xN(f64xN z)
{
    f64xN p = z * 3.47933107596021167570e-05 + 7.91534994289814532176e-04;
    p = (p * z - 4.00555345006794114027e-02) * z + 2.01212532134862925881e-01;
    p = (p * z - 3.25565818622400915405e-01) * z + 1.66666666666666657415e-01;
    f64xN q = z * 7.70381505559019352791e-02 - 6.88283971605453293030e-01;
    q = (q * z + 2.02094576023350569471e+00) * z - 2.40339491173441421878e+00;
    return z * p / (q * z + 1.0);
}

/* 1 ULP. */
@ asin_f64 asin_tail_f64 sqrt_f64 select_f64 abs_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_asin_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    i64xN large = (i64xN)(a >= 0.5);
    f64xN z = cuvil_select_f64xN(large, 0.5 * (1.0 - a), a * a);
    f64xN tail = cuvil_asin_tail_f64xN(z);
    f64xN s = cuvil_sqrt_f64xN(z);
    f64xN head = (f64xN)((u64xN)s & 0xffffffff00000000u);
    f64xN c = (z - head * head) / (s + head);
    f64xN p = 2.0 * s * tail - (6.12323399573676603587e-17 - 2.0 * c);
    f64xN q = 7.85398163397448278999e-01 - 2.0 * head;
    f64xN far = 7.85398163397448278999e-01 - (p - q);
    far = cuvil_select_f64xN((i64xN)(a == 1.0), (f64xN){0} + 1.57079632679489655800e+00, far);
    return cuvil_copysign_f64xN(cuvil_select_f64xN(large, far, a + a * tail), x);
}

/* 1 ULP. */
@ acos_f64 asin_tail_f64 sqrt_f64 select_f64 abs_f64
CUVIL_INLINE f64xN cuvil_acos_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    i64xN large = (i64xN)(a >= 0.5);
    f64xN z = cuvil_select_f64xN(large, 0.5 * (1.0 - a), a * a);
    f64xN tail = cuvil_asin_tail_f64xN(z);
    f64xN s = cuvil_sqrt_f64xN(z);
    f64xN head = (f64xN)((u64xN)s & 0xffffffff00000000u);
    f64xN c = (z - head * head) / (s + head);
    c = cuvil_select_f64xN((i64xN)(s == 0.0), (f64xN){0}, c);
    f64xN near = 1.57079632679489655800e+00 - (x - (6.12323399573676603587e-17 - x * tail));
    f64xN right = 2.0 * (head + (s * tail + c));
    f64xN left = 3.14159265358979311600e+00 - 2.0 * (s + (s * tail - 6.12323399573676603587e-17));
    f64xN far = cuvil_select_f64xN((i64xN)(x < 0.0), left, right);
    return cuvil_select_f64xN(large, far, near);
}

/* exp(x + low) for a low of much less than a last place of x: rounded once, at the end. */
@ exp_sum_f64 min_number_f64 max_number_f64 scale_f64
CUVIL_INLINE f64xN cuvil_exp_sum_f64xN(f64xN x, f64xN low)
{
    x = cuvil_min_number_f64xN(x, (f64xN){0} + 710.0);
    x = cuvil_max_number_f64xN(x, (f64xN){0} - 750.0);
    f64xN shifted = x * 1.4426950408889634074 + 6755399441055744.0;
    f64xN n = shifted - 6755399441055744.0;
    f64xN r = x - n * 6.93145751953125e-1;
    low = low - n * 1.42860682030941723212e-6;
    f64xN t = r + low;
    low = low - (t - r);
    f64xN p = t * 1.6059043836821613e-10 + 2.0876756987868099e-9;
    p = p * t + 2.5052108385441719e-8;
    p = p * t + 2.7557319223985891e-7;
    p = p * t + 2.7557319223985893e-6;
    p = p * t + 2.4801587301587302e-5;
    p = p * t + 1.9841269841269841e-4;
    p = p * t + 1.3888888888888889e-3;
    p = p * t + 8.3333333333333333e-3;
    p = p * t + 4.1666666666666667e-2;
    p = p * t + 1.6666666666666667e-1;
    p = (p * t + 0.5) * (t * t) + low;
    /* 1 + t exactly as head and rest */
    f64xN head = 1.0 + t;
    p = p + (t - (head - 1.0));
    return cuvil_scale_f64xN(head + p, (i64xN)((u64xN)shifted - 0x4338000000000000u));
}

/* 1 ULP: the logarithm and its product with y in two doubles, then the signs and limits of C's pow. */
@ pow_f64 exp_sum_f64 floor_f64 select_f64 abs_f64 two_product_f64 two_sum_f64
CUVIL_INLINE f64xN cuvil_pow_f64xN(f64xN x, f64xN y)
{
    f64xN a = cuvil_abs_f64xN(x);
    i64xN tiny = (i64xN)(a < 2.2250738585072014e-308);
    f64xN scaled = cuvil_select_f64xN(tiny, a * 18014398509481984.0, a);
    u64xN bits = (u64xN)scaled + (0x3ff0000000000000u - 0x3fe6a09e667f3bcdu);
    f64xN k = __builtin_convertvector((i64xN)(bits >> 52) - 1023 + (tiny & -54), f64xN);
    f64xN m = (f64xN)((bits & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu);
    /* log m = 2 atanh s, s = (m - 1) / (m + 1) as sh + sl */
    f64xN f = m - 1.0;
    f64xN dh = m + 1.0;
    f64xN dl = m - (dh - 1.0);
    f64xN sh = f / dh;
    f64xN e;
    f64xN product = cuvil_two_product_f64xN(sh, dh, &e);
    f64xN sl = (f - product - e - sh * dl) / dh;
    f64xN zl, ul, vl;
    f64xN zh = cuvil_two_product_f64xN(sh, sh, &zl);
    zl += 2.0 * sh * sl;
    f64xN uh = cuvil_two_product_f64xN(zh, (f64xN){0} + 0.6666666666666666, &ul);
    ul += zh * 3.700743415417188e-17 + zl * 0.6666666666666666;
    f64xN vh = cuvil_two_product_f64xN(uh, sh, &vl);
    vl += uh * sl + ul * sh;
    f64xN p = zh * 0.08 + 0.08695652173913043;
    p = (p * zh + 0.09523809523809523) * zh + 0.10526315789473684;
    p = (p * zh + 0.11764705882352941) * zh + 0.13333333333333333;
    p = (p * zh + 0.15384615384615385) * zh + 0.18181818181818182;
    p = (p * zh + 0.22222222222222222) * zh + 0.28571428571428570;
    p = p * zh + 0.4;
    f64xN ae, be;
    f64xN sum = cuvil_two_sum_f64xN(k * 0.693147180559663, 2.0 * sh, &ae);
    sum = cuvil_two_sum_f64xN(sum, vh, &be);
    f64xN low = ae + be + (vl + 2.0 * sl + sh * zh * zh * p + k * 2.8235290563031577e-13);
    f64xN lh = sum + low;
    f64xN ll = low - (lh - sum);
    f64xN infinity = (f64xN){0} + __builtin_inf();
    lh = cuvil_select_f64xN((i64xN)(a == 0.0), -infinity, lh);
    lh = cuvil_select_f64xN((i64xN)(a == infinity) | (i64xN)(a != a), a, lh);
    f64xN pl;
    f64xN ph = cuvil_two_product_f64xN(y, lh, &pl);
    pl += y * ll;
    pl = (f64xN)((u64xN)pl & (u64xN)(cuvil_abs_f64xN(pl) < 1.0));
    f64xN r = cuvil_exp_sum_f64xN(ph, pl);
    f64xN half = 0.5 * y;
    i64xN whole = (i64xN)(cuvil_floor_f64xN(y) == y);
    i64xN odd = whole & (i64xN)(cuvil_floor_f64xN(half) != half);
    r = (f64xN)((u64xN)r | ((u64xN)odd & (u64xN)x & 0x8000000000000000u));
    i64xN finite = (i64xN)(a != infinity);
    i64xN undefined = (i64xN)(x < 0.0) & ~whole & finite;
    r = (f64xN)((u64xN)r | ((u64xN)undefined & 0x7ff8000000000000u));
    i64xN endless = (i64xN)(cuvil_abs_f64xN(y) == infinity);
    i64xN one = (i64xN)(y == 0.0) | (i64xN)(x == 1.0) | ((i64xN)(x == -1.0) & endless);
    return cuvil_select_f64xN(one, (f64xN){0} + 1.0, r);
}

/* log(1 + x), 3 ULP: W. Kahan's correction of the rounded sum. */
@ log1p_f64 log_f64 select_f64
CUVIL_INLINE f64xN cuvil_log1p_f64xN(f64xN x)
{
    f64xN u = 1.0 + x;
    f64xN d = u - 1.0;
    f64xN r = cuvil_log_f64xN(u) * (x / d);
    r = cuvil_select_f64xN((i64xN)(u == __builtin_inf()), u, r);
    return cuvil_select_f64xN((i64xN)(d == 0.0), x, r);
}

/* exp(x) - 1 for x from 0 to 1, 2 ULP: its series. */
@ expm1_f64
CUVIL_INLINE f64xN cuvil_expm1_f64xN(f64xN x)
{
    f64xN p = x * 8.896791392450574e-22 + 1.9572941063391263e-20;
    p = p * x + 4.110317623312165e-19;
    p = p * x + 8.22063524662433e-18;
    p = p * x + 1.5619206968586225e-16;
    p = p * x + 2.8114572543455206e-15;
    p = p * x + 4.779477332387385e-14;
    p = p * x + 7.647163731819816e-13;
    p = p * x + 1.1470745597729725e-11;
    p = p * x + 1.6059043836821613e-10;
    p = p * x + 2.08767569878681e-09;
    p = p * x + 2.505210838544172e-08;
    p = p * x + 2.755731922398589e-07;
    p = p * x + 2.7557319223985893e-06;
    p = p * x + 2.48015873015873e-05;
    p = p * x + 1.984126984126984e-04;
    p = p * x + 1.388888888888889e-03;
    p = p * x + 8.333333333333333e-03;
    p = p * x + 4.1666666666666664e-02;
    p = p * x + 1.6666666666666666e-01;
    p = p * x + 0.5;
    return x + x * x * p;
}

/* 3 ULP. Above 700 by the square of exp(x / 2). */
@ sinh_f64 exp_f64 expm1_f64 select_f64 abs_f64 copysign_f64 min_number_f64
CUVIL_INLINE f64xN cuvil_sinh_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    f64xN u = cuvil_expm1_f64xN(cuvil_min_number_f64xN(a, (f64xN){0} + 1.0));
    f64xN near = 0.5 * (u + u / (u + 1.0));
    i64xN large = (i64xN)(a > 700.0);
    f64xN w = cuvil_exp_f64xN(cuvil_select_f64xN(large, 0.5 * a, a));
    f64xN far = cuvil_select_f64xN(large, 0.5 * w * w, 0.5 * w - 0.5 / w);
    return cuvil_copysign_f64xN(cuvil_select_f64xN((i64xN)(a < 1.0), near, far), x);
}

/* 3 ULP. */
@ cosh_f64 exp_f64 select_f64 abs_f64
CUVIL_INLINE f64xN cuvil_cosh_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    i64xN large = (i64xN)(a > 700.0);
    f64xN w = cuvil_exp_f64xN(cuvil_select_f64xN(large, 0.5 * a, a));
    return cuvil_select_f64xN(large, 0.5 * w * w, 0.5 * w + 0.5 / w);
}

/* 4 ULP. */
@ asinh_f64 log_f64 log1p_f64 sqrt_f64 select_f64 abs_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_asinh_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    i64xN huge = (i64xN)(a > 1e9);
    f64xN root = cuvil_sqrt_f64xN(a * a + 1.0);
    f64xN near = cuvil_log1p_f64xN(a + a * a / (1.0 + root));
    f64xN far = cuvil_log_f64xN(cuvil_select_f64xN(huge, a, 2.0 * a + 1.0 / (root + a)));
    far = far + (f64xN)((u64xN)huge & 0x3fe62e42fefa39efu);
    f64xN r = cuvil_select_f64xN((i64xN)(a > 2.0), far, near);
    return cuvil_copysign_f64xN(r, x);
}

/* 4 ULP. */
@ acosh_f64 log_f64 log1p_f64 sqrt_f64 select_f64
CUVIL_INLINE f64xN cuvil_acosh_f64xN(f64xN x)
{
    i64xN huge = (i64xN)(x > 1e9);
    f64xN t = x - 1.0;
    f64xN near = cuvil_log1p_f64xN(t + cuvil_sqrt_f64xN(2.0 * t + t * t));
    f64xN root = cuvil_sqrt_f64xN(x * x - 1.0);
    f64xN far = cuvil_log_f64xN(cuvil_select_f64xN(huge, x, 2.0 * x - 1.0 / (x + root)));
    far = far + (f64xN)((u64xN)huge & 0x3fe62e42fefa39efu);
    f64xN r = cuvil_select_f64xN((i64xN)(x > 2.0), far, near);
    return (f64xN)((u64xN)r | ((u64xN)(x < 1.0) & 0x7ff8000000000000u));
}

/* 4 ULP. */
@ atanh_f64 log1p_f64 abs_f64 copysign_f64
CUVIL_INLINE f64xN cuvil_atanh_f64xN(f64xN x)
{
    f64xN a = cuvil_abs_f64xN(x);
    f64xN r = 0.5 * cuvil_log1p_f64xN(2.0 * a / (1.0 - a));
    r = (f64xN)((u64xN)r | ((u64xN)(a > 1.0) & 0x7ff8000000000000u));
    return cuvil_copysign_f64xN(r, x);
}

/* 1 ULP, as the next four: by way of double precision. */
@ sinh_f32 sinh_f64
CUVIL_INLINE f32xN cuvil_sinh_f32xN(f32xN x)
{
    return __builtin_convertvector(cuvil_sinh_f64xN(__builtin_convertvector(x, f64xN)), f32xN);
}

@ cosh_f32 cosh_f64
CUVIL_INLINE f32xN cuvil_cosh_f32xN(f32xN x)
{
    return __builtin_convertvector(cuvil_cosh_f64xN(__builtin_convertvector(x, f64xN)), f32xN);
}

@ asinh_f32 asinh_f64
CUVIL_INLINE f32xN cuvil_asinh_f32xN(f32xN x)
{
    return __builtin_convertvector(cuvil_asinh_f64xN(__builtin_convertvector(x, f64xN)), f32xN);
}

@ acosh_f32 acosh_f64
CUVIL_INLINE f32xN cuvil_acosh_f32xN(f32xN x)
{
    return __builtin_convertvector(cuvil_acosh_f64xN(__builtin_convertvector(x, f64xN)), f32xN);
}

@ atanh_f32 atanh_f64
CUVIL_INLINE f32xN cuvil_atanh_f32xN(f32xN x)
{
    return __builtin_convertvector(cuvil_atanh_f64xN(__builtin_convertvector(x, f64xN)), f32xN);
}
