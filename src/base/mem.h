/* Allocation helpers: checked sizes, an arena for things that live as long as their owner, and
 * page-aligned maps for the large budgets of the plan.
 *
 * All functions return NULL on failure and never abort. Nothing here is called from the prefill or
 * decode loops.
 */
#ifndef SMOE_BASE_MEM_H
#define SMOE_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/error.h"

/* Zeroed array of n elements; NULL when n * size overflows or memory is out. */
void *mem_array(size_t n, size_t size) __attribute__((malloc, alloc_size(1, 2)));
/* Copy of n bytes with a NUL behind them. */
char *mem_copy_text(const char *text, size_t n) __attribute__((malloc));

static inline uint64_t round_up(uint64_t v, uint64_t to) {
    return (v + to - 1) / to * to;
}

/* A bump allocator: blocks are freed together. Zero-initialise; not thread safe. */
typedef struct arena {
    struct arena_block *head;
    uint64_t total_bytes; /* held from the system */
} arena;

/* Zeroed, 64-byte aligned. */
void *arena_get(arena *a, size_t n, size_t size) __attribute__((alloc_size(2, 3)));
char *arena_text(arena *a, const char *text, size_t n);
void arena_free(arena *a);

/* Anonymous zeroed pages; *base is the caller's (mem_unmap), NULL and 0 bytes after failure. */
int mem_map(void **base, uint64_t bytes, smoe_error *err);
void mem_unmap(void *base, uint64_t bytes);
/* Addresses for at most most_bytes, of which the first bytes can be used; mem_resize changes that.
 * Multiples of the page size. What is given up is empty when it comes back. mem_unmap frees all of
 * most_bytes. */
int mem_reserve(void **base, uint64_t bytes, uint64_t most_bytes, smoe_error *err);
int mem_resize(void *base, uint64_t from_bytes, uint64_t to_bytes, smoe_error *err);

/* A growing byte buffer with a maximum; zero-initialise and set max_bytes. After a failure it keeps
 * its content and buf_append returns SMOE_ERR_MEMORY. */
typedef struct byte_buf {
    char *data; /* NUL-terminated once anything was appended */
    size_t bytes;
    size_t cap_bytes;
    size_t max_bytes;
} byte_buf;
int buf_append(byte_buf *b, const void *data, size_t bytes, smoe_error *err);
int buf_printf(byte_buf *b, smoe_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void buf_free(byte_buf *b);

#endif
