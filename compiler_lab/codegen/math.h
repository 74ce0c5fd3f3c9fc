// Scalar functions of the generated kernels: inlined, free of branches, so that `omp simd` loops over them vectorise.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define LAB_INF __builtin_inff()
#define LAB_NAN __builtin_nanf("")

#if defined(__FMA__) || defined(__ARM_FEATURE_FMA) || defined(__aarch64__)
#define VM_FMA(a, b, c) (sizeof(c) == 4 ? (decltype(c))__builtin_fmaf(a, b, c) : (decltype(c))__builtin_fma(a, b, c))
#else
#define VM_FMA(a, b, c) ((a) * (b) + (c))
#endif
extern "C" {
float sinf(float) noexcept; double sin(double) noexcept;
float cosf(float) noexcept; double cos(double) noexcept;
float tanf(float) noexcept; double tan(double) noexcept;
float asinf(float) noexcept; double asin(double) noexcept;
float acosf(float) noexcept; double acos(double) noexcept;
float atanf(float) noexcept; double atan(double) noexcept;
float sinhf(float) noexcept; double sinh(double) noexcept;
float coshf(float) noexcept; double cosh(double) noexcept;
float asinhf(float) noexcept; double asinh(double) noexcept;
float acoshf(float) noexcept; double acosh(double) noexcept;
float atanhf(float) noexcept; double atanh(double) noexcept;
float erff(float) noexcept; double erf(double) noexcept;
float erfcf(float) noexcept; double erfc(double) noexcept;
float expf(float) noexcept; double exp(double) noexcept;
float exp2f(float) noexcept; double exp2(double) noexcept;
float expm1f(float) noexcept; double expm1(double) noexcept;
float logf(float) noexcept; double log(double) noexcept;
float log2f(float) noexcept; double log2(double) noexcept;
float log10f(float) noexcept; double log10(double) noexcept;
float log1pf(float) noexcept; double log1p(double) noexcept;
float tanhf(float) noexcept; double tanh(double) noexcept;
float powf(float, float) noexcept; double pow(double, double) noexcept;
float atan2f(float, float) noexcept; double atan2(double, double) noexcept;
float hypotf(float, float) noexcept; double hypot(double, double) noexcept;
}
static inline float vm_sin_f32(float x) { return sinf(x); }
static inline double vm_sin_f64(double x) { return sin(x); }
static inline float vm_cos_f32(float x) { return cosf(x); }
static inline double vm_cos_f64(double x) { return cos(x); }
static inline float vm_tan_f32(float x) { return tanf(x); }
static inline double vm_tan_f64(double x) { return tan(x); }
static inline float vm_asin_f32(float x) { return asinf(x); }
static inline double vm_asin_f64(double x) { return asin(x); }
static inline float vm_acos_f32(float x) { return acosf(x); }
static inline double vm_acos_f64(double x) { return acos(x); }
static inline float vm_atan_f32(float x) { return atanf(x); }
static inline double vm_atan_f64(double x) { return atan(x); }
static inline float vm_sinh_f32(float x) { return sinhf(x); }
static inline double vm_sinh_f64(double x) { return sinh(x); }
static inline float vm_cosh_f32(float x) { return coshf(x); }
static inline double vm_cosh_f64(double x) { return cosh(x); }
static inline float vm_asinh_f32(float x) { return asinhf(x); }
static inline double vm_asinh_f64(double x) { return asinh(x); }
static inline float vm_acosh_f32(float x) { return acoshf(x); }
static inline double vm_acosh_f64(double x) { return acosh(x); }
static inline float vm_atanh_f32(float x) { return atanhf(x); }
static inline double vm_atanh_f64(double x) { return atanh(x); }
static inline float vm_erf_f32(float x) { return erff(x); }
static inline double vm_erf_f64(double x) { return erf(x); }
static inline float vm_erfc_f32(float x) { return erfcf(x); }
static inline double vm_erfc_f64(double x) { return erfc(x); }
static inline float vm_exp_f32(float x) { return expf(x); }
static inline double vm_exp_f64(double x) { return exp(x); }
static inline float vm_exp2_f32(float x) { return exp2f(x); }
static inline double vm_exp2_f64(double x) { return exp2(x); }
static inline float vm_expm1_f32(float x) { return expm1f(x); }
static inline double vm_expm1_f64(double x) { return expm1(x); }
static inline float vm_log_f32(float x) { return logf(x); }
static inline double vm_log_f64(double x) { return log(x); }
static inline float vm_log2_f32(float x) { return log2f(x); }
static inline double vm_log2_f64(double x) { return log2(x); }
static inline float vm_log10_f32(float x) { return log10f(x); }
static inline double vm_log10_f64(double x) { return log10(x); }
static inline float vm_log1p_f32(float x) { return log1pf(x); }
static inline double vm_log1p_f64(double x) { return log1p(x); }
static inline float vm_tanh_f32(float x) { return tanhf(x); }
static inline double vm_tanh_f64(double x) { return tanh(x); }
static inline float vm_pow_f32(float x, float y) { return powf(x, y); }
static inline double vm_pow_f64(double x, double y) { return pow(x, y); }
static inline float vm_atan2_f32(float x, float y) { return atan2f(x, y); }
static inline double vm_atan2_f64(double x, double y) { return atan2(x, y); }
static inline float vm_hypot_f32(float x, float y) { return hypotf(x, y); }
static inline double vm_hypot_f64(double x, double y) { return hypot(x, y); }

