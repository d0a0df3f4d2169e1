/* Allocation helpers; see mem.h. Owns no state of its own. */
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/topology.h"

#define ARENA_ALIGN_BYTES 64u
#define ARENA_BLOCK_BYTES (64u << 10)

struct arena_block {
    struct arena_block *next;
    size_t used_bytes;
    size_t cap_bytes;
    /* data follows, at the next multiple of ARENA_ALIGN_BYTES */
};

void *mem_array(size_t n, size_t size) {
    return calloc(n ? n : 1, size ? size : 1);
}

char *mem_copy_text(const char *text, size_t n) {
    if (n == SIZE_MAX) {
        return NULL;
    }
    char *copy = malloc(n + 1);
    if (copy) {
        memcpy(copy, text, n);
        copy[n] = '\0';
    }
    return copy;
}

static struct arena_block *new_block(size_t data_bytes) {
    size_t total;
    if (__builtin_add_overflow(data_bytes, 2u * ARENA_ALIGN_BYTES, &total)) {
        return NULL;
    }
    total = (size_t)round_up(total, ARENA_ALIGN_BYTES);
    struct arena_block *b = aligned_alloc(ARENA_ALIGN_BYTES, total);
    if (b) {
        b->next = NULL;
        b->used_bytes = ARENA_ALIGN_BYTES;
        b->cap_bytes = total;
    }
    return b;
}

void *arena_get(arena *a, size_t n, size_t size) {
    size_t want;
    if (__builtin_mul_overflow(n, size, &want) || want > SIZE_MAX / 2) {
        return NULL;
    }
    want = (size_t)round_up(want ? want : 1, ARENA_ALIGN_BYTES);
    struct arena_block *b = a->head;
    if (!b || b->cap_bytes - b->used_bytes < want) {
        b = new_block(want > ARENA_BLOCK_BYTES ? want : ARENA_BLOCK_BYTES);
        if (!b) {
            return NULL;
        }
        b->next = a->head;
        a->head = b;
        a->total_bytes += b->cap_bytes;
    }
    void *p = (char *)b + b->used_bytes;
    b->used_bytes += want;
    return memset(p, 0, want);
}

char *arena_text(arena *a, const char *text, size_t n) {
    char *copy = n < SIZE_MAX ? arena_get(a, n + 1, 1) : NULL;
    if (copy) {
        memcpy(copy, text, n);
    }
    return copy;
}

void arena_free(arena *a) {
    struct arena_block *b = a->head;
    while (b) {
        struct arena_block *next = b->next;
        free(b);
        b = next;
    }
    *a = (arena){0};
}

int mem_map(void **base, uint64_t bytes, smoe_error *err) {
    *base = NULL;
    if (bytes == 0 || bytes > SIZE_MAX / 2) {
        return err_no_memory(err, bytes);
    }
    void *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        return err_no_memory(err, bytes);
    }
    topology_spread(p, bytes);
    *base = p;
    return SMOE_OK;
}

void mem_unmap(void *base, uint64_t bytes) {
    if (base) {
        munmap(base, (size_t)bytes);
    }
}

int mem_reserve(void **base, uint64_t bytes, uint64_t most_bytes, smoe_error *err) {
    *base = NULL;
    if (bytes == 0 || bytes > most_bytes || most_bytes > SIZE_MAX / 2) {
        return err_no_memory(err, bytes);
    }
    /* without access nothing is promised, so that a system that counts promises agrees */
    void *p = mmap(NULL, (size_t)most_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                   -1, 0);
    if (p == MAP_FAILED) {
        return err_no_memory(err, most_bytes);
    }
    topology_spread(p, most_bytes);
    int rc = mem_resize(p, 0, bytes, err);
    if (rc != SMOE_OK) {
        mem_unmap(p, most_bytes);
        return rc;
    }
    *base = p;
    return SMOE_OK;
}

int mem_resize(void *base, uint64_t from_bytes, uint64_t to_bytes, smoe_error *err) {
    char *at = base;
    if (to_bytes > from_bytes) {
        uint64_t more = to_bytes - from_bytes;
        if (mprotect(at + from_bytes, (size_t)more, PROT_READ | PROT_WRITE) != 0) {
            return err_no_memory(err, more);
        }
    } else if (to_bytes < from_bytes) {
        uint64_t less = from_bytes - to_bytes;
        /* in this order the pages are gone even where the second call fails */
        (void)madvise(at + to_bytes, (size_t)less, MADV_DONTNEED);
        (void)mprotect(at + to_bytes, (size_t)less, PROT_NONE);
    }
    return SMOE_OK;
}

static int buf_reserve(byte_buf *b, size_t more_bytes, smoe_error *err) {
    size_t need;
    if (__builtin_add_overflow(b->bytes, more_bytes, &need) || need > b->max_bytes) {
        return err_set(err, SMOE_ERR_MEMORY, "text grows past its limit of %zu bytes",
                       b->max_bytes);
    }
    if (need + 1 <= b->cap_bytes) {
        return SMOE_OK;
    }
    size_t cap = b->cap_bytes ? b->cap_bytes * 2 : 256;
    cap = cap < need + 1 ? need + 1 : cap;
    char *data = realloc(b->data, cap);
    if (!data) {
        return err_no_memory(err, cap);
    }
    b->data = data;
    b->cap_bytes = cap;
    return SMOE_OK;
}

int buf_append(byte_buf *b, const void *data, size_t bytes, smoe_error *err) {
    int rc = buf_reserve(b, bytes, err);
    if (rc == SMOE_OK) {
        if (bytes) {
            memcpy(b->data + b->bytes, data, bytes);
        }
        b->bytes += bytes;
        b->data[b->bytes] = '\0';
    }
    return rc;
}

int buf_printf(byte_buf *b, smoe_error *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        return err_set(err, SMOE_ERR_ARGUMENT, "cannot format text");
    }
    int rc = buf_reserve(b, (size_t)n, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    va_start(args, format);
    vsnprintf(b->data + b->bytes, (size_t)n + 1, format, args);
    va_end(args);
    b->bytes += (size_t)n;
    return SMOE_OK;
}

void buf_free(byte_buf *b) {
    free(b->data);
    b->data = NULL;
    b->bytes = b->cap_bytes = 0;
}
