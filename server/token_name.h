/* token_name.h: how answers write tokens and logprobs. Pure. */
#ifndef DESCENT_SERVER_TOKEN_NAME_H
#define DESCENT_SERVER_TOKEN_NAME_H

#include "descent.h"
#include "json_text.h"

/* A JSON string: the token's piece; "bytes:\xe2\x80" where that is no UTF-8; the spelling of a token without text ("</s>");
 * "token_id:7" where there is neither. `tokenizer` may be NULL. */
void token_name(json_text *out, const descent_tokenizer *tokenizer, uint32_t token);
/* True where two tokens are written the same. */
bool token_names_equal(const descent_tokenizer *tokenizer, uint32_t a, uint32_t b);
/* Chat's exact bytes of a token, [226,128]; [] where it has no text. */
void token_bytes(json_text *out, const descent_tokenizer *tokenizer, uint32_t token);
/* A logprob: -9999.0 for minus infinity, null for NaN. */
void token_logprob_value(json_text *out, float logprob);

#endif