static inline float vm_sigmoid_f32(float x) { return 1.0f / (1.0f + vm_exp_f32(-x)); }
static inline double vm_sigmoid_f64(double x) { return 1.0 / (1.0 + vm_exp_f64(-x)); }

// ---- single instructions ----
static inline float vm_sqrt_f32(float x) { return __builtin_sqrtf(x); }
static inline double vm_sqrt_f64(double x) { return __builtin_sqrt(x); }
static inline float vm_rsqrt_f32(float x) { return 1.0f / __builtin_sqrtf(x); }
static inline double vm_rsqrt_f64(double x) { return 1.0 / __builtin_sqrt(x); }
static inline float vm_floor_f32(float x) { return __builtin_floorf(x); }
static inline double vm_floor_f64(double x) { return __builtin_floor(x); }
static inline float vm_ceil_f32(float x) { return __builtin_ceilf(x); }
static inline double vm_ceil_f64(double x) { return __builtin_ceil(x); }
static inline float vm_trunc_f32(float x) { return __builtin_truncf(x); }
static inline double vm_trunc_f64(double x) { return __builtin_trunc(x); }
static inline float vm_round_f32(float x) { return __builtin_rintf(x); }
static inline double vm_round_f64(double x) { return __builtin_rint(x); }
static inline bool vm_isnan_f32(float x) { return x != x; }
static inline bool vm_isnan_f64(double x) { return x != x; }
static inline bool vm_isinf_f32(float x) { return __builtin_fabsf(x) == __builtin_inff(); }
static inline bool vm_isinf_f64(double x) { return __builtin_fabs(x) == __builtin_inf(); }
static inline float vm_copysign_f32(float x, float y) { return __builtin_copysignf(x, y); }
static inline double vm_copysign_f64(double x, double y) { return __builtin_copysign(x, y); }

// ---- for every type ----
template <class T> static inline T lab_max(T a, T b) { return (a < b || b != b) ? b : a; }  // NaN goes through
template <class T> static inline T lab_min(T a, T b) { return (b < a || b != b) ? b : a; }
template <class T> static inline T lab_relu(T a) { return a < T(0) ? T(0) : a; }  // NaN and -0.0 stay
template <class T> static inline T lab_sign(T a) { return T((T(0) < a) - (a < T(0))); }
template <class To, class From> struct lab_cast_to { static inline To of(From x) { return (To)x; } };
template <class From> struct lab_cast_to<bool, From> { static inline bool of(From x) { return x != From(0); } };
template <class To, class From> static inline To lab_cast(From x) { return lab_cast_to<To, From>::of(x); }

static inline float lab_abs(float a) { return __builtin_fabsf(a); }
static inline double lab_abs(double a) { return __builtin_fabs(a); }
template <class T> static inline T lab_abs(T a) { return a < T(0) ? T(-a) : a; }

