/* chat_template.h: the four ways a conversation becomes a prompt, exactly as docs/convert.md defines them
 * (descent.chat_template = plain | chatml | llama2 | llama3). Pure functions; any thread. */
#ifndef DESCENT_SERVER_CHAT_TEMPLATE_H
#define DESCENT_SERVER_CHAT_TEMPLATE_H

#include "descent.h"

typedef enum chat_template { CHAT_NONE = 0, CHAT_PLAIN, CHAT_CHATML, CHAT_LLAMA2, CHAT_LLAMA3 } chat_template;

extern const char *const chat_template_names[];     /* "plain", ...: NULL-terminated, without CHAT_NONE */
chat_template chat_template_find(const char *name); /* CHAT_NONE: none of that name */

typedef struct chat_message {
    const char *role;    /* system, developer, user, assistant, tool */
    const char *content; /* NULL: empty */
    size_t bytes;        /* of content, which may hold NULs */
} chat_message;

/* The prompt's tokens, generation prompt included, BOS where the template or the tokenizer has one. The template's own special
 * tokens are those tokens; what messages spell is plain text, unless parse_special. *tokens is released with descent_free.
 * BAD_ARGUMENT where the template cannot say these roles in this order, the message says which ("messages[2]", and none has a
 * form for tool); UNSUPPORTED where there is no template or no tokenizer. */
descent_code chat_template_encode(chat_template which, const descent_tokenizer *tokenizer, const chat_message *messages,
                                  size_t count, bool parse_special, uint32_t **tokens, size_t *n_tokens,
                                  descent_status *status);

#endif
