/* Line input; see line.h. */
#include "cli/line.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#ifdef SMOE_HAVE_EDIT
#include <histedit.h>

static EditLine *editor;
static History *history_list;
static const char *current_prompt;
static char history_path[FILE_PATH_BYTES];
static volatile sig_atomic_t dropped;

static char *prompt_of(EditLine *e) {
    (void)e;
    return (char *)(uintptr_t)current_prompt;
}

static void on_drop(int signal_number) {
    (void)signal_number;
    dropped = 1;
}

/* Makes the folders of the history file; without a home there is no file. */
static void find_history(void) {
    const char *state = getenv("XDG_STATE_HOME");
    const char *home = getenv("HOME");
    char dir[FILE_PATH_BYTES - 16];
    if (state && *state == '/') {
        snprintf(dir, sizeof dir, "%s/smoe", state);
    } else if (home && *home == '/') {
        snprintf(dir, sizeof dir, "%s/.local/state/smoe", home);
    } else {
        return;
    }
    for (char *p = dir + 1; *p; p++) {
        if (*p == '/') {
            *p = '\0';
            mkdir(dir, 0700);
            *p = '/';
        }
    }
    mkdir(dir, 0700);
    snprintf(history_path, sizeof history_path, "%s/history", dir);
}
#endif

bool line_is_terminal(void) {
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void line_open(void) {
#ifdef SMOE_HAVE_EDIT
    HistEvent event;
    if (!line_is_terminal()) {
        return;
    }
    editor = el_init("smoe", stdin, stdout, stderr);
    history_list = history_init();
    if (!editor || !history_list) {
        return;
    }
    history(history_list, &event, H_SETSIZE, 1000);
    history(history_list, &event, H_SETUNIQUE, 1);
    find_history();
    if (history_path[0]) {
        history(history_list, &event, H_LOAD, history_path);
    }
    el_set(editor, EL_PROMPT, prompt_of);
    el_set(editor, EL_EDITOR, "emacs");
    el_set(editor, EL_HIST, history, history_list);
    el_set(editor, EL_SIGNAL, 0);
#endif
}

void line_close(void) {
#ifdef SMOE_HAVE_EDIT
    HistEvent event;
    if (history_list && history_path[0]) {
        history(history_list, &event, H_SAVE, history_path);
    }
    if (history_list) {
        history_end(history_list);
    }
    if (editor) {
        el_end(editor);
    }
    editor = NULL;
    history_list = NULL;
#endif
}

#ifdef SMOE_HAVE_EDIT
static char *read_edited(const char *prompt) {
    int n = 0;
    HistEvent event;
    struct sigaction action = {.sa_handler = on_drop};
    struct sigaction before;
    current_prompt = prompt;
    dropped = 0;
    sigaction(SIGINT, &action, &before);
    const char *line = el_gets(editor, &n);
    sigaction(SIGINT, &before, NULL);
    if (dropped) {
        putchar('\n');
        el_reset(editor);
        return strdup("");
    }
    if (!line || n <= 0) {
        putchar('\n');
        return NULL;
    }
    char *copy = strdup(line);
    if (copy) {
        copy[strcspn(copy, "\n")] = '\0';
        if (copy[0]) {
            history(history_list, &event, H_ENTER, copy);
        }
    }
    return copy;
}
#endif

char *line_read(const char *prompt) {
    char *line = NULL;
    size_t cap = 0;
#ifdef SMOE_HAVE_EDIT
    if (editor && history_list) {
        return read_edited(prompt);
    }
#endif
    if (line_is_terminal()) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    ssize_t n = getline(&line, &cap, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    line[strcspn(line, "\n")] = '\0';
    return line;
}
