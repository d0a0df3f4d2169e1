/* Filling a table of code points; see cp_table.h. */
#include "text/cp_table.h"

#include <string.h>

void cp_table_free(cp_table *t) {
    free(t->pages);
    *t = (cp_table){0};
}

int cp_table_set(cp_table *t, uint32_t cp, int32_t value, smoe_error *err) {
    uint16_t *page = &t->page_of[cp / CP_TABLE_PAGE];
    if (*page == 0) {
        size_t bytes = (t->n_page + 1) * sizeof *t->pages;
        void *grown = realloc(t->pages, bytes);
        if (!grown) {
            return err_no_memory(err, bytes);
        }
        t->pages = grown;
        memset(t->pages[t->n_page], 0xff, sizeof *t->pages); /* -1 everywhere */
        *page = (uint16_t)++t->n_page;
    }
    t->pages[*page - 1][cp % CP_TABLE_PAGE] = value;
    return SMOE_OK;
}
