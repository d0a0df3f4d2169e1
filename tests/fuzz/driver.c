/* A main for fuzz targets where libFuzzer is not: replays files and folders of files, in order of
 * their names, through LLVMFuzzerTestOneInput.
 *
 *     fuzz_json PATH...
 *
 * Each input ends right before an unmapped page, so that reading past it faults without a sanitizer
 * too. An input that crashes or takes more than ten seconds is named.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerInitialize(int *argc, char ***argv) __attribute__((weak));
void __sanitizer_set_death_callback(void (*fn)(void)) __attribute__((weak));

enum { LIMIT_S = 10, PATH_BYTES = 4096 };

static char now_path[PATH_BYTES]; /* for the signal handler */
static int n_input;

static void name_input(void) {
    static const char before[] = "\nfuzz input: ";
    if (write(STDERR_FILENO, before, sizeof before - 1) < 0 ||
        write(STDERR_FILENO, now_path, strlen(now_path)) < 0 || write(STDERR_FILENO, "\n", 1) < 0) {
        _exit(1);
    }
}

/* Names the input, then ends as the signal would. */
static void on_signal(int sig) {
    name_input();
    signal(sig, SIG_DFL);
    raise(sig);
}

/* A sanitizer keeps its own handlers, which print more, and calls back before it ends. */
static void watch(void) {
    static const int crashes[] = {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL};
    signal(SIGALRM, on_signal);
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(name_input);
        return;
    }
    for (size_t i = 0; i < sizeof crashes / sizeof crashes[0]; i++) {
        signal(crashes[i], on_signal);
    }
}

static bool complain(const char *path) {
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return false;
}

/* The whole content, right before an unmapped page; the map and its size for munmap. */
static bool load(int fd, size_t bytes, uint8_t **data, void **map, size_t *map_bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t body = (bytes + page - 1) / page * page;
    *map_bytes = body + page;
    *map = mmap(NULL, *map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (*map == MAP_FAILED || mprotect((char *)*map + body, page, PROT_NONE) != 0) {
        return false;
    }
    *data = (uint8_t *)*map + body - bytes;
    for (size_t got = 0; got < bytes;) {
        ssize_t n = read(fd, *data + got, bytes - got);
        if (n <= 0) {
            return false;
        }
        got += (size_t)n;
    }
    return true;
}

static bool replay_file(const char *path, size_t bytes) {
    uint8_t *data;
    void *map;
    size_t map_bytes;
    int fd = open(path, O_RDONLY);
    if (fd < 0 || !load(fd, bytes, &data, &map, &map_bytes)) {
        return complain(path);
    }
    close(fd);
    snprintf(now_path, sizeof now_path, "%s", path);
    alarm(LIMIT_S);
    LLVMFuzzerTestOneInput(data, bytes);
    alarm(0);
    munmap(map, map_bytes);
    n_input++;
    return true;
}

static bool replay(const char *path);

static bool replay_dir(const char *path) {
    struct dirent **entry;
    int n = scandir(path, &entry, NULL, alphasort);
    if (n < 0) {
        return complain(path);
    }
    bool ok = true;
    for (int i = 0; i < n; i++) {
        char child[PATH_BYTES];
        int len = snprintf(child, sizeof child, "%s/%s", path, entry[i]->d_name);
        if (entry[i]->d_name[0] != '.' && len > 0 && (size_t)len < sizeof child) {
            ok = replay(child) && ok;
        }
        free(entry[i]);
    }
    free(entry);
    return ok;
}

static bool replay(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) {
        return complain(path);
    }
    return S_ISDIR(st.st_mode) ? replay_dir(path) : replay_file(path, (size_t)st.st_size);
}

int main(int argc, char **argv) {
    watch();
    if (LLVMFuzzerInitialize) {
        LLVMFuzzerInitialize(&argc, &argv);
    }
    bool ok = argc > 1;
    for (int i = 1; i < argc; i++) {
        ok = replay(argv[i]) && ok;
    }
    printf("%d inputs\n", n_input);
    return ok && n_input > 0 ? 0 : 1;
}
