/* smoe chat: a conversation in the terminal. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/file.h"
#include "base/mem.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/line.h"
#include "cli/live.h"

typedef struct chat {
    smoe_model *model;
    smoe_session *session;
    smoe_sampling sampling;
    int32_t max_tok;
    option_list stop;
    bool stats;
    bool live;
    smoe_message *message; /* [n_message]; contents and roles owned */
    size_t n_message;
    size_t n_system; /* 1 when a system message stands first */
} chat;

static int add_message(chat *c, const char *role, const char *content, size_t bytes) {
    smoe_message *grown = realloc(c->message, (c->n_message + 1) * sizeof *grown);
    if (!grown) {
        return -1;
    }
    c->message = grown;
    char *copy = mem_copy_text(content, bytes);
    if (!copy) {
        return -1;
    }
    c->message[c->n_message++] = (smoe_message){role, copy};
    return 0;
}

static void drop_messages(chat *c, size_t keep) {
    while (c->n_message > keep) {
        free((void *)(uintptr_t)c->message[--c->n_message].content);
    }
}

/* An answer on its way to the terminal and into the conversation. */
typedef struct view {
    smoe_output_parser *parser;
    byte_buf content; /* what the conversation keeps: neither reasoning nor markers */
    FILE *out;        /* standard output, or what goes there when the live view is over */
    bool is_live;
    char *late; /* what out has taken, with the live view */
    size_t late_bytes;
    bool can_dim;
    bool in_reasoning;
} view;

static void show_reasoning(view *v, bool on) {
    if (v->in_reasoning != on) {
        fputs(v->can_dim ? (on ? "\033[2m" : "\033[0m") : "", v->out);
        fputs(on ? "" : "\n\n", v->out);
    }
    v->in_reasoning = on;
}

static bool show_event(void *user, const smoe_output_event *e) {
    view *v = user;
    int rc = SMOE_OK;
    if (e->kind == SMOE_OUTPUT_SYNTAX) {
        return false;
    }
    show_reasoning(v, e->kind == SMOE_OUTPUT_REASONING);
    if (e->kind == SMOE_OUTPUT_CONTENT) {
        rc = buf_append(&v->content, e->text, e->text_bytes, NULL);
    } else if (e->kind == SMOE_OUTPUT_CALL_BEGIN) {
        fprintf(v->out, "[call of %s: ", e->name);
    }
    fwrite(e->text, 1, e->text_bytes, v->out);
    fputs(e->kind == SMOE_OUTPUT_CALL_END      ? "]\n"
          : e->kind == SMOE_OUTPUT_CALL_FAILED ? "] is malformed:\n"
                                               : "",
          v->out);
    return rc != SMOE_OK;
}

static bool print_token(void *user, const smoe_token *token) {
    view *v = user;
    if (interrupted()) { /* it may have come before the call began */
        return true;
    }
    int rc = smoe_output_push(v->parser, token->id, token->text, token->text_bytes, NULL);
    if (v->is_live) {
        live_token(token->text, token->text_bytes);
    } else {
        fflush(v->out);
    }
    return rc != SMOE_OK;
}

/* The generation, in the live view if that is wanted; what was held back for it follows. */
static int generate(chat *c, view *v, const int32_t *ids, size_t n_id, smoe_finish *finish,
                    bool *stopped, smoe_error *err) {
    smoe_generate_options o = {.sampling = c->sampling,
                               .max_tok = c->max_tok,
                               .stop = c->stop.item,
                               .n_stop = c->stop.n_item,
                               .on_token = print_token,
                               .user = v};
    smoe_model_stats_reset(c->model);
    interrupt_begin(c->session);
    int rc = v->is_live ? live_open(c->model, c->max_tok, err) : SMOE_OK;
    rc = rc ? rc : smoe_generate(c->session, ids, n_id, &o, NULL, NULL, finish, err);
    live_close();
    *stopped = interrupted();
    interrupt_begin(NULL);
    if ((rc == SMOE_OK || *stopped) && smoe_output_flush(v->parser, err) != SMOE_OK) {
        rc = err->code;
    }
    show_reasoning(v, false);
    if (v->is_live) {
        fclose(v->out);
        v->out = stdout;
        fwrite(v->late ? v->late : "", 1, v->late_bytes, stdout);
        free(v->late);
    }
    return rc;
}

/* Answers the last user message. Ctrl-C ends the answer, which then stands as far as it came. */
static int answer(chat *c) {
    smoe_error err;
    int32_t *ids;
    size_t n_id;
    view v = {.content = {.max_bytes = SIZE_MAX / 2}, .can_dim = isatty(STDOUT_FILENO)};
    int rc = smoe_chat_tokens(smoe_model_tokenizer(c->model), c->message, c->n_message, true, &ids,
                              &n_id, &err);
    if (rc != SMOE_OK) {
        return fail(&err);
    }
    smoe_output_options output = {.prompt = ids, .n_prompt = n_id, .fn = show_event, .user = &v};
    rc = smoe_output_open(&v.parser, smoe_model_tokenizer(c->model), &output, &err);
    if (rc != SMOE_OK) {
        smoe_free(ids);
        return fail(&err);
    }
    smoe_finish finish = SMOE_FINISH_END;
    bool stopped = false;
    v.is_live = c->live;
    v.out = c->live ? open_memstream(&v.late, &v.late_bytes) : stdout;
    rc = v.out ? generate(c, &v, ids, n_id, &finish, &stopped, &err)
               : err_set(&err, SMOE_ERR_MEMORY, "out of memory for the answer");
    smoe_output_close(v.parser);
    smoe_free(ids);
    c->sampling.seed++; /* another turn, another draw; still a function of --seed */
    bool is_full = rc == SMOE_OK && finish == SMOE_FINISH_LENGTH && c->max_tok < 0;
    puts(stopped ? " [stopped]" : is_full ? " [the context is full]" : "");
    if (rc == SMOE_OK || stopped) {
        add_message(c, "assistant", v.content.data ? v.content.data : "", v.content.bytes);
        if (c->stats) {
            fflush(stdout);
            print_stats(c->model);
        }
        rc = 0;
    } else {
        if (rc == SMOE_ERR_CONTEXT) {
            fputs("smoe: the conversation fills the context; /clear starts a new one, --ctx "
                  "raises the limit\n",
                  stderr);
        } else {
            fail(&err);
        }
        drop_messages(c, c->n_message - 1); /* the question has no answer */
    }
    buf_free(&v.content);
    return rc ? 1 : 0;
}

