/* The table of chat formats, and conversations to ids; see chat.h.
 *
 * The text is put together as its template would, with the ranges that come from the template
 * noted. Only those may become control tokens. It is then encoded as one text, so that pieces which
 * cross a range (a role's newline and the first word of the content) come out as in the reference.
 */
#include "text/chat.h"

#include <string.h>

#include "base/limits.h"
#include "text/lossy.h"
#include "text/tokenizer_impl.h"

static const chat_format formats[] = {
    {
        .name = "ChatML",
        .source = "{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' + "
                  "message.content + '<|im_end|>\\n' }}{%- endfor %}{%- if add_generation_prompt "
                  "%}{{- '<|im_start|>assistant\\n' }}{%- endif %}",
        .before_role = "<|im_start|>",
        .after_role = "\n",
        .after_content = "<|im_end|>\n",
        .generation = "<|im_start|>assistant\n",
        .control = {"<|im_start|>", "<|im_end|>"},
    },
};

const char *chat_known(void) {
    return formats[0].name;
}

/* ---- detection */

static bool is_blank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Reads a template without the white space that cannot show in its output. */
typedef struct squeezer {
    const char *text;
    size_t bytes;
    size_t pos;
    bool in_tag;
    char quote; /* of the string literal that pos is in, else 0 */
} squeezer;

/* The next character; a run of white space in a tag is one space. -1 at the end. */
static int squeeze(squeezer *s) {
    size_t i = s->pos;
    while (!s->quote && i < s->bytes && is_blank(s->text[i])) {
        i++;
    }
    bool is_tag_next = s->bytes - i >= 3 && s->text[i] == '{' &&
                       (s->text[i + 1] == '{' || s->text[i + 1] == '%') && s->text[i + 2] == '-';
    bool is_last_newline = i == s->bytes && i == s->pos + 1 && s->text[s->pos] == '\n';
    if (i > s->pos && s->in_tag) {
        s->pos = i;
        return ' ';
    }
    if (is_tag_next || is_last_newline) {
        s->pos = i; /* the dash takes this white space away; so does Jinja with one last newline */
    }
    if (s->pos == s->bytes) {
        return -1;
    }
    char c = s->text[s->pos++];
    char after = s->pos < s->bytes ? s->text[s->pos] : '\0';
    if (s->quote) {
        if (c == s->quote) {
            s->quote = 0;
        }
    } else if (s->in_tag) {
        s->quote = c == '\'' || c == '"' ? c : '\0';
        s->in_tag = !((c == '%' || c == '}') && after == '}');
    } else {
        s->in_tag = c == '{' && (after == '{' || after == '%');
    }
    return (unsigned char)c;
}

const chat_format *chat_detect(const char *source, size_t bytes) {
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        squeezer s = {.text = source, .bytes = bytes};
        const char *want = formats[i].source;
        int c = squeeze(&s);
        while (c >= 0 && c == (unsigned char)*want) {
            want++;
            c = squeeze(&s);
        }
        if (c < 0 && *want == '\0') {
            return &formats[i];
        }
    }
    return NULL;
}

/* ---- rendering */

typedef struct prompt {
    byte_buf text;
    text_span *trusted;
    size_t n_trusted;
} prompt;

static int add_trusted(prompt *p, const char *text, smoe_error *err) {
    size_t start = p->text.bytes;
    int rc = buf_append(&p->text, text, strlen(text), err);
    p->trusted[p->n_trusted++] = (text_span){start, p->text.bytes};
    return rc;
}

static int add_message(prompt *p, const chat_format *f, const smoe_message *m, smoe_error *err) {
    if (!m->role || !m->content) {
        return err_set(err, SMOE_ERR_ARGUMENT, "a message without a role or content");
    }
    int rc = add_trusted(p, f->before_role, err);
    rc = rc ? rc : lossy_append(&p->text, m->role, strlen(m->role), err);
    rc = rc ? rc : add_trusted(p, f->after_role, err);
    rc = rc ? rc : lossy_append(&p->text, m->content, strlen(m->content), err);
    return rc ? rc : add_trusted(p, f->after_content, err);
}

/* A control token must be found in the text as it comes: after a normaliser the ranges that come
 * from the template would no longer be known. */
static int check_control(const smoe_tokenizer *t, smoe_error *err) {
    for (const char *const *name = t->chat->control; *name; name++) {
        const added_token *found = NULL;
        for (size_t i = 0; i < t->n_added; i++) {
            if (strlen(*name) == t->added[i].bytes &&
                memcmp(*name, t->added[i].content, t->added[i].bytes) == 0) {
                found = &t->added[i];
            }
        }
        if (!found || found->normalized) {
            return err_set(err, SMOE_ERR_UNSUPPORTED,
                           "%s: chat format %s needs the token %s, which is not an added token%s",
                           t->label, t->chat->name, *name,
                           found ? " that is looked for before normalisation" : "");
        }
    }
    return SMOE_OK;
}

static int check_format(const smoe_tokenizer *t, smoe_error *err) {
    if (!t->has_template) {
        return err_set(err, SMOE_ERR_UNSUPPORTED, "%s: the model has no chat template", t->label);
    }
    if (!t->chat) {
        return err_set(err, SMOE_ERR_UNSUPPORTED,
                       "%s: the chat template is not one this version knows (only %s is; the "
                       "template engine is to come)",
                       t->label, chat_known());
    }
    return check_control(t, err);
}

static int render(prompt *p, const chat_format *f, const smoe_message *messages, size_t n_message,
                  bool add_generation, smoe_error *err) {
    int rc = SMOE_OK;
    for (size_t i = 0; i < n_message && rc == SMOE_OK; i++) {
        rc = add_message(p, f, &messages[i], err);
    }
    return rc == SMOE_OK && add_generation ? add_trusted(p, f->generation, err) : rc;
}

int smoe_chat_tokens(const smoe_tokenizer *tokenizer, const smoe_message *messages,
                     size_t n_message, bool add_generation, int32_t **ids, size_t *n_id,
                     smoe_error *err) {
    prompt p = {.text = {.max_bytes = LIMIT_PROMPT_BYTES}};
    id_list out = {0};
    int rc = check_format(tokenizer, err);
    if (rc != SMOE_OK) {
        return rc;
    }
    if (n_message > LIMIT_PROMPT_BYTES / 3) {
        return err_set(err, SMOE_ERR_ARGUMENT, "%zu messages are too many", n_message);
    }
    p.trusted = mem_array(3 * n_message + 1, sizeof *p.trusted);
    out.ids = mem_array(1, sizeof *out.ids);
    out.cap = 1;
    if (!p.trusted || !out.ids) {
        rc = err_no_memory(err, (3 * n_message + 1) * sizeof *p.trusted);
    }
    rc = rc ? rc : render(&p, tokenizer->chat, messages, n_message, add_generation, err);
    rc = rc ? rc
            : tokenizer_encode_spans(tokenizer, p.text.data, p.text.bytes, p.trusted, p.n_trusted,
                                     &out, err);
    buf_free(&p.text);
    free(p.trusted);
    if (rc != SMOE_OK) {
        free(out.ids);
        return rc;
    }
    *ids = out.ids;
    *n_id = out.n;
    return SMOE_OK;
}
