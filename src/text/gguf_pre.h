/* How the pre-tokenizers that GGUF files name (tokenizer.ggml.pre) cut text. */
#ifndef SMOE_TEXT_GGUF_PRE_H
#define SMOE_TEXT_GGUF_PRE_H

#include <stdbool.h>

enum { GGUF_PRE_STEPS = 7 };

typedef struct gguf_pre {
    const char *names;                        /* separated and enclosed by spaces */
    const char *patterns[GGUF_PRE_STEPS + 1]; /* one after the other; NULL-terminated */
    bool ignore_merges;
    bool add_bos; /* unless the file says otherwise */
    bool is_nfc;  /* the published tokenizers of this kind normalise, though ggml does not */
} gguf_pre;

/* NULL when the name is not known; no name is "default". */
const gguf_pre *gguf_pre_by_name(const char *name);

/* The pattern of kimi-k2, which its tiktoken file needs too. */
const char *gguf_pre_kimi(void);

#endif
