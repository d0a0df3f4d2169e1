/* Line input: editing and history on a terminal (libedit, when the build found it), plain lines
 * otherwise. */
#ifndef SMOE_CLI_LINE_H
#define SMOE_CLI_LINE_H

#include <stdbool.h>

bool line_is_terminal(void);
/* Loads the history from $XDG_STATE_HOME/smoe/history (default ~/.local/state); line_close saves
 * it. */
void line_open(void);
void line_close(void);
/* fn works for a short while; it is called again and again while a terminal's user has not begun to
 * type, as long as it returns true. */
void line_while_waiting(bool (*fn)(void *user), void *user);
/* One line without its newline, malloc'ed; NULL at the end of input. *dropped: Ctrl-C threw the
 * line away, and what is returned is to be freed and forgotten. */
char *line_read(const char *prompt, bool *dropped);

#endif
