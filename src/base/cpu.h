/* What this CPU and this process may use. Read once, never changes. */
#ifndef SMOE_BASE_CPU_H
#define SMOE_BASE_CPU_H

#include <stdbool.h>
#include <stdint.h>

enum cpu_feature {
    CPU_AVX2 = 1,   /* AVX2, FMA, F16C, with OS support for YMM */
    CPU_AVX512 = 2, /* F, BW, VL, DQ, with OS support for ZMM */
    CPU_AVX512_VNNI = 4,
    CPU_AVX512_BF16 = 8,
    CPU_AVX_VNNI = 16,
    CPU_ASIMD_DOT = 32 /* aarch64: ASIMD with dot products */
};

unsigned cpu_features(void); /* bits of cpu_feature; 0 on other architectures */
int cpu_count(void);         /* CPUs in this process's affinity mask, at least 1 */

#endif
