/* Line input; see line.h. */
#include "cli/line.h"

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

#ifdef SMOE_HAVE_EDIT
#include <histedit.h>
#include <langinfo.h>
#include <locale.h>
#include <termios.h>
#endif

static bool (*idle_fn)(void *user);
static void *idle_user;

#ifdef SMOE_HAVE_EDIT
static EditLine *editor;
static History *history_list;
static const char *current_prompt;
static char history_path[FILE_PATH_BYTES];
static volatile sig_atomic_t was_dropped;
static struct termios terminal; /* as it was before editing */

static char *prompt_of(EditLine *e) {
    (void)e;
    return (char *)(uintptr_t)current_prompt;
}

static void on_drop(int signal_number) {
    (void)signal_number;
    was_dropped = 1;
}

/* Being ended at the prompt must not leave the terminal in the editor's mode. */
static void on_end(int signal_number) {
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
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

void line_while_waiting(bool (*fn)(void *user), void *user) {
    idle_fn = fn;
    idle_user = user;
}

bool line_is_terminal(void) {
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void line_open(void) {
#ifdef SMOE_HAVE_EDIT
    HistEvent event;
    if (!line_is_terminal()) {
        return;
    }
    /* The editor takes characters by the locale; without one that is UTF-8 it drops all others. */
    if (!setlocale(LC_CTYPE, "") || strcmp(nl_langinfo(CODESET), "UTF-8") != 0) {
        setlocale(LC_CTYPE, "C.UTF-8");
    }
    if (tcgetattr(STDIN_FILENO, &terminal) == 0) {
        struct sigaction action = {.sa_handler = on_end};
        sigaction(SIGTERM, &action, NULL);
        sigaction(SIGHUP, &action, NULL);
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
/* Without echo and by the character, so that the first key ends it and the editor gets that key. */
static void work_while_waiting(const char *prompt) {
    struct termios raw;
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (!idle_fn || tcgetattr(STDIN_FILENO, &raw) != 0) {
        return;
    }
    raw.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    fputs(prompt, stdout);
    fflush(stdout);
    while (!was_dropped && poll(&in, 1, 0) == 0 && idle_fn(idle_user)) {
    }
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal);
    fputs("\r", stdout); /* the editor writes the prompt again */
    fflush(stdout);
}

static char *read_edited(const char *prompt, bool *dropped) {
    int n = 0;
    HistEvent event;
    struct sigaction action = {.sa_handler = on_drop};
    struct sigaction before;
    current_prompt = prompt;
    was_dropped = 0;
    sigaction(SIGINT, &action, &before);
    work_while_waiting(prompt);
    const char *line = was_dropped ? NULL : el_gets(editor, &n);
    sigaction(SIGINT, &before, NULL);
    if (was_dropped) {
        putchar('\n');
        el_reset(editor);
        *dropped = true;
        return NULL;
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
            if (history_path[0]) { /* at once: the program may be ended at any time */
                history(history_list, &event, H_SAVE, history_path);
            }
        }
    }
    return copy;
}
#endif

char *line_read(const char *prompt, bool *dropped) {
    char *line = NULL;
    size_t cap = 0;
    *dropped = false;
#ifdef SMOE_HAVE_EDIT
    if (editor && history_list) {
        return read_edited(prompt, dropped);
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
