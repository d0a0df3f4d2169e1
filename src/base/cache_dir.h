/* The user's cache folder for what can be measured or learned again: $XDG_CACHE_HOME/smoe, else
 * ~/.cache/smoe (XDG Base Directory Specification). Files in it may vanish at any time. */
#ifndef SMOE_BASE_CACHE_DIR_H
#define SMOE_BASE_CACHE_DIR_H

#include <stdbool.h>
#include <stddef.h>

/* The path of one file in it. With make, the folder is made where it is missing. False when there
 * is no such folder (no home, not writable, the path too long). */
bool cache_file_path(char *out, size_t out_bytes, const char *name, bool make);
/* Replaces the file as a whole: readers see the old one or the new one. */
bool cache_file_replace(const char *path, const char *text, size_t bytes);

#endif