static void print_help(void) {
    puts("/help          this list\n"
         "/clear         forget the conversation\n"
         "/system TEXT   start anew with this system message (none: without one)\n"
         "/stats         print statistics of the last answer\n"
         "/exit          leave (so does Ctrl-D)\n"
         "Ctrl-C stops an answer. A line that ends with \\ goes on in the next; one that begins\n"
         "with // is a message that begins with /.");
}

/* Returns false for /exit. */
static bool obey(chat *c, const char *line) {
    if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0) {
        return false;
    }
    if (strcmp(line, "/help") == 0) {
        print_help();
    } else if (strcmp(line, "/clear") == 0) {
        drop_messages(c, c->n_system);
        puts("The conversation is forgotten.");
    } else if (strcmp(line, "/stats") == 0) {
        fflush(stdout);
        print_stats(c->model);
    } else if (strncmp(line, "/system", 7) == 0 && (line[7] == ' ' || !line[7])) {
        drop_messages(c, 0);
        c->n_system = line[7] && add_message(c, "system", line + 8, strlen(line + 8)) == 0;
        puts("The conversation starts anew.");
    } else {
        printf("%s is no command; /help lists them\n", line);
    }
    return true;
}

static bool work_ahead(void *user) {
    return smoe_model_idle(user, 20);
}

/* One message: a line, or several joined where a line ends with a backslash. NULL at the end of
 * input; the caller frees. */
static char *read_message(void) {
    byte_buf b = {.max_bytes = 1u << 24};
    const char *prompt = "> ";
    for (;;) {
        bool dropped;
        char *line = line_read(prompt, &dropped);
        if (dropped) {
            free(line);
            buf_free(&b);
            prompt = "> ";
            continue;
        }
        size_t n = line ? strlen(line) : 0;
        bool more = n > 0 && line[n - 1] == '\\';
        if (!line && b.bytes == 0) {
            buf_free(&b);
            return NULL;
        }
        if (line) {
            if (b.bytes) {
                buf_append(&b, "\n", 1, NULL);
            }
            buf_append(&b, line, more ? n - 1 : n, NULL);
        }
        free(line);
        if (!more) {
            return b.data;
        }
        prompt = ". ";
    }
}

static int converse(chat *c) {
    int failures = 0;
    char *text;
    while ((text = read_message())) {
        bool is_command = text[0] == '/' && text[1] != '/';
        const char *content = text[0] == '/' ? text + 1 : text; /* "//" stands for "/" */
        if (is_command) {
            bool go_on = obey(c, text);
            free(text);
            if (!go_on) {
                break;
            }
            continue;
        }
        if (content[0] && add_message(c, "user", content, strlen(content)) == 0) {
            failures = answer(c);
        }
        free(text);
    }
    return failures;
}

static int run(const command *self, int argc, char **argv) {
    model_flags flags = {0};
    sampling_flags sampling = {0};
    chat c = {.max_tok = -1};
    const char *path = NULL;
    const char *system = NULL;
    const option own[] = {
        {OPTION_TEXT, 's', "system", "TEXT", &system, 0, 0, "a system message", NULL},
        {OPTION_INT, 'n', "tokens", "N", &c.max_tok, -1, INT32_MAX,
         "longest answer (default: what the context leaves)", NULL},
        {OPTION_LIST, 0, "stop", "TEXT", &c.stop, 0, 0,
         "end an answer before this text; may be given several times", NULL},
        {OPTION_FLAG, 0, "stats", NULL, &c.stats, 0, 0, "print statistics after each answer", NULL},
        {OPTION_FLAG, 0, "live", NULL, &c.live, 0, 0,
         "show experts, ring and drive on the terminal during an answer", NULL},
        {0}};
    const option *const tables[] = {own, sampling_option_rows(&sampling), model_option_rows(&flags),
                                    NULL};
    int rc = options_parse(self, tables, argc, argv, &path);
    if (rc) {
        return rc < 0;
    }
    if (c.live && !live_is_possible(self->name)) {
        return 1;
    }
    rc = open_model(path, &flags, &c.model, &c.session);
    if (rc) {
        return rc;
    }
    if (!smoe_model_tokenizer(c.model)) {
        rc = fail_text("chat: this model has no tokenizer");
    } else if ((rc = resolve_sampling(c.model, &sampling, &c.sampling)) == 0) {
        c.n_system = system && add_message(&c, "system", system, strlen(system)) == 0;
        if (line_is_terminal()) {
            puts("/help lists commands, Ctrl-D leaves.");
        }
        line_open();
        line_while_waiting(work_ahead, c.model);
        interrupt_begin(NULL);
        rc = converse(&c);
        interrupt_end();
        line_close();
    }
    drop_messages(&c, 0);
    free(c.message);
    close_model(c.model, c.session);
    return rc;
}

const command command_chat = {.name = "chat",
                              .arguments = "MODEL",
                              .summary = "talk with a model",
                              .n_argument = 1,
                              .run = run};
