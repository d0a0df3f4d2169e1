/* Chat formats: how a conversation becomes one text with control tokens in it.
 *
 * A format is known by its template's source, never by a model's name.
 */
#ifndef SMOE_TEXT_CHAT_H
#define SMOE_TEXT_CHAT_H

#include "base/error.h"

typedef struct chat_format {
    const char *name;
    const char *source; /* the template, with insignificant white space left out */
    /* the text around each message's role and content, and that of an answer to come */
    const char *before_role, *after_role, *after_content, *generation;
    const char *control[4]; /* tokens that the texts above use; NULL-terminated */
} chat_format;

/* The format of a template source; NULL when it is none of those known. */
const chat_format *chat_detect(const char *source, size_t bytes);
/* Names of the known formats for messages, "ChatML". */
const char *chat_known(void);

#endif
