/* Private to kernels/: the 256-bit helpers that every x86 file shares. All is inlined, so that each
 * file gets its own copy compiled for its instruction set. Needs AVX2, FMA and F16C.
 */
#ifndef SMOE_KERNELS_X86_VECTOR_H
#define SMOE_KERNELS_X86_VECTOR_H

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE __m128i load_128(const void *p) {
    return _mm_loadu_si128((const __m128i *)p);
}

ALWAYS_INLINE __m256i load_256(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

/* The f16 at p in all lanes, converted. */
ALWAYS_INLINE __m256 scale_f16(const void *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)h));
}

/* Lane i of the result is the sum of vector i's lanes, always by the same tree. */
ALWAYS_INLINE __m128 sum_lanes_4(__m256 a, __m256 b, __m256 c, __m256 d) {
    __m256 s = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    return _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}

ALWAYS_INLINE float sum_lanes(__m256 a) {
    return _mm_cvtss_f32(sum_lanes_4(a, a, a, a));
}

/* acc += a dword of codes * q[0..3], lane by lane, with AVX-512 VNNI; lanes: 8 or 16, of 32 bits.
 * The product itself broadcasts q, which gcc 12 makes two instructions of. */
typedef int32_t any_dword __attribute__((aligned(1), may_alias));
#define DOT_BROADCAST(lanes, acc, code, q)                                                         \
    __asm__("vpdpbusd %2%{1to" #lanes "%}, %1, %0"                                                 \
            : "+v"(acc)                                                                            \
            : "v"(code), "m"(*(const any_dword *)(const void *)(q)))
/* The same, in the order in which it is written among its like. */
#define DOT_BROADCAST_IN_ORDER(lanes, acc, code, q)                                                \
    __asm__ volatile("vpdpbusd %2%{1to" #lanes "%}, %1, %0"                                        \
                     : "+v"(acc)                                                                   \
                     : "v"(code), "m"(*(const any_dword *)(const void *)(q)))

#endif