// Division of integers: a zero divisor gives 0 and -1 wraps, where the instruction would trap.
template <class T> static inline T lab_truncdiv(T a, T b) { return b == T(0) ? T(0) : b == T(-1) ? T(T(0) - a) : T(a / (b == T(0) || b == T(-1) ? T(1) : b)); }
template <class T> static inline T lab_fmod(T a, T b) { return b == T(0) || b == T(-1) ? T(0) : T(a % (b == T(0) || b == T(-1) ? T(1) : b)); }
template <class T> static inline T lab_mod(T a, T b) {
  T m = lab_fmod(a, b);
  return m != T(0) && ((m < T(0)) != (b < T(0))) ? T(m + b) : m;
}
template <class T> static inline T lab_floordiv(T a, T b) {
  T m = lab_fmod(a, b), q = lab_truncdiv(a, b);
  return m != T(0) && ((m < T(0)) != (b < T(0))) ? T(q - 1) : q;
}
static inline float lab_truncdiv(float a, float b) { return __builtin_truncf(a / b); }
static inline double lab_truncdiv(double a, double b) { return __builtin_trunc(a / b); }
static inline float lab_fmod(float a, float b) { return __builtin_fmodf(a, b); }
static inline double lab_fmod(double a, double b) { return __builtin_fmod(a, b); }
static inline float lab_mod(float a, float b) {
  float m = __builtin_fmodf(a, b);
  return m != 0.0f && ((b < 0.0f) != (m < 0.0f)) ? m + b : m;
}
static inline double lab_mod(double a, double b) {
  double m = __builtin_fmod(a, b);
  return m != 0.0 && ((b < 0.0) != (m < 0.0)) ? m + b : m;
}
// Python's floor division, as c10::div_floor_floating: exact even where a / b rounds up to an integer.
static inline float lab_floordiv(float a, float b) {
  float m = __builtin_fmodf(a, b), q = (a - m) / b, f;
  q = m != 0.0f && ((b < 0.0f) != (m < 0.0f)) ? q - 1.0f : q;
  f = __builtin_floorf(q);
  f = q - f > 0.5f ? f + 1.0f : f;
  f = q != 0.0f ? f : __builtin_copysignf(0.0f, a / b);
  return b == 0.0f ? a / b : f;
}
static inline double lab_floordiv(double a, double b) {
  double m = __builtin_fmod(a, b), q = (a - m) / b, f;
  q = m != 0.0 && ((b < 0.0) != (m < 0.0)) ? q - 1.0 : q;
  f = __builtin_floor(q);
  f = q - f > 0.5 ? f + 1.0 : f;
  f = q != 0.0 ? f : __builtin_copysign(0.0, a / b);
  return b == 0.0 ? a / b : f;
}
// Integer power; a negative exponent gives what 1 / a**-b truncates to.
template <class T> static inline T lab_ipow(T a, T b) {
  if (b < T(0)) return a == T(1) ? T(1) : a == T(-1) ? ((b & T(1)) ? T(-1) : T(1)) : T(0);
  T result = 1;
  for (; b; b = T(b >> 1), a = T(a * a)) result = (b & T(1)) ? T(result * a) : result;
  return result;
}

// ---- half precision: stored as bits, computed in float ----
static inline uint32_t lab_bits_f32(float f) { uint32_t u; __builtin_memcpy(&u, &f, 4); return u; }
static inline float lab_f32_bits(uint32_t u) { float f; __builtin_memcpy(&f, &u, 4); return f; }
static inline float lab_ld_bf16(uint16_t h) { return lab_f32_bits((uint32_t)h << 16); }
static inline uint16_t lab_st_bf16(float f) {
  uint32_t u = lab_bits_f32(f);
  return f != f ? (uint16_t)0x7fc0 : (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}
// binary16: the exponent is moved by a multiplication, which makes denormals come out right
static inline float lab_ld_f16(uint16_t h) {
  float magnitude = lab_f32_bits((uint32_t)(h & 0x7fffu) << 13) * 0x1p112f;
  uint32_t u = lab_bits_f32(magnitude);
  u = (h & 0x7c00u) == 0x7c00u ? u | 0x7f800000u : u;
  return lab_f32_bits(u | ((uint32_t)(h & 0x8000u) << 16));
}
static inline uint16_t lab_st_f16(float f) {
  uint32_t u = lab_bits_f32(f), sign = (u >> 16) & 0x8000u, a = u & 0x7fffffffu;
  uint32_t normal = (a + 0xfffu + ((a >> 13) & 1u) - 0x38000000u) >> 13;                                // round to even, rebias
  uint32_t small = lab_bits_f32(lab_f32_bits(a) + 0.5f) - 0x3f000000u;                                  // below 2^-14: the addition rounds
  uint32_t h = a < 0x38800000u ? small : a >= 0x477ff000u ? 0x7c00u : normal;                           // 65520 and above: inf
  return (uint16_t)(sign | (a > 0x7f800000u ? 0x7e00u : h));
}
