/* A number for each of some code points, in pages. Zero-initialise. */
#ifndef SMOE_TEXT_CP_TABLE_H
#define SMOE_TEXT_CP_TABLE_H

#include "base/mem.h"
#include "text/unicode.h"

enum { CP_TABLE_PAGE = 256, CP_TABLE_PAGES = (UCD_LAST + 1) / CP_TABLE_PAGE };

typedef struct cp_table {
    uint16_t page_of[CP_TABLE_PAGES]; /* index + 1; 0: holds nothing */
    int32_t (*pages)[CP_TABLE_PAGE];
    size_t n_page;
} cp_table;

void cp_table_free(cp_table *t);
int cp_table_set(cp_table *t, uint32_t cp, int32_t value, smoe_error *err);

/* -1 when it has none. */
static inline int32_t cp_table_get(const cp_table *t, uint32_t cp) {
    uint16_t page = t->page_of[cp / CP_TABLE_PAGE];
    return page ? t->pages[page - 1][cp % CP_TABLE_PAGE] : -1;
}

#endif
