/* request.h: a request that computes (/v1/completions, /v1/chat/completions, /v1/descent/trace, /v1/descent/scaling), from its
 * JSON to what the engine takes: prompts as tokens, sampling, T, stop strings, how to answer; of a scaling experiment what it
 * measures. Every field is checked here, before anything is queued.
 * Pure: no I/O, no clock; the random seed is given. Any thread.
 */
#ifndef DESCENT_SERVER_REQUEST_H
#define DESCENT_SERVER_REQUEST_H

#include "choose.h"
#include "fields.h"
#include "models.h"
#include "request_scaling.h"
#include "request_states.h"
#include "text_stream.h"
#include "trace.h"

typedef struct request_limits {        /* serve's flags; defaults in request_limits_defaults */
    unsigned json_depth;               /* 64 */
    uint64_t prompt_tokens;            /* 0: the model's context */
    uint32_t steps;                    /* --max-steps, per sub-layer: 256 */
    uint32_t sequences;                /* prompts x max(n, best_of): 128 */
    uint32_t stop_strings, stop_bytes; /* 64, 256 */
    uint32_t logit_bias;               /* 1,024 */
    uint64_t sweep_token_steps;        /* of a scaling experiment: 100,000,000 */
    int draft_steps;                   /* where a request says nothing of them: DESCENT_DRAFT_AUTO */
} request_limits;
request_limits request_limits_defaults(void);

enum { REQUEST_MOST_LOGPROBS = 20 };

typedef enum request_kind { REQUEST_COMPLETION, REQUEST_CHAT, REQUEST_TRACE, REQUEST_SCALING, REQUEST_STATES } request_kind;

typedef struct prompt {
    uint32_t *tokens; /* [count], owned */
    size_t count;
    size_t special; /* of the first ones: added by the tokenizer (BOS), not spelled by the client */
} prompt;

typedef struct generation_request {
    request_kind kind;
    served_model *model;
    char *model_name; /* as requested, "nrgpt-shakespeare@12" */
    prompt *prompts;  /* [n_prompts] */
    size_t n_prompts;
    uint32_t n, best_of;
    size_t max_tokens;         /* at most, for each prompt bounded by its context when submitted; SIZE_MAX: the rest of it */
    descent_sampling sampling; /* .bias owned; .seed is always set, .prompt and .choice are the submitter's to set */
    descent_depth depth;
    bool depth_capped; /* an effort asked for more than max_steps: said in the answer */
    descent_motion motion;
    descent_solver solver;
    descent_history history; /* its `prompt` is the engine's to set */
    descent_exit exit;       /* .first is the submitter's to set: */
    bool exit_after_prompt;  /* tokens of the prompt take all their steps */
    int draft_steps;         /* as in descent_generation_options */
    uint32_t candidates;     /* of a prompt, of which one is returned; 0: no choosing */
    choose_rule choose_by;
    bool show_candidates; /* each of them is part of the answer */
    bool trace;
    bool echo;
    int logprobs;      /* -1: none; completions 0..20 alternatives, chat top_logprobs, trace the guesses of each step (`top`) */
    stop_string *stop; /* [n_stop], their texts owned */
    size_t n_stop;
    bool stream, include_usage;
    bool parse_special;
    char *unknown_field; /* the first top-level field that nobody knows, for the log; NULL: none */
    uint32_t *track;     /* trace: token ids to follow, [n_track], TRACE_MOST_TRACKED at most */
    size_t n_track;
    states_request *states; /* states: of a text that is not continued; owned */
    scaling_plan *scaling;  /* scaling: beside it the model, exit, motion, stream and nothing else; owned */
} generation_request;

/* Reads a body. `models` are those served; `seed` is used where the request gives none. On false *error is set and *out holds
 * nothing. The caller releases *out. */
bool request_read(request_kind kind, const char *body, size_t bytes, const model_set *models, const request_limits *limits,
                  int64_t seed, generation_request *out, api_error *error);
void request_release(generation_request *request);

/* Texts generated of a prompt: max(n, best_of), or its candidates. */
uint32_t request_texts_of_a_prompt(const generation_request *request);

/* The depth of those of its tokens that take most steps. */
descent_depth request_deepest(const generation_request *request);

/* Most tokens that may follow prompt p: max_tokens, or what the context has room for; a prompt that fills the context still
 * yields one. */
size_t request_limit_of(const generation_request *request, size_t p);

/* Model name "x@3x2" against what is served: the model of exactly that id, else what stands before the last @. *depth_text is
 * what stands behind it, not yet read (descent_depth_parse does), or NULL. False and a 404 listing the models where there is
 * none. */
bool request_find_model(const model_set *models, const char *name, served_model **model, const char **depth_text,
                        api_error *error);

#endif
