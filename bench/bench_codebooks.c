#include "bench.h"
int bench_codebooks(int argc, char **argv) {
    (void)argc; (void)argv; return 0;
}
