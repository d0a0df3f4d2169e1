/* What a run learns about a model's experts, kept for the next: NAME.heat beside a vault or GGUF
 * file, else a file in the user's cache folder. Owns where it lies; what it holds is
 * streamer/heat.h. Nothing here may fail a run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cache_dir.h"
#include "base/file.h"
#include "base/limits.h"
#include "conductor/model.h"

enum { PLACE_BESIDE, PLACE_CACHE, N_PLACE };

/* False where there is no such place: checkpoint folders are their maker's. */
static bool place(const smoe_model *m, int which, bool make, char path[FILE_PATH_BYTES]) {
    const source *s = m->source;
    if (which == PLACE_BESIDE) {
        int n = snprintf(path, FILE_PATH_BYTES, "%s.heat", s->path);
        return s->kind != CONTAINER_CHECKPOINT && n > 0 && n < FILE_PATH_BYTES;
    }
    char name[40];
    snprintf(name, sizeof name, "%016llx.heat", (unsigned long long)m->routing_id);
    return cache_file_path(path, FILE_PATH_BYTES, name, make);
}

void learn_load(smoe_model *m) {
    char path[FILE_PATH_BYTES], *text;
    size_t bytes;
    smoe_error err = {0};
    m->routing_id = routing_id(m);
    for (int i = 0; i < N_PLACE; i++) {
        if (!place(m, i, false, path) || access(path, R_OK) != 0) {
            continue;
        }
        int rc = file_read_all(path, LIMIT_HEAT_BYTES, &text, &bytes, &err);
        if (rc == SMOE_OK) {
            rc = streamer_warm(m->streamer, m->routing_id, text, bytes, path, &err);
            free(text);
        }
        if (rc == SMOE_OK) {
            return;
        }
        log_line(&m->log, SMOE_LOG_NOTICE, "%s; going on without", err.text);
    }
}

void learn_save(const smoe_model *m) {
    char path[FILE_PATH_BYTES], *text = NULL;
    size_t bytes = 0;
    if (streamer_heat(m->streamer, m->routing_id, &text, &bytes, NULL) != SMOE_OK || !text) {
        return;
    }
    bool is_written = false;
    for (int i = 0; i < N_PLACE && !is_written; i++) {
        is_written = place(m, i, true, path) && cache_file_replace(path, text, bytes);
    }
    free(text);
}

bool smoe_model_idle(smoe_model *m, int32_t budget_ms) {
    return streamer_idle(m->streamer, (uint64_t)(budget_ms > 0 ? budget_ms : 0) * 1000000);
}
