/* The inside of smoe_tokenizer, for the files that build and use it. */
#ifndef SMOE_TEXT_TOKENIZER_IMPL_H
#define SMOE_TEXT_TOKENIZER_IMPL_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalize.h"
#include "text/output.h"
#include "text/pretok.h"
#include "text/template.h"
#include "text/tokenizer.h"
#include "text/unigram.h"
#include "text/vocab.h"

enum { TOKENIZER_NORMALIZERS = 16 };

/* Each part is data that one of the readers fills. */
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
    vocab vocab; /* added tokens included */
    bool is_unigram;
    bpe_model bpe;         /* unless is_unigram */
    unigram_model unigram; /* otherwise */
    double *score;         /* [n_id] of SentencePiece models, from which their tables are made */
    decoder decoder;
    tokenizer_around around;
    bool joins_user_defined;     /* an added token of that type does not end the text around it */
    jinja_template *chat;        /* NULL: none, or one that does not parse */
    char *chat_error;            /* why it does not parse; NULL: it does, or there is none */
    struct json_object *special; /* texts of special tokens by name, for the template */
    output_format output;        /* how the template writes reasoning and tool calls */
};

/* tokenizer_encode for a text of which only the trusted ranges may become control tokens. The other
 * added tokens are found everywhere. */
int tokenizer_encode_spans(const smoe_tokenizer *t, const char *text, size_t bytes,
                           const text_span *trusted, size_t n_trusted, id_list *out,
                           smoe_error *err);

#endif
