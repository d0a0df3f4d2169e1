/* The test program's own malloc: counts, reports while allocation is forbidden, and refuses on
 * request. The work is done by glibc's allocator under its second names, so that blocks may cross
 * between the two. Being in the program, these definitions also serve the shared libraries it uses.
 *
 * Everything here may run on any thread and before main, so it uses atomics only, and never
 * allocates while answering.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "harness.h"
#include "test.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) ||                         \
    __has_feature(memory_sanitizer)
#define SANITIZED 1
#endif
#endif

#if defined(__GLIBC__) && defined(__LP64__) && !defined(SANITIZED)

#include <execinfo.h>

#define EXPORT __attribute__((visibility("default")))

enum { MAX_FRAMES = 32 };

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t bytes);
void *__libc_memalign(size_t align, size_t bytes);
void __libc_free(void *p);
/* from the linker: where the program's own code begins and ends */
extern char __executable_start[];
extern char etext[];

static atomic_bool is_forbidden;
static atomic_uint_fast64_t n_total;
static atomic_uint_fast64_t n_violation;
static atomic_uint_fast64_t refuse_from; /* the count at which refusing begins; 0: never */
static atomic_bool has_refused;
static atomic_bool has_frames;
static void *frames[MAX_FRAMES]; /* of the first violation; complete once has_frames is set */
static int n_frame;

/* backtrace() loads libgcc, and allocates, at its first call: have that behind us. */
__attribute__((constructor)) static void warm_backtrace(void) {
    void *frame[1];
    backtrace(frame, 1);
}

/* Counts one allocation asked for by the code at caller; false when it is to be refused. Only the
 * program's own requests are: json-c 0.16 goes on with the NULL of a refused one and crashes. */
static bool admit(const void *caller) {
    uint64_t n = atomic_fetch_add(&n_total, 1) + 1;
    if (atomic_load(&is_forbidden) && atomic_fetch_add(&n_violation, 1) == 0) {
        n_frame = backtrace(frames, MAX_FRAMES);
        atomic_store(&has_frames, true);
    }
    uint64_t from = atomic_load(&refuse_from);
    bool own = (const char *)caller >= __executable_start && (const char *)caller < etext;
    if (from != 0 && n >= from && own) {
        atomic_store(&has_refused, true);
        errno = ENOMEM;
        return false;
    }
    return true;
}

EXPORT void *malloc(size_t bytes) {
    return admit(__builtin_return_address(0)) ? __libc_malloc(bytes) : NULL;
}

EXPORT void *calloc(size_t n, size_t size) {
    return admit(__builtin_return_address(0)) ? __libc_calloc(n, size) : NULL;
}

EXPORT void *realloc(void *p, size_t bytes) {
    return admit(__builtin_return_address(0)) ? __libc_realloc(p, bytes) : NULL;
}

EXPORT void *reallocarray(void *p, size_t n, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(p, bytes);
}

EXPORT void *memalign(size_t align, size_t bytes);
EXPORT void *memalign(size_t align, size_t bytes) {
    return admit(__builtin_return_address(0)) ? __libc_memalign(align, bytes) : NULL;
}

EXPORT void *aligned_alloc(size_t align, size_t bytes) {
    return memalign(align, bytes);
}

EXPORT void *valloc(size_t bytes) {
    return memalign((size_t)sysconf(_SC_PAGESIZE), bytes);
}

EXPORT int posix_memalign(void **out, size_t align, size_t bytes) {
    if (align % sizeof(void *) != 0 || align == 0 || (align & (align - 1)) != 0) {
        return EINVAL;
    }
    int saved = errno;
    void *p = memalign(align, bytes);
    errno = saved;
    if (!p) {
        return ENOMEM;
    }
    *out = p;
    return 0;
}

EXPORT void free(void *p) {
    __libc_free(p);
}

/* Only fresh memory counts as an allocation, not a file. */
EXPORT void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset) {
    if ((flags & MAP_ANONYMOUS) && !admit(__builtin_return_address(0))) {
        return MAP_FAILED;
    }
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

bool alloc_guard_active(void) {
    return true;
}

void alloc_guard_forbid(bool on) {
    atomic_store(&is_forbidden, on);
}

uint64_t alloc_guard_violations(void) {
    return atomic_load(&n_violation);
}

void alloc_guard_fail_at(uint64_t n) {
    atomic_store(&refuse_from, 0);
    if (n != 0) {
        atomic_store(&has_refused, false);
        atomic_store(&refuse_from, atomic_load(&n_total) + n);
    }
}

bool alloc_guard_has_failed(void) {
    return atomic_load(&has_refused);
}

uint64_t alloc_guard_count(void) {
    return atomic_load(&n_total);
}

/* Names and lines come from addr2line when it is there, since most functions are static. */
void alloc_guard_report(void) {
    if (!atomic_load(&has_frames)) {
        return;
    }
    fprintf(stderr, "%llu allocations where none is allowed; the first one:\n",
            (unsigned long long)alloc_guard_violations());
    fflush(stderr);
    backtrace_symbols_fd(frames, n_frame, STDERR_FILENO);
    char command[1024];
    int n = snprintf(command, sizeof command, "addr2line -sfpe /proc/%d/exe", (int)getpid());
    for (int i = 2; i < n_frame && n > 0 && (size_t)n < sizeof command - 64; i++) {
        uintptr_t offset = (uintptr_t)frames[i] - (uintptr_t)__executable_start - 1;
        if (offset < (uintptr_t)1 << 28) { /* not one of a shared library */
            n += snprintf(command + n, sizeof command - (size_t)n, " 0x%zx", (size_t)offset);
        }
    }
    snprintf(command + n, sizeof command - (size_t)n, " >&2 2>/dev/null");
    if (system(command) != 0) {
        fputs("(addr2line would name the lines)\n", stderr);
    }
}

#else

bool alloc_guard_active(void) {
    return false;
}

void alloc_guard_forbid(bool on) {
    (void)on;
}

uint64_t alloc_guard_violations(void) {
    return 0;
}

void alloc_guard_fail_at(uint64_t n) {
    (void)n;
}

bool alloc_guard_has_failed(void) {
    return false;
}

uint64_t alloc_guard_count(void) {
    return 0;
}

void alloc_guard_report(void) {
}

#endif
