/* Builds the kernel tables once and picks one by what the CPU has. Owns the static tables; computes
 * nothing itself. */
#include <pthread.h>
#include <string.h>

#include "base/cpu.h"
#include "kernels/ggml_impl.h"

static const char *const known[] = {"portable", "avx2", "avxvnni", "avx512", "amx", "neon"};
enum { MAX_VARIANTS = sizeof known / sizeof *known };

static kernels variant[MAX_VARIANTS];
static int n_variant;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void build(void) {
    kernels_fill_portable(&variant[n_variant]);
    kernels_fill_ggml_portable(&variant[n_variant++]);
#if defined(__x86_64__)
    unsigned need = CPU_AVX512 | CPU_AVX512_VNNI;
    if (cpu_features() & CPU_AVX2) {
        variant[n_variant] = variant[n_variant - 1];
        kernels_fill_avx2(&variant[n_variant]);
        kernels_fill_ggml_avx2(&variant[n_variant++]);
        if (cpu_features() & CPU_AVX_VNNI) {
            variant[n_variant] = variant[n_variant - 1];
            kernels_fill_avxvnni(&variant[n_variant]);
            kernels_share_q8_0(&variant[n_variant++]);
        }
        if ((cpu_features() & need) == need) {
            variant[n_variant] = variant[n_variant - 1];
            kernels_fill_avx512(&variant[n_variant]);
            kernels_share_q8_0(&variant[n_variant++]);
            if ((cpu_features() & CPU_AMX) && cpu_ask_for_tiles()) {
                variant[n_variant] = variant[n_variant - 1];
                kernels_fill_amx(&variant[n_variant]);
                kernels_share_q8_0(&variant[n_variant++]);
            }
        }
    }
#elif defined(__aarch64__)
    if (cpu_features() & CPU_ASIMD_DOT) {
        variant[n_variant] = variant[n_variant - 1];
        kernels_fill_neon(&variant[n_variant]);
        kernels_fill_ggml_neon(&variant[n_variant++]);
    }
#endif
}

const kernels *kernels_variant(int i) {
    pthread_once(&once, build);
    return i >= 0 && i < n_variant ? &variant[i] : NULL;
}

int kernels_select(const kernels **out, const char *isa, smoe_error *err) {
    *out = NULL;
    bool any = !isa || strcmp(isa, "auto") == 0;
    for (int i = 0; kernels_variant(i); i++) {
        if (any || strcmp(isa, kernels_variant(i)->name) == 0) {
            *out = kernels_variant(i);
        }
    }
    if (*out || !isa) {
        return SMOE_OK;
    }
    const char *best = kernels_variant(n_variant - 1)->name;
    for (size_t i = 0; i < MAX_VARIANTS; i++) {
        if (strcmp(isa, known[i]) == 0) {
            return err_set(err, SMOE_ERR_UNSUPPORTED,
                           "the %s kernels do not run here (the best that do are %s)", isa, best);
        }
    }
    return err_set(
        err, SMOE_ERR_ARGUMENT,
        "no kernels named %s (auto, portable, avx2, avxvnni, avx512, amx, neon; best here: %s)",
        isa, best);
}
