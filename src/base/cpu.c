/* CPUID by hand, since clang 14 and gcc 12 know different names for __builtin_cpu_supports; on
 * aarch64 what the kernel says. */
#include "base/cpu.h"

#include <sched.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static uint64_t xgetbv0(void) {
    uint32_t lo;
    uint32_t hi;
    __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
    return (uint64_t)hi << 32 | lo;
}

unsigned cpu_features(void) {
    enum { XCR0_YMM = 0x6, XCR0_ZMM = 0xe6, XCR0_TILES = 0x60000 };
    unsigned a, b, c, d, found = 0;
    if (!__get_cpuid(1, &a, &b, &c, &d)) {
        return 0;
    }
    bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, f16c = c >> 29 & 1;
    uint64_t xcr0 = osxsave ? xgetbv0() : 0;
    if ((xcr0 & XCR0_YMM) != XCR0_YMM || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        return 0;
    }
    unsigned max_sub = a;
    if ((b >> 5 & 1) && fma && f16c) {
        found |= CPU_AVX2;
    }
    bool zmm = (xcr0 & XCR0_ZMM) == XCR0_ZMM;
    bool f = b >> 16 & 1, dq = b >> 17 & 1, bw = b >> 30 & 1, vl = b >> 31 & 1;
    if (zmm && f && dq && bw && vl && (found & CPU_AVX2)) {
        found |= CPU_AVX512;
        found |= c >> 11 & 1 ? CPU_AVX512_VNNI : 0;
    }
    bool bf16 = d >> 22 & 1, tile = d >> 24 & 1, int8 = d >> 25 & 1;
    if ((xcr0 & XCR0_TILES) == XCR0_TILES && bf16 && tile && int8) {
        found |= CPU_AMX;
    }
    if (max_sub >= 1 && __get_cpuid_count(7, 1, &a, &b, &c, &d)) {
        found |= a >> 4 & 1 ? CPU_AVX_VNNI : 0;
        found |= (found & CPU_AVX512) && (a >> 5 & 1) ? CPU_AVX512_BF16 : 0;
    }
    return found;
}

bool cpu_ask_for_tiles(void) {
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 }; /* asm/prctl.h since Linux 5.16 */
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

unsigned cpu_features(void) {
    const unsigned long need = 1ul << 1 | 1ul << 20; /* HWCAP_ASIMD, HWCAP_ASIMDDP */
    return (getauxval(AT_HWCAP) & need) == need ? CPU_ASIMD_DOT : 0;
}
#else
unsigned cpu_features(void) {
    return 0;
}
#endif

#if !defined(__x86_64__)
bool cpu_ask_for_tiles(void) {
    return false;
}
#endif

int cpu_count(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > 0 ? n : 1;
}
