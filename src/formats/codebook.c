/* The value tables of the Q4 and Q2 block types. Part of the file format: never edit them.
 *
 * Where they come from: `smoe-bench codebooks` (bench/bench_codebooks.c) runs the alternation of
 * Lloyd and Max over blocks of normal values, a quarter of them heavy-tailed (Student's t, 6
 * degrees of freedom), each block with its best scale and, since scales may be negative, its best
 * sign. The results were scaled to the integers below and rounded.
 *
 * All values lie within -64 to 63, so that kernels can add 64 and multiply unsigned by signed bytes
 * without saturation: 127 * 127 * 2 < 2^15.
 */
#include "formats/dtype.h"

const int8_t Q4_CODEBOOK[16] = {-64, -51, -41, -32, -25, -19, -13, -7,
                                -2,  3,   8,   14,  20,  28,  37,  49};

const int8_t Q2_CODEBOOK[4][4] = {
    {-62, -22, 8, 44},
    {-32, -3, 24, 62},
    {-62, -24, -2, 20},
    {-53, -15, 17, 62},
};
