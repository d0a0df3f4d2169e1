/* The inside of smoe_tokenizer, for the files that build and use it. */
#ifndef SMOE_TEXT_TOKENIZER_IMPL_H
#define SMOE_TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/normalize.h"
#include "text/output.h"
#include "text/pretok.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

enum { TOKENIZER_NORMALIZERS = 16 };

/* Each part is data that tokenizer.json fills. The model is byte-level BPE and the decoder
 * ByteLevel; further kinds get their place beside these. */
struct smoe_tokenizer {
    char *label; /* for errors */
    arena text;  /* strings that the parts borrow */
    added_token *added;
    size_t n_added;
    added_matcher raw_matcher;
    added_matcher normalized_matcher;
    normalize_step normalizers[TOKENIZER_NORMALIZERS];
    size_t n_normalizer;
    pretok pretok;
    vocab vocab; /* added tokens included: what each id decodes to */
    bpe_model bpe;
    jinja_template *chat;        /* NULL: none, or one that does not parse */
    char *chat_error;            /* why it does not parse; NULL: it does, or there is none */
    struct json_object *special; /* texts of special tokens by name, for the template */
    output_format output;        /* how the template writes reasoning and tool calls */
};

/* Fills t from the text of a tokenizer.json. */
int tokenizer_read_json(smoe_tokenizer *t, const text_blob *json, smoe_error *err);

/* tokenizer_encode for a text of which only the trusted ranges may become control tokens. The other
 * added tokens are found everywhere. */
int tokenizer_encode_spans(const smoe_tokenizer *t, const char *text, size_t bytes,
                           const text_span *trusted, size_t n_trusted, id_list *out,
                           smoe_error *err);

#endif
