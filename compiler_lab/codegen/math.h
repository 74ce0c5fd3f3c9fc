// Scalar functions of the generated kernels: inlined, free of branches, so that `omp simd` loops over them vectorise.
// NaN, infinities, signed zeros and denormals come out as in eager. Largest errors over all 2^32 float values (tests/test_math.py),
// in units in the last place: exp 1.05, exp2 1.07, expm1 1.61, log 0.87, log1p 1.44, tanh 2.57, sigmoid 2.41, erf 1.33.
#pragma once
#include <stddef.h>
#include <stdint.h>

// inlined whatever the size: a call in a loop is a loop that does not vectorise
#define LAB_INLINE static inline __attribute__((always_inline))
#define LAB_INF __builtin_inff()
#define LAB_NAN __builtin_nanf("")

// ---- bits, and a * b + c: rounded once where the processor can; elsewhere a call to libm would keep loops from vectorising ----
LAB_INLINE uint32_t lab_bits_f32(float f) { uint32_t u; __builtin_memcpy(&u, &f, 4); return u; }
LAB_INLINE uint64_t lab_bits_f64(double f) { uint64_t u; __builtin_memcpy(&u, &f, 8); return u; }
LAB_INLINE float lab_f32_bits(uint32_t u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
LAB_INLINE double lab_f64_bits(uint64_t u) { double f; __builtin_memcpy(&f, &u, 8); return f; }
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
LAB_INLINE float vm_fma_f32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LAB_INLINE double vm_fma_f64(double a, double b, double c) { return __builtin_fma(a, b, c); }
#else
LAB_INLINE float vm_fma_f32(float a, float b, float c) { return a * b + c; }
LAB_INLINE double vm_fma_f64(double a, double b, double c) { return a * b + c; }
#endif

// ---- fitted by benchmarks/fit_math.py: begin ----
static constexpr float VM_LN2_F32 = 0x1.62e43p-1f;
static constexpr float VM_LN2_HI_F32 = 0x1.62e4p-1f;
static constexpr float VM_LN2_LO_F32 = 0x1.7f7d1cp-20f;
static constexpr float VM_LOG2E_F32 = 0x1.715476p+0f;
static constexpr double VM_LN2_F64 = 0x1.62e42fefa39efp-1;
static constexpr double VM_LN2_HI_F64 = 0x1.62e42fefa4p-1;
static constexpr double VM_LN2_LO_F64 = -0x1.8432a1b0e2634p-43;
static constexpr double VM_LOG2E_F64 = 0x1.71547652b82fep+0;
// e^r = 1 + r + r^2 p(r); off by at most 0.29 units in the last place, evaluated exactly
LAB_INLINE float vm_poly_exp_f32(float t) {
  float p = 0x1.6bebep-10f;
  p = vm_fma_f32(p, t, 0x1.1227f6p-7f);
  p = vm_fma_f32(p, t, 0x1.555674p-5f);
  p = vm_fma_f32(p, t, 0x1.5554bp-3f);
  p = vm_fma_f32(p, t, 0x1.fffffep-2f);
  return p;
}
// log(1 + f) = f - f^2 / 2 + f^3 p(f); off by at most 0.1 units in the last place, evaluated exactly
LAB_INLINE float vm_poly_log_f32(float t) {
  float p = -0x1.38b54ep-4f;
  p = vm_fma_f32(p, t, 0x1.055b5ep-3f);
  p = vm_fma_f32(p, t, -0x1.0d8546p-3f);
  p = vm_fma_f32(p, t, 0x1.22da1ep-3f);
  p = vm_fma_f32(p, t, -0x1.547244p-3f);
  p = vm_fma_f32(p, t, 0x1.99a008p-3f);
  p = vm_fma_f32(p, t, -0x1.000226p-2f);
  p = vm_fma_f32(p, t, 0x1.555554p-2f);
  return p;
}
// erf(x) = x + x p(x^2), |x| < 1; off by at most 0.071 units in the last place, evaluated exactly
LAB_INLINE float vm_poly_erf_f32(float t) {
  float p = 0x1.496a2p-14f;
  p = vm_fma_f32(p, t, -0x1.a3f6f8p-11f);
  p = vm_fma_f32(p, t, 0x1.5405bp-8f);
  p = vm_fma_f32(p, t, -0x1.b7f90cp-6f);
  p = vm_fma_f32(p, t, 0x1.ce2cf8p-4f);
  p = vm_fma_f32(p, t, -0x1.81273ep-2f);
  p = vm_fma_f32(p, t, 0x1.06eba8p-3f);
  return p;
}
// erf(x) = 1 - 2^p(x), 1 <= x <= 4; off by at most 0.29 units in the last place, evaluated exactly
LAB_INLINE float vm_poly_log2_erfc_f32(float t) {
  float p = 0x1.19f2acp-12f;
  p = vm_fma_f32(p, t, -0x1.16b206p-8f);
  p = vm_fma_f32(p, t, 0x1.021808p-5f);
  p = vm_fma_f32(p, t, -0x1.30a49cp-3f);
  p = vm_fma_f32(p, t, -0x1.d75f4p-1f);
  p = vm_fma_f32(p, t, -0x1.a0448cp+0f);
  p = vm_fma_f32(p, t, -0x1.02562ep-11f);
  return p;
}
// 2^r, for erf only; off by at most 0.41 units in the last place, evaluated exactly
LAB_INLINE float vm_poly_exp2_f32(float t) {
  float p = 0x1.5c08d6p-10f;
  p = vm_fma_f32(p, t, 0x1.3d0c52p-7f);
  p = vm_fma_f32(p, t, 0x1.c6b6e6p-5f);
  p = vm_fma_f32(p, t, 0x1.ebf918p-3f);
  p = vm_fma_f32(p, t, 0x1.62e428p-1f);
  p = vm_fma_f32(p, t, 0x1.000002p+0f);
  return p;
}
// e^r = 1 + r + r^2 p(r); off by at most 0.29 units in the last place, evaluated exactly
LAB_INLINE double vm_poly_exp_f64(double t) {
  double p = 0x1.ae6baf91c7c25p-26;
  p = vm_fma_f64(p, t, 0x1.28a2363bcf941p-22);
  p = vm_fma_f64(p, t, 0x1.71de884bfd682p-19);
  p = vm_fma_f64(p, t, 0x1.a019a71d0244cp-16);
  p = vm_fma_f64(p, t, 0x1.a01a0174da13bp-13);
  p = vm_fma_f64(p, t, 0x1.6c16c17ef54b7p-10);
  p = vm_fma_f64(p, t, 0x1.1111111119093p-7);
  p = vm_fma_f64(p, t, 0x1.555555555225cp-5);
  p = vm_fma_f64(p, t, 0x1.5555555555539p-3);
  p = vm_fma_f64(p, t, 0x1.0000000000005p-1);
  return p;
}
// log((1 + s) / (1 - s)) = 2 s + s z p(z), z = s^2; off by at most 0.016 units in the last place, evaluated exactly
LAB_INLINE double vm_poly_log_f64(double t) {
  double p = 0x1.2f055c43548c3p-3;
  p = vm_fma_f64(p, t, 0x1.39a1bb67271p-3);
  p = vm_fma_f64(p, t, 0x1.74663ee1f9404p-3);
  p = vm_fma_f64(p, t, 0x1.c71c52097ab7cp-3);
  p = vm_fma_f64(p, t, 0x1.24924941f102ap-2);
  p = vm_fma_f64(p, t, 0x1.999999997fdbap-2);
  p = vm_fma_f64(p, t, 0x1.5555555555592p-1);
  return p;
}
// ---- fitted by benchmarks/fit_math.py: end ----

// ---- exponentials: x = n ln 2 + r with |r| <= ln 2 / 2, e^x = 2^n e^r ----
// Adding 1.5 * 2^23 (2^52) leaves the nearest integer in the last bits. 2^n goes on in two factors, so that overflow and denormals
// come out of one rounding. Comparisons are written so that NaN takes the branch that keeps it.
LAB_INLINE float vm_nearest_f32(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }                                        // |x| < 2^22
LAB_INLINE double vm_nearest_f64(double x) { return (x + 0x1.8p52) - 0x1.8p52; }                                        // |x| < 2^51
LAB_INLINE float vm_pow2_f32(float n) { return lab_f32_bits(lab_bits_f32(n + (0x1.8p23f + 127.0f)) << 23); }            // n an integer
LAB_INLINE double vm_pow2_f64(double n) { return lab_f64_bits(lab_bits_f64(n + (0x1.8p52 + 1023.0)) << 52); }
LAB_INLINE float vm_clamp_f32(float x, float low, float high) { x = high < x ? high : x; return x < low ? low : x; }
LAB_INLINE double vm_clamp_f64(double x, double low, double high) { x = high < x ? high : x; return x < low ? low : x; }
LAB_INLINE float vm_em1_f32(float r) { return vm_fma_f32(r * r, vm_poly_exp_f32(r), r); }  // e^r - 1
LAB_INLINE double vm_em1_f64(double r) { return vm_fma_f64(r * r, vm_poly_exp_f64(r), r); }

// 2^n in two factors as their biased exponents, from t = n + 1.5 * 2^23 (2^52): the sum of the two, half of it, and the rest
LAB_INLINE uint32_t vm_two_f32(float t) { return lab_bits_f32(t) - (0x4b400000u - 254u); }
LAB_INLINE uint64_t vm_two_f64(double t) { return lab_bits_f64(t) - (0x4338000000000000u - 2046u); }
LAB_INLINE float vm_scaled_f32(float y, uint32_t two) { return y * lab_f32_bits((two >> 1) << 23) * lab_f32_bits((two - (two >> 1)) << 23); }
LAB_INLINE double vm_scaled_f64(double y, uint64_t two) { return y * lab_f64_bits((two >> 1) << 52) * lab_f64_bits((two - (two >> 1)) << 52); }
LAB_INLINE float vm_rest_f32(float x, float n) { return vm_fma_f32(-n, VM_LN2_LO_F32, vm_fma_f32(-n, VM_LN2_HI_F32, x)); }  // x - n ln 2
LAB_INLINE double vm_rest_f64(double x, double n) { return vm_fma_f64(-n, VM_LN2_LO_F64, vm_fma_f64(-n, VM_LN2_HI_F64, x)); }

// Where the lower bound is, both factors are 0: what is far below (-infinity in a masked softmax) gives 0 without an underflow, for which
// some processors take a hundred cycles.
LAB_INLINE float vm_exp_near_f32(float x) {  // -176 <= x <= 89
  float t = vm_fma_f32(x, VM_LOG2E_F32, 0x1.8p23f);
  return vm_scaled_f32(vm_em1_f32(vm_rest_f32(x, t - 0x1.8p23f)) + 1.0f, vm_two_f32(t));
}
LAB_INLINE double vm_exp_near_f64(double x) {  // -1418 <= x <= 710
  double t = vm_fma_f64(x, VM_LOG2E_F64, 0x1.8p52);
  return vm_scaled_f64(vm_em1_f64(vm_rest_f64(x, t - 0x1.8p52)) + 1.0, vm_two_f64(t));
}
LAB_INLINE float vm_exp_f32(float x) { return vm_exp_near_f32(vm_clamp_f32(x, -176.0f, 89.0f)); }
LAB_INLINE double vm_exp_f64(double x) { return vm_exp_near_f64(vm_clamp_f64(x, -1418.0, 710.0)); }
LAB_INLINE float vm_exp2_f32(float x) {
  x = vm_clamp_f32(x, -254.0f, 128.0f);
  float t = x + 0x1.8p23f;
  return vm_scaled_f32(vm_em1_f32((x - (t - 0x1.8p23f)) * VM_LN2_F32) + 1.0f, vm_two_f32(t));
}
LAB_INLINE double vm_exp2_f64(double x) {
  x = vm_clamp_f64(x, -2046.0, 1024.0);
  double t = x + 0x1.8p52;
  return vm_scaled_f64(vm_em1_f64((x - (t - 0x1.8p52)) * VM_LN2_F64) + 1.0, vm_two_f64(t));
}
// 2^n (e^r - 1) + (2^n - 1), with 2^b kept outside where n = a + b
LAB_INLINE float vm_expm1_f32(float x) {
  float c = vm_clamp_f32(x, -104.0f, 89.0f), t = vm_fma_f32(c, VM_LOG2E_F32, 0x1.8p23f);
  uint32_t two = vm_two_f32(t), a = two >> 1, b = two - a;
  float scale = lab_f32_bits(a << 23), em1 = vm_em1_f32(vm_rest_f32(c, t - 0x1.8p23f));
  float y = lab_f32_bits(b << 23) * vm_fma_f32(em1, scale, scale - lab_f32_bits((254u - b) << 23));
  return x == 0.0f ? x : y;  // -0.0
}
LAB_INLINE double vm_expm1_f64(double x) {
  double c = vm_clamp_f64(x, -746.0, 710.0), t = vm_fma_f64(c, VM_LOG2E_F64, 0x1.8p52);
  uint64_t two = vm_two_f64(t), a = two >> 1, b = two - a;
  double scale = lab_f64_bits(a << 52), em1 = vm_em1_f64(vm_rest_f64(c, t - 0x1.8p52));
  double y = lab_f64_bits(b << 52) * vm_fma_f64(em1, scale, scale - lab_f64_bits((2046u - b) << 52));
  return x == 0.0 ? x : y;
}
// e^-|x| never overflows, so small results keep their digits down to the denormals
LAB_INLINE float vm_sigmoid_f32(float x) {
  float a = -__builtin_fabsf(x), e = vm_exp_near_f32(a < -176.0f ? -176.0f : a);
  return (x < 0.0f ? e : 1.0f) / (1.0f + e);
}
LAB_INLINE double vm_sigmoid_f64(double x) {
  double a = -__builtin_fabs(x), e = vm_exp_near_f64(a < -1418.0 ? -1418.0 : a);
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
// e^2|x| - 1 stays far from overflow: one factor of 2^n is enough
LAB_INLINE float vm_tanh_f32(float x) {
  float a = __builtin_fabsf(x), c = 2.0f * (10.0f < a ? 10.0f : a), n = vm_nearest_f32(c * VM_LOG2E_F32), scale = vm_pow2_f32(n);
  float t = vm_fma_f32(vm_em1_f32(vm_rest_f32(c, n)), scale, scale - 1.0f);
  return __builtin_copysignf(t / (t + 2.0f), x);
}
LAB_INLINE double vm_tanh_f64(double x) {
  double a = __builtin_fabs(x), c = 2.0 * (20.0 < a ? 20.0 : a), n = vm_nearest_f64(c * VM_LOG2E_F64), scale = vm_pow2_f64(n);
  double t = vm_fma_f64(vm_em1_f64(vm_rest_f64(c, n)), scale, scale - 1.0);
  return __builtin_copysign(t / (t + 2.0), x);
}
// beyond 4 it is 1; the form 1 - 2^p keeps 1 - erf(x), which GELU needs, as good as it can be
LAB_INLINE float vm_erf_f32(float x) {
  float a = __builtin_fabsf(x), small = vm_fma_f32(x, vm_poly_erf_f32(x * x), x);
  float p = vm_poly_log2_erfc_f32(4.0f < a ? 4.0f : a), n = vm_nearest_f32(p);
  float large = vm_fma_f32(-vm_poly_exp2_f32(p - n), vm_pow2_f32(n), 1.0f);
  return a < 1.0f ? small : __builtin_copysignf(large, x);
}

// ---- logarithms: x = 2^k m with m in [sqrt(1/2), sqrt(2)), log x = k ln 2 + log m ----
LAB_INLINE float vm_log_normal_f32(float x, float scaled) {  // x normal; 2^scaled is what it was multiplied by
  uint32_t u = lab_bits_f32(x) - 0x3f3504f3u;
  float k = (float)((int32_t)u >> 23) - scaled, f = lab_f32_bits((u & 0x007fffffu) + 0x3f3504f3u) - 1.0f, f2 = f * f;
  float low = vm_fma_f32(f2 * f, vm_poly_log_f32(f), k * VM_LN2_LO_F32);
  return vm_fma_f32(k, VM_LN2_HI_F32, f + vm_fma_f32(-0.5f, f2, low));
}
LAB_INLINE double vm_log_normal_f64(double x, double scaled) {
  uint64_t u = lab_bits_f64(x) - 0x3fe6a09e667f3bcdu + 0x3ff0000000000000u;
  double k = lab_f64_bits((u >> 52) | 0x4330000000000000u) - (0x1p52 + 1023.0) - scaled;
  double f = lab_f64_bits((u & 0x000fffffffffffffu) + 0x3fe6a09e667f3bcdu) - 1.0, s = f / (2.0 + f), z = s * s, half = 0.5 * f * f;
  double low = vm_fma_f64(s, vm_fma_f64(z, vm_poly_log_f64(z), half), k * VM_LN2_LO_F64);  // 2 s == f - f^2 / 2 + s f^2 / 2
  return vm_fma_f64(k, VM_LN2_HI_F64, f - (half - low));
}
LAB_INLINE float vm_log_f32(float x) {
  bool tiny = x < 0x1p-126f;
  float y = vm_log_normal_f32(tiny ? x * 0x1p23f : x, tiny ? 23.0f : 0.0f);
  y = x < LAB_INF ? y : x;                      // inf, NaN
  return x == 0.0f ? -LAB_INF : x < 0.0f ? LAB_NAN : y;
}
LAB_INLINE double vm_log_f64(double x) {
  bool tiny = x < 0x1p-1022;
  double y = vm_log_normal_f64(tiny ? x * 0x1p52 : x, tiny ? 52.0 : 0.0);
  y = x < LAB_INF ? y : x;
  return x == 0.0 ? -LAB_INF : x < 0.0 ? LAB_NAN : y;
}
// log(1 + x) from u = 1 + x as rounded, and what the rounding lost, exactly
LAB_INLINE float vm_log1p_f32(float x) {
  float u = 1.0f + x, lost = x < 1.0f ? x - (u - 1.0f) : 1.0f - (u - x);
  float y = vm_log_normal_f32(u, 0.0f) + lost / u;
  y = x < LAB_INF && x != 0.0f ? y : x;         // inf, NaN, -0.0
  return x == -1.0f ? -LAB_INF : x < -1.0f ? LAB_NAN : y;
}
LAB_INLINE double vm_log1p_f64(double x) {
  double u = 1.0 + x, lost = x < 1.0 ? x - (u - 1.0) : 1.0 - (u - x);
  double y = vm_log_normal_f64(u, 0.0) + lost / u;
  y = x < LAB_INF && x != 0.0 ? y : x;
  return x == -1.0 ? -LAB_INF : x < -1.0 ? LAB_NAN : y;
}

// ---- libm, in vectors where glibc has them ----
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#if __GLIBC_PREREQ(2, 35)
#define VM_LIBM __attribute__((simd("notinbranch")))
#endif
#endif
#ifndef VM_LIBM
#define VM_LIBM
#endif
extern "C" {
VM_LIBM float sinf(float) noexcept;
VM_LIBM double sin(double) noexcept;
VM_LIBM float cosf(float) noexcept;
VM_LIBM double cos(double) noexcept;
VM_LIBM float tanf(float) noexcept;
VM_LIBM double tan(double) noexcept;
VM_LIBM float asinf(float) noexcept;
VM_LIBM double asin(double) noexcept;
VM_LIBM float acosf(float) noexcept;
VM_LIBM double acos(double) noexcept;
VM_LIBM float atanf(float) noexcept;
VM_LIBM double atan(double) noexcept;
VM_LIBM float sinhf(float) noexcept;
VM_LIBM double sinh(double) noexcept;
VM_LIBM float coshf(float) noexcept;
VM_LIBM double cosh(double) noexcept;
VM_LIBM float asinhf(float) noexcept;
VM_LIBM double asinh(double) noexcept;
VM_LIBM float acoshf(float) noexcept;
VM_LIBM double acosh(double) noexcept;
VM_LIBM float atanhf(float) noexcept;
VM_LIBM double atanh(double) noexcept;
VM_LIBM double erf(double) noexcept;
VM_LIBM float erfcf(float) noexcept;
VM_LIBM double erfc(double) noexcept;
VM_LIBM float log2f(float) noexcept;
VM_LIBM double log2(double) noexcept;
VM_LIBM float log10f(float) noexcept;
VM_LIBM double log10(double) noexcept;
VM_LIBM float powf(float, float) noexcept;
VM_LIBM double pow(double, double) noexcept;
VM_LIBM float atan2f(float, float) noexcept;
VM_LIBM double atan2(double, double) noexcept;
VM_LIBM float hypotf(float, float) noexcept;
VM_LIBM double hypot(double, double) noexcept;
}
LAB_INLINE float vm_sin_f32(float x) { return sinf(x); }
LAB_INLINE double vm_sin_f64(double x) { return sin(x); }
LAB_INLINE float vm_cos_f32(float x) { return cosf(x); }
LAB_INLINE double vm_cos_f64(double x) { return cos(x); }
LAB_INLINE float vm_tan_f32(float x) { return tanf(x); }
LAB_INLINE double vm_tan_f64(double x) { return tan(x); }
LAB_INLINE float vm_asin_f32(float x) { return asinf(x); }
LAB_INLINE double vm_asin_f64(double x) { return asin(x); }
LAB_INLINE float vm_acos_f32(float x) { return acosf(x); }
LAB_INLINE double vm_acos_f64(double x) { return acos(x); }
LAB_INLINE float vm_atan_f32(float x) { return atanf(x); }
LAB_INLINE double vm_atan_f64(double x) { return atan(x); }
LAB_INLINE float vm_sinh_f32(float x) { return sinhf(x); }
LAB_INLINE double vm_sinh_f64(double x) { return sinh(x); }
LAB_INLINE float vm_cosh_f32(float x) { return coshf(x); }
LAB_INLINE double vm_cosh_f64(double x) { return cosh(x); }
LAB_INLINE float vm_asinh_f32(float x) { return asinhf(x); }
LAB_INLINE double vm_asinh_f64(double x) { return asinh(x); }
LAB_INLINE float vm_acosh_f32(float x) { return acoshf(x); }
LAB_INLINE double vm_acosh_f64(double x) { return acosh(x); }
LAB_INLINE float vm_atanh_f32(float x) { return atanhf(x); }
LAB_INLINE double vm_atanh_f64(double x) { return atanh(x); }
LAB_INLINE double vm_erf_f64(double x) { return erf(x); }
LAB_INLINE float vm_erfc_f32(float x) { return erfcf(x); }
LAB_INLINE double vm_erfc_f64(double x) { return erfc(x); }
LAB_INLINE float vm_log2_f32(float x) { return log2f(x); }
LAB_INLINE double vm_log2_f64(double x) { return log2(x); }
LAB_INLINE float vm_log10_f32(float x) { return log10f(x); }
LAB_INLINE double vm_log10_f64(double x) { return log10(x); }
LAB_INLINE float vm_pow_f32(float x, float y) { return powf(x, y); }
LAB_INLINE double vm_pow_f64(double x, double y) { return pow(x, y); }
LAB_INLINE float vm_atan2_f32(float x, float y) { return atan2f(x, y); }
LAB_INLINE double vm_atan2_f64(double x, double y) { return atan2(x, y); }
LAB_INLINE float vm_hypot_f32(float x, float y) { return hypotf(x, y); }
LAB_INLINE double vm_hypot_f64(double x, double y) { return hypot(x, y); }

// ---- single instructions ----
LAB_INLINE float vm_sqrt_f32(float x) { return __builtin_sqrtf(x); }
LAB_INLINE double vm_sqrt_f64(double x) { return __builtin_sqrt(x); }
LAB_INLINE float vm_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }
LAB_INLINE double vm_rsqrt_f64(double x) { return 1.0 / __builtin_sqrt(x); }
LAB_INLINE float vm_floor_f32(float x) { return __builtin_floorf(x); }
LAB_INLINE double vm_floor_f64(double x) { return __builtin_floor(x); }
LAB_INLINE float vm_ceil_f32(float x) { return __builtin_ceilf(x); }
LAB_INLINE double vm_ceil_f64(double x) { return __builtin_ceil(x); }
LAB_INLINE float vm_trunc_f32(float x) { return __builtin_truncf(x); }
LAB_INLINE double vm_trunc_f64(double x) { return __builtin_trunc(x); }
LAB_INLINE float vm_round_f32(float x) { return __builtin_rintf(x); }
LAB_INLINE double vm_round_f64(double x) { return __builtin_rint(x); }
LAB_INLINE bool vm_isnan_f32(float x) { return x != x; }
LAB_INLINE bool vm_isnan_f64(double x) { return x != x; }
LAB_INLINE bool vm_isinf_f32(float x) { return __builtin_fabsf(x) == __builtin_inff(); }
LAB_INLINE bool vm_isinf_f64(double x) { return __builtin_fabs(x) == __builtin_inf(); }
LAB_INLINE float vm_copysign_f32(float x, float y) { return __builtin_copysignf(x, y); }
LAB_INLINE double vm_copysign_f64(double x, double y) { return __builtin_copysign(x, y); }

// ---- for every type ----
template <class T> LAB_INLINE T lab_max(T a, T b) { return (a < b || b != b) ? b : a; }  // NaN goes through
template <class T> LAB_INLINE T lab_min(T a, T b) { return (b < a || b != b) ? b : a; }
template <class T> LAB_INLINE T lab_relu(T a) { return a < T(0) ? T(0) : a; }  // NaN and -0.0 stay
template <class T> LAB_INLINE T lab_sign(T a) { return T((T(0) < a) - (a < T(0))); }
template <class To, class From> struct lab_cast_to { LAB_INLINE To of(From x) { return (To)x; } };
template <class From> struct lab_cast_to<bool, From> { LAB_INLINE bool of(From x) { return x != From(0); } };
// A float that does not fit an integer gives what the processor's instruction makes of it, as in aten. C++ leaves it undefined, and a compiler that
// knows the number makes something else of it. A narrow integer is the low bits of a wide one (of int32_t
// where aten takes int64_t, if from float: beyond 2^31 it has no bits below 256).
template <class To, class From> LAB_INLINE To lab_fitted(From x) {
  const From end = From(To(1) << (8 * sizeof(To) - 2)) * From(2);
  const To least = (To)((uint64_t)1 << (8 * sizeof(To) - 1));
#ifdef __aarch64__
  const To outside = x != x ? To(0) : x < From(0) ? least : To(~least);
#else
  const To outside = least;
#endif
  return (x > -end - From(1)) & (x < end) ? (To)x : outside;
}
#define LAB_CAST(TO, FROM, WIDE) template <> struct lab_cast_to<TO, FROM> { LAB_INLINE TO of(FROM x) { return (TO)lab_fitted<WIDE>(x); } };
LAB_CAST(int64_t, float, int64_t) LAB_CAST(int32_t, float, int32_t) LAB_CAST(int16_t, float, int32_t) LAB_CAST(int8_t, float, int32_t)
LAB_CAST(int64_t, double, int64_t) LAB_CAST(int32_t, double, int32_t) LAB_CAST(int16_t, double, int32_t) LAB_CAST(int8_t, double, int32_t)
LAB_CAST(uint8_t, float, int32_t) LAB_CAST(uint8_t, double, int64_t)
template <class To, class From> LAB_INLINE To lab_cast(From x) { return lab_cast_to<To, From>::of(x); }

LAB_INLINE float lab_abs(float a) { return __builtin_fabsf(a); }
LAB_INLINE double lab_abs(double a) { return __builtin_fabs(a); }
template <class T> LAB_INLINE T lab_abs(T a) { return a < T(0) ? T(-a) : a; }

// Division of integers: a zero divisor gives 0 and -1 wraps, where the instruction would trap.
template <class T> LAB_INLINE bool lab_divides(T b) { return b != T(0) && !(T(-1) < T(0) && b == T(-1)); }
template <class T> LAB_INLINE T lab_truncdiv(T a, T b) { return lab_divides(b) ? T(a / (lab_divides(b) ? b : T(1))) : b == T(0) ? T(0) : T(T(0) - a); }
template <class T> LAB_INLINE T lab_fmod(T a, T b) { return T(a % (lab_divides(b) ? b : T(1))); }
template <class T> LAB_INLINE T lab_mod(T a, T b) {
  T m = lab_fmod(a, b);
  return m != T(0) && ((m < T(0)) != (b < T(0))) ? T(m + b) : m;
}
template <class T> LAB_INLINE T lab_floordiv(T a, T b) {
  T m = lab_fmod(a, b), q = lab_truncdiv(a, b);
  return m != T(0) && ((m < T(0)) != (b < T(0))) ? T(q - 1) : q;
}
LAB_INLINE float lab_truncdiv(float a, float b) { return __builtin_truncf(a / b); }
LAB_INLINE double lab_truncdiv(double a, double b) { return __builtin_trunc(a / b); }
LAB_INLINE float lab_fmod(float a, float b) { return __builtin_fmodf(a, b); }
LAB_INLINE double lab_fmod(double a, double b) { return __builtin_fmod(a, b); }
LAB_INLINE float lab_mod(float a, float b) {
  float m = __builtin_fmodf(a, b);
  return m != 0.0f && ((b < 0.0f) != (m < 0.0f)) ? m + b : m;
}
LAB_INLINE double lab_mod(double a, double b) {
  double m = __builtin_fmod(a, b);
  return m != 0.0 && ((b < 0.0) != (m < 0.0)) ? m + b : m;
}
// Python's floor division, as c10::div_floor_floating: exact even where a / b rounds up to an integer.
LAB_INLINE float lab_floordiv(float a, float b) {
  float m = __builtin_fmodf(a, b), q = (a - m) / b, f;
  q = m != 0.0f && ((b < 0.0f) != (m < 0.0f)) ? q - 1.0f : q;
  f = __builtin_floorf(q);
  f = q - f > 0.5f ? f + 1.0f : f;
  f = q != 0.0f ? f : __builtin_copysignf(0.0f, a / b);
  return b == 0.0f ? a / b : f;
}
LAB_INLINE double lab_floordiv(double a, double b) {
  double m = __builtin_fmod(a, b), q = (a - m) / b, f;
  q = m != 0.0 && ((b < 0.0) != (m < 0.0)) ? q - 1.0 : q;
  f = __builtin_floor(q);
  f = q - f > 0.5 ? f + 1.0 : f;
  f = q != 0.0 ? f : __builtin_copysign(0.0, a / b);
  return b == 0.0 ? a / b : f;
}
// The inverse of erf: a rational start by ranges, two steps of Newton's method on erf itself.
LAB_INLINE double vm_erfinv_f64(double signed_y) {
  const double y = __builtin_fabs(signed_y), w = -__builtin_log((1.0 - y) * (1.0 + y)), s = w - 2.5, t = __builtin_sqrt(w) - 3.0;
  // Giles, "Approximating the erfinv function" (GPU Computing Gems, 2011)
  double a = 2.81022636e-08, b = -0.000200214257;
  a = 3.43273939e-07 + s * a, a = -3.5233877e-06 + s * a, a = -4.39150654e-06 + s * a, a = 0.00021858087 + s * a, a = -0.00125372503 + s * a;
  a = -0.00417768164 + s * a, a = 0.246640727 + s * a, a = 1.50140941 + s * a;
  b = 0.000100950558 + t * b, b = 0.00134934322 + t * b, b = -0.00367342844 + t * b, b = 0.00573950773 + t * b, b = -0.0076224613 + t * b;
  b = 0.00943887047 + t * b, b = 1.00167406 + t * b, b = 2.83297682 + t * b;
  double x = y * (w < 5.0 ? a : b);
  for (int k = 0; k < 2; k++) {  // near 1 the rest to 1 says more than erf
    const double error = y > 0.5 ? (1.0 - y) - __builtin_erfc(x) : __builtin_erf(x) - y;
    x -= error / (1.1283791670955126 * __builtin_exp(-x * x));
  }
  x = y == 1.0 ? (double)LAB_INF : y > 1.0 ? (double)LAB_NAN : y == 0.0 ? 0.0 : x;
  return __builtin_copysign(x, signed_y);
}
LAB_INLINE float vm_erfinv_f32(float y) { return (float)vm_erfinv_f64(y); }
LAB_INLINE float vm_lgamma_f32(float x) { return x == -LAB_INF ? LAB_INF : (float)__builtin_lgamma((double)x); }
LAB_INLINE double vm_lgamma_f64(double x) { return x == -(double)LAB_INF ? (double)LAB_INF : __builtin_lgamma(x); }
LAB_INLINE float vm_nextafter_f32(float a, float b) { return __builtin_nextafterf(a, b); }
LAB_INLINE double vm_nextafter_f64(double a, double b) { return __builtin_nextafter(a, b); }
LAB_INLINE bool vm_signbit_f32(float x) { return lab_bits_f32(x) >> 31; }
LAB_INLINE bool vm_signbit_f64(double x) { return lab_bits_f64(x) >> 63; }

// Integer power; a negative exponent gives what 1 / a**-b truncates to.
template <class T> LAB_INLINE T lab_ipow(T a, T b) {
  if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? ((b & T(1)) ? T(-1) : T(1)) : T(0);
  T result = 1;
  for (; b; b = T(b >> 1), a = T(a * a)) result = (b & T(1)) ? T(result * a) : result;
  return result;
}

// A shift by a negative number, or by as many bits as there are, gives what is left when all are gone.
template <class T> LAB_INLINE T lab_shift_left(T a, T b) {
  const bool all = (b < T(0)) | (b >= T(8 * sizeof(T)));
  return all ? T(0) : T((uint64_t)a << (all ? T(0) : b));
}
template <class T> LAB_INLINE T lab_shift_right(T a, T b) {
  const int most = 8 * sizeof(T) - (T(-1) < T(0));
  const bool all = (b < T(0)) | (b >= T(most));
  return sizeof(T) < 8 || !all ? T((int64_t)a >> (all ? most : (int)b)) : T(a >> most);
}

// ---- half precision: stored as bits, computed in float ----
LAB_INLINE float lab_ld_bf16(uint16_t h) { return lab_f32_bits((uint32_t)h << 16); }
LAB_INLINE uint16_t lab_st_bf16(float f) {
  uint32_t u = lab_bits_f32(f);
  return f != f ? (uint16_t)0x7fc0 : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
// binary16: the exponent is moved by a multiplication, which makes denormals come out right
LAB_INLINE float lab_ld_f16(uint16_t h) {
  float magnitude = lab_f32_bits((uint32_t)(h & 0x7fffu) << 13) * 0x1p112f;
  uint32_t u = lab_bits_f32(magnitude);
  u = (h & 0x7c00u) == 0x7c00u ? u | 0x7f800000u : u;
  return lab_f32_bits(u | ((uint32_t)(h & 0x8000u) << 16));
}
LAB_INLINE uint16_t lab_st_f16(float f) {
  uint32_t u = lab_bits_f32(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  uint32_t normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;                                // round to even, rebias
  uint32_t small = lab_bits_f32(lab_f32_bits(a) + 0.5f) - 0x3f000000u;                                  // below 2^-14: the addition rounds
  uint32_t h = a < 0x38800000u ? small : a >= 0x477ff000u ? 0x7c00u : normal;                           // 65520 and above: inf
  return (uint16_t)(sign | (a > 0x7f800000u ? 0x7e00u : h));
}

// ---- random numbers by counter: Philox 4x32-10 of a seed and a position, as core/philox.py has them ----
struct LabWords { uint32_t a, b, c, d; };
LAB_INLINE LabWords lab_philox(int64_t seed, int64_t position) {
  uint32_t a = (uint32_t)position, b = (uint32_t)((uint64_t)position >> 32), c = 0, d = 0, k = (uint32_t)seed, l = (uint32_t)((uint64_t)seed >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; round++, k += 0x9e3779b9u, l += 0xbb67ae85u) {
    const uint64_t p = (uint64_t)a * 0xd2511f53u, q = (uint64_t)c * 0xcd9e8d57u;
    const uint32_t e = (uint32_t)(q >> 32) ^ b ^ k, f = (uint32_t)(p >> 32) ^ d ^ l;
    a = e, b = (uint32_t)q, c = f, d = (uint32_t)p;
  }
  return {a, b, c, d};
}
LAB_INLINE float lab_short_uniform(uint32_t w) { return (float)(int32_t)(w >> 8) * 0x1p-24f; }
LAB_INLINE double lab_long_uniform(uint32_t high, uint32_t low) { return (double)(int64_t)(((uint64_t)high << 21) | (low >> 11)) * 0x1p-53; }
LAB_INLINE float lab_rand(int64_t seed, int64_t position) { return lab_short_uniform(lab_philox(seed, position).a); }
LAB_INLINE double lab_rand64(int64_t seed, int64_t position) {
  const LabWords w = lab_philox(seed, position);
  return lab_long_uniform(w.a, w.b);
}
LAB_INLINE float lab_randn(int64_t seed, int64_t position) {
  const LabWords w = lab_philox(seed, position);
  const float u = lab_short_uniform(w.a), v = lab_short_uniform(w.b);
  return __builtin_sqrtf(vm_log_f32(1.0f - u) * -2.0f) * vm_cos_f32(v * 0x1.921fb6p+2f);
}
LAB_INLINE double lab_randn64(int64_t seed, int64_t position) {
  const LabWords w = lab_philox(seed, position);
  const double u = lab_long_uniform(w.a, w.b), v = lab_long_uniform(w.c, w.d);
  return __builtin_sqrt(vm_log_f64(1.0 - u) * -2.0) * vm_cos_f64(v * 0x1.921fb54442d18p+2);
}
LAB_INLINE int64_t lab_randint64(int64_t seed, int64_t position, int64_t low, int64_t high) {
  const LabWords w = lab_philox(seed, position);
  return low + (int64_t)((((uint64_t)(w.b & 0x7fffffffu) << 32) | w.a) % (uint64_t)(high - low));
}
