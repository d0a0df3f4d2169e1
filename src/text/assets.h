/* The text side of a model as its container holds it: raw, unparsed bytes of a folder's files,
 * or the tables of a GGUF file's tokenizer. */
#ifndef SMOE_TEXT_ASSETS_H
#define SMOE_TEXT_ASSETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/mem.h"

typedef struct text_blob {
    char *data; /* NUL-terminated; NULL when absent */
    size_t bytes;
} text_blob;

/* A text inside a blob: any bytes, not NUL-terminated. */
typedef struct text_piece {
    const char *data;
    size_t bytes;
} text_piece;

/* What GGUF files say of a token. */
typedef enum text_token_type {
    TEXT_TOKEN_NORMAL = 1,
    TEXT_TOKEN_UNKNOWN = 2,
    TEXT_TOKEN_CONTROL = 3,      /* marks up; never the text that looks like it */
    TEXT_TOKEN_USER_DEFINED = 4, /* found in text before it is cut into words */
    TEXT_TOKEN_UNUSED = 5,
    TEXT_TOKEN_BYTE = 6 /* "<0x0A>": one byte */
} text_token_type;

/* Special tokens that GGUF files name by id. */
typedef enum text_special {
    TEXT_BOS,
    TEXT_EOS,
    TEXT_EOT, /* end of a turn */
    TEXT_EOM, /* end of a message */
    TEXT_UNK,
    TEXT_SEP,
    TEXT_PAD,
    TEXT_CLS,
    TEXT_MASK,
    TEXT_SPECIALS
} text_special;

/* A yes or no that may be left open; then the tokenizer's kind decides. */
typedef enum text_flag { TEXT_FLAG_OPEN = -1, TEXT_FLAG_NO = 0, TEXT_FLAG_YES = 1 } text_flag;

/* The tokenizer of a GGUF file: its tokenizer.ggml keys as tables. Pieces point into
 * text_assets.gguf; lengths agree with each other and ids are in range, nothing else is checked. */
typedef struct text_tables {
    char *model; /* "gpt2", "llama", … */
    char *pre;   /* the pre-tokenizer's name; NULL when not said */
    int32_t n_token;
    text_piece *token; /* [n_token] */
    float *score;      /* [n_token]; NULL when absent */
    uint8_t *type;     /* [n_token], a text_token_type; NULL when absent: all normal */
    int32_t n_merge;
    text_piece *merge;            /* [n_merge], "a b" in order of rank; NULL when absent */
    int32_t id[TEXT_SPECIALS];    /* -1: none */
    text_flag add_bos, add_eos;   /* around every text */
    text_flag add_space_prefix;   /* before every text */
    text_flag remove_extra_space; /* runs of spaces become one */
    text_piece normalizer;        /* precompiled character map; NULL data when absent */
} text_tables;

typedef struct text_assets {
    char *label; /* names the origin in errors; owned */
    text_blob tokenizer_json;
    text_blob tokenizer_model;  /* tokenizer.model, of SentencePiece */
    text_blob tiktoken;         /* tiktoken.model */
    text_blob prepared;         /* what tokenizer_prepare made of one of these, or of tables */
    arena backing;              /* with memory in it, prepared points there */
    text_blob tokenizer_config; /* tokenizer_config.json */
    text_blob chat_template;    /* Jinja source */
    text_blob generation;       /* generation_config.json, or what a GGUF file says in its place */
    text_blob gguf;             /* the tokenizer's keys as a GGUF file without tensors */
    text_tables *tables;        /* the same, decoded; NULL without gguf */
} text_assets;

void text_assets_free(text_assets *a); /* leaves it empty */
/* Whether there is a tokenizer in any form. */
bool text_assets_has_tokenizer(const text_assets *a);

#endif
