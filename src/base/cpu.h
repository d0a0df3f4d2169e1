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
    CPU_ASIMD_DOT = 32, /* aarch64: ASIMD with dot products */
    CPU_AMX = 64        /* TILE, INT8 and BF16, with OS support for tiles; see cpu_ask_for_tiles */
};

unsigned cpu_features(void); /* bits of cpu_feature; 0 on other architectures */
/* Whether Linux lets this process use CPU_AMX's tiles. It wants to be asked, since they enlarge
 * what is saved of a thread; whoever asked once may use them in all threads. */
bool cpu_ask_for_tiles(void);
int cpu_count(void); /* CPUs in this process's affinity mask, at least 1 */

#endif
