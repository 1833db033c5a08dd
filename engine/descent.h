/* descent.h: the whole boundary of libdescent, the engine for energy-based language models.
 *
 * A *model* is a checkpoint, loaded and immutable. A *cache* holds the causal history of many sequences in pages.
 * A *sequence* is one mutable timeline: tokens, and for each token how far its descent has come. A *batch* advances
 * rows of many sequences by one step; a *row* is one token at one recursion step, the engine's unit of work.
 *
 *     model -> cache -> sequence(s) -> append tokens -> batch add, step, step, ... -> logits -> sampler -> append ...
 *
 * Errors are values. A fallible function returns a descent_code and, where `status` is not NULL, fills it with a
 * message that says what was wrong, where, and what was expected; on failure out-parameters are left untouched unless
 * said otherwise. Nothing here exits, aborts or prints.
 *
 * Threads. A model, its tokenizer and descent_sampling values are immutable and may be used by any number of threads.
 * A cache, and every sequence and batch made from it, belong to one thread at a time; different caches are independent.
 *
 * Reproducibility. What a row computes does not depend, bit for bit, on the rows beside it, the number of threads, the
 * chunks its tokens came in, where its pages lie, or whether somebody observes it. Bits may differ between instruction
 * sets (descent_isa) and page types.
 *
 * Units: energies, states and update norms in model units; losses elsewhere in nats. C is the model's width.
 */
#ifndef DESCENT_H
#define DESCENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define DESCENT_API __attribute__((visibility("default")))
#else
#define DESCENT_API
#endif

/* ---- Status ---------------------------------------------------------------------------------------------------- */

typedef enum descent_code {
    DESCENT_OK = 0,
    DESCENT_BAD_ARGUMENT, /* the caller asked for something outside what the function's comment allows */
    DESCENT_BAD_FILE,     /* a file's contents are wrong; the message names the key, tensor or offset */
    DESCENT_IO,           /* the system refused to open, read or write; the message carries its reason */
    DESCENT_UNSUPPORTED,  /* valid, but this version or this family cannot do it; the message says what can */
    DESCENT_LIMIT,        /* more memory than the limit allows; the message holds both numbers */
    DESCENT_NO_MEMORY,    /* the system has no more memory */
    DESCENT_DIVERGED      /* a state or logit is not finite; the message names a token and its step */
} descent_code;

#define DESCENT_MESSAGE_SIZE 512

typedef struct descent_status {
    descent_code code;
    char message[DESCENT_MESSAGE_SIZE]; /* one line, no newline; empty when code is DESCENT_OK */
} descent_status;

/* The version of the library, "major.minor.patch". */
DESCENT_API const char *descent_version(void);

/* The instruction set the kernels run on: "avx512-vbmi", "avx512-vnni", "avx512", "avx2" or "portable". Chosen once, at the
 * first call into the library, from the CPU's features; the environment variable DESCENT_ISA names a lower one to force it. */
DESCENT_API const char *descent_isa(void);

/* How many threads 0 stands for wherever threads are asked for: the CPUs of the process's affinity, at most as many as the
 * quotas of its control groups come to, rounded up; at least 1. Looks every time; from any thread. */
DESCENT_API uint32_t descent_threads_by_default(void);

/* Half of the memory this process may use: the machine's, or less where its control groups say so. Any thread. */
DESCENT_API uint64_t descent_cache_bytes_by_default(void);

/* How products with numbers of a type are computed on this instruction set: one line of a table fixed at build. Whether one row
 * is multiplied or several, it is the same sums in the same order, and so the same bits. */
typedef struct descent_path {
    const char *numbers;    /* of weights: "F32" .. "Q6_K"; of pages: "f32", "f16", "bf16", "q8" */
    bool pages;             /* of pages */
    const char *arithmetic; /* what is multiplied and added up, and by what: "int8 to int32, vpdpbusd" */
    const char *one;        /* how the numbers come to it where one row is multiplied */
    const char *several;    /* where several are */
} descent_path;

/* The i-th line. False when i is past the last. */
DESCENT_API bool descent_path_at(size_t i, descent_path *path);

/* ---- Depth ----------------------------------------------------------------------------------------------------- */

#define DESCENT_MAX_STEPS 65535u
#define DESCENT_MAX_KINDS 2

/* Recursion depth T of each kind of sub-layer the model has (descent_model_info.kinds): one number for a family whose
 * block is a single descent, two (attention, MLP) for one whose layers descend twice. Kinds that have no T, since their
 * sub-layers run once (Llama's do), are those where descent_model_info.trained is 0: their entry is always 0, as are entries
 * past the model's kinds. */
typedef struct descent_depth {
    uint16_t steps[DESCENT_MAX_KINDS];
} descent_depth;

/* When a token may stop its descent before its T. After step t (0-based), once t + 1 has reached min_steps and then after every
 * check_every further steps, it stops where the criterion holds: its state is then what it is read at, by its logits and by
 * later tokens at every further step. Where layers descend in sub-layers, each descent stops by itself and the token goes on to
 * the next one. A token stops or not whatever T was asked: one that has stopped is not taken on when a larger T asks.
 *
 * E(t) is the energy at g(t) with the keys of step t. Where history moves (NRGPT), E(t+1) is known once the earlier tokens have
 * come to step t+1: it is had with the token's own step t+1, which is not made where the token stops. So a token is never found
 * to stop at its very T, and an intervention at step t+1 makes its energy another descent's: it is not asked there.
 * p_t is the next-token distribution read at x(t). It exists on the way of a model whose descent is the whole network (one that
 * deepens); elsewhere a sub-layer's end is the next one's beginning, and criteria that read it are refused. */
typedef enum descent_exit_criterion {
    DESCENT_EXIT_NONE = 0,
    DESCENT_EXIT_STATE,   /* r_t = |g(t+1) - g(t)| / |g(t)| < threshold */
    DESCENT_EXIT_COSINE,  /* 1 - cos(g(t+1), g(t)) < threshold */
    DESCENT_EXIT_ENERGY,  /* |E(t+1) - E(t)| / max(1, |E(t)|) < threshold */
    DESCENT_EXIT_ENTROPY, /* H(p_(t+1)) < threshold, in nats */
    DESCENT_EXIT_KL,      /* KL(p_(t+1) || p_t) < threshold, in nats */
    DESCENT_EXIT_ARGMAX   /* the likeliest token (the lowest id of equals) is what it was at the check before, `threshold` times
                             on end */
} descent_exit_criterion;

typedef struct descent_exit {
    descent_exit_criterion criterion; /* NONE: the fields below are not looked at */
    float threshold;                  /* finite, 0 or more; 0: never. ARGMAX: a whole number from 1 to DESCENT_MAX_STEPS */
    uint16_t min_steps;               /* 0: 1 */
    uint16_t check_every;             /* 0: 1 */
    uint32_t first;                   /* tokens before this position take all their steps: a prompt's length exempts it */
} descent_exit;

/* "none", "state", "cosine", ...; NULL of a number that is no criterion. */
DESCENT_API const char *descent_exit_name(descent_exit_criterion criterion);
/* The threshold for who has no better idea: 0.03, 1e-3, 1e-4, 1e-3, 1e-3, 5 in the order above; 0 of NONE and of others. */
DESCENT_API float descent_exit_default_threshold(descent_exit_criterion criterion);

/* What finding out whether to stop took, beside the row steps. */
typedef struct descent_exit_cost {
    uint64_t readings; /* of logits: one a check of ENTROPY and ARGMAX, two of KL */
    uint64_t energies; /* ENERGY: steps that were computed and not made where history moves; elsewhere energies at g(t+1), one a
                          check. What of the energy a step computes by itself costs nothing */
} descent_exit_cost;

enum { DESCENT_MAX_SCALES = 64 };

typedef enum descent_step_rule {
    DESCENT_RULE_PLAIN = 0,
    DESCENT_RULE_ANGULAR /* see descent_motion */
} descent_step_rule;

typedef enum descent_noise_schedule { DESCENT_NOISE_FIXED = 0, DESCENT_NOISE_DECAY } descent_noise_schedule;

/* Behind step t x += sigma_t |x| / sqrt(C) xi, sigma_t being sigma, or sigma / (t + 1) with DECAY; xi are C standard normal
 * numbers that are a function of (seed, position, t, layer, kind of sub-layer) alone, on every machine. */
typedef struct descent_noise {
    int64_t seed;
    float sigma; /* finite, 0 or more; 0: none, and the other fields are not looked at */
    descent_noise_schedule schedule;
} descent_noise;

/* How a token moves with a step, beside what the model says. All zero: as the model says. Only a model that descends an energy
 * takes anything else. */
typedef struct descent_motion {
    uint32_t n_scales;                    /* 0: s_t is 1 */
    float step_scale[DESCENT_MAX_SCALES]; /* [n_scales] s_t in (0, 4]: step t of a descent moves s_t times as far; steps past
                                             the last take the last. What lies behind is not looked at */
    float momentum; /* m in [0, 1): d_t = m d_(t-1) + s_t R grad_t, d_(-1) = 0 where a descent begins, x(t+1) = x(t) - d_t. d is
                       kept beside x: where the model deepens a token takes C numbers more */
    descent_step_rule rule; /* ANGULAR, of NRGPT: instead of -d_t a step adds its part across x, -d_t + x (x . d_t) / |x|^2,
                               times |x(t)| / |x(0)|: turns of x stay as long as x grows. Where the norm is LayerNorm, x and d_t
                               have their means removed first. x(0) is what the descent began with */
    descent_noise noise;    /* a sequence with noise shares no pages */
} descent_motion;

enum { DESCENT_MAX_NSTEP = 16 };
typedef enum descent_solver_method { DESCENT_SOLVER_PLAIN = 0, DESCENT_SOLVER_ANDERSON } descent_solver_method;

/* How the end of a descent is looked for. PLAIN: step by step. ANDERSON, of NRGPT: by Anderson acceleration, for the limit
 * T -> infinity. x has none, as |x| grows with every step; its direction has (of LayerNorm without its mean), which is all that
 * block and head see of it. So |x| is held at |x(0)|, and the fixed point is that of x + s_t f, f = -(R grad less its part
 * along x), a step as ANGULAR makes them. A token stops where |f| / |x| < residual and those before it have stopped, as an exit
 * does, or at T: descent_sequence_converged tells them apart. One in the middle of it begins again when its row leaves the
 * batch; pages are shared between equal T only. Of a motion it takes step_scale alone, and no exit. A row in flight takes 2
 * (nstep + 1) C numbers beside its pages. */
typedef struct descent_solver {
    descent_solver_method method; /* PLAIN: the fields below are not looked at */
    uint32_t nstep;               /* steps that are kept, at most DESCENT_MAX_NSTEP; 0: 5 */
    float residual;               /* finite, 0 or more; 0: never */
} descent_solver;

/* What a later token reads of an earlier one, j, which was computed to the depth T_j. LATEST and LAST, and prompt_steps, are of
 * NRGPT, and without Anderson's method. */
typedef enum descent_history_policy {
    DESCENT_HISTORY_OWN = 0, /* at step t g_j(t); of a token that stopped early, and where t is more, its last state */
    DESCENT_HISTORY_LATEST,  /* at step t g_j(min(t, T_j)): OWN, where no T_j is less than the later token's T */
    DESCENT_HISTORY_LAST     /* at every step g_j(T_j). Itself, where it sees itself, a token reads as it stands. Tokens of a
                                sequence run one after another, and their pages hold one plane, whatever T is; but x(t) is
                                another at every T: where T changes, tokens are computed anew and pages of equal T are shared */
} descent_history_policy;

typedef struct descent_history {
    descent_history_policy policy;
    uint32_t prompt_steps; /* T of the tokens before position `prompt`; 0: that of all. With OWN not less than that. */
    uint32_t prompt;       /* generations and sweeps fill this in: the prompt's length less one. Where prompt_steps changes what
                              tokens are, pages that hold any from here on are shared with nobody: as part of a prompt these
                              tokens would be others */
} descent_history;

/* "own", "latest", "last"; NULL of a number that is no policy. */
DESCENT_API const char *descent_history_name(descent_history_policy policy);

/* ---- Model ----------------------------------------------------------------------------------------------------- */

typedef struct descent_model descent_model;
typedef struct descent_tokenizer descent_tokenizer;

#define DESCENT_MAX_TERMS 2

typedef struct descent_model_info {
    const char *name;        /* general.name of the file, or the file's base name without extension */
    const char *family;      /* "nrgpt", "cem", "gpt", "gpt-rec-parallel" */
    const char *variant;     /* the family's own words, e.g. "ff2w strict layernorm matrix" */
    const char *weight_type; /* the type of most weight bytes: "F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_K", "Q6_K" */
    uint64_t parameters;     /* numbers the model learned; padding of quantized rows is not counted */
    uint64_t file_bytes;
    uint64_t resident_bytes; /* of the file as mapped or read, and of tensors repacked, which the file no longer takes */
    uint64_t fingerprint;    /* a hash of the whole file's contents */
    uint32_t width;          /* C */
    uint32_t vocab;          /* V */
    uint32_t context;        /* most tokens a sequence may hold */
    uint32_t layers;         /* 1 where one block is applied T times */
    uint32_t kinds;          /* kinds of sub-layer: 1..DESCENT_MAX_KINDS */
    const char *kind_names[DESCENT_MAX_KINDS]; /* "block"; or "attention", "mlp" */
    descent_depth trained; /* the depth the checkpoint was trained at, the default everywhere; 0 for a kind that has no T */
    bool deepens;          /* tokens computed at T serve as they are at other depths, and are deepened in place (but see
                              descent_history); otherwise another depth recomputes every token */
    uint32_t terms[DESCENT_MAX_KINDS]; /* energy terms of a sub-layer of each kind: 0 (it has no energy) .. DESCENT_MAX_TERMS */
    const char *term_names[DESCENT_MAX_KINDS][DESCENT_MAX_TERMS]; /* "attention", "feed_forward"; ... */
} descent_model_info;

/* Opens a GGUF file and checks everything in it before use. The file is memory-mapped and must not change while open.
 * The caller owns *model and closes it after everything made from it. */
DESCENT_API descent_code descent_model_open(const char *path, descent_model **model, descent_status *status);
/* The same from a copy in memory, for processes that live long: the file may change, shrink or vanish afterwards. Takes its
 * size in memory that no other process shares. DESCENT_IO where the file becomes shorter while it is read. */
DESCENT_API descent_code descent_model_read(const char *path, descent_model **model, descent_status *status);
DESCENT_API void descent_model_close(descent_model *model);

/* Owned by the model. */
DESCENT_API const descent_model_info *descent_model_describe(const descent_model *model);

/* What attention's energies E_i lie below 0 by for the mere number of keys that a token at `position` sees, all alike:
 * (sum_h alpha_h / beta) log |hist(i)| where one block descends, the sum over layers of tau K log(i + 1) where attention
 * sub-layers do. Added to E_i it makes tokens at different positions comparable. 0 where no attention descends an energy. */
DESCENT_API double descent_model_history_term(const descent_model *model, size_t position);

/* The model's tokenizer, owned by the model; NULL when the file carries none. */
DESCENT_API const descent_tokenizer *descent_model_tokenizer(const descent_model *model);

/* The i-th metadata entry, in the file's order: *key (owned by the model) and *value as text, arrays shortened to
 * their type, count and first entries. Writes at most `size` bytes, NUL included. False when i is past the last. */
DESCENT_API bool descent_model_metadata(const descent_model *model, size_t i, const char **key, char *value, size_t size);

typedef struct descent_tensor_info {
    const char *name; /* owned by the model */
    const char *type;
    uint32_t n_dims;
    uint64_t dims[4]; /* fastest first, as GGUF stores them */
    uint64_t bytes;
} descent_tensor_info;

/* The i-th tensor, in the file's order. False when i is past the last. */
DESCENT_API bool descent_model_tensor(const descent_model *model, size_t i, descent_tensor_info *tensor);

/* Reads a depth from text: "12" sets every kind that has a T, "3x2" attention and MLP of a model where both have one. Each
 * number is 1..DESCENT_MAX_STEPS. "none" is the depth of a model without any T, and nothing else is. */
DESCENT_API descent_code descent_depth_parse(const descent_model *model, const char *text, descent_depth *depth,
                                             descent_status *status);
/* Writes a depth as descent_depth_parse reads it ("3x2", or "12" where all T agree or there is one). Returns text. */
DESCENT_API const char *descent_depth_format(const descent_model *model, descent_depth depth, char text[16]);

/* ---- Tokenizer ------------------------------------------------------------------------------------------------- */

enum {
    DESCENT_ADD_SPECIAL = 1,  /* add BOS/EOS where the tokenizer's metadata says it does */
    DESCENT_PARSE_SPECIAL = 2 /* special tokens spelled out in the text become that token; otherwise plain text */
};

typedef struct descent_tokenizer_info {
    const char *model;              /* tokenizer.ggml.model: "chars", "words", "llama", "t5", "gpt2" */
    uint32_t vocab;                 /* ids 0..vocab-1; at least the model's V */
    int64_t bos, eos, pad, unknown; /* -1 where there is none */
    bool adds_bos, adds_eos;
} descent_tokenizer_info;

DESCENT_API const descent_tokenizer_info *descent_tokenizer_describe(const descent_tokenizer *tokenizer);

/* Encodes `bytes` bytes of text (any bytes, NUL included). *tokens is allocated, owned by the caller and released with
 * descent_free; *count may be 0. Fails where the text has something the vocabulary cannot spell (a character outside a
 * character vocabulary): the message names it and its offset. */
DESCENT_API descent_code descent_tokenizer_encode(const descent_tokenizer *tokenizer, const char *text, size_t bytes, int flags,
                                                  uint32_t **tokens, size_t *count, descent_status *status);

/* A piece of a text, and whether special tokens that it spells become those tokens. */
typedef struct descent_text_part {
    const char *text;
    size_t bytes;
    bool parse_special;
} descent_text_part;

/* Encodes the parts' texts, one behind the other, as one text: where a part ends makes no difference but to special tokens,
 * which must lie in parts that have them parsed. add_special is DESCENT_ADD_SPECIAL. Otherwise as descent_tokenizer_encode. */
DESCENT_API descent_code descent_tokenizer_encode_parts(const descent_tokenizer *tokenizer, const descent_text_part *parts,
                                                        size_t n_parts, bool add_special, uint32_t **tokens, size_t *count,
                                                        descent_status *status);

/* True when the id stands for text: false for control tokens, padding and ids past the vocabulary, which are never
 * sampled. EOS has no text either. */
DESCENT_API bool descent_tokenizer_has_text(const descent_tokenizer *tokenizer, uint32_t id);

/* The bytes token `id` appends to a text, owned by the tokenizer: possibly part of a UTF-8 character, possibly none. */
DESCENT_API const char *descent_tokenizer_piece(const descent_tokenizer *tokenizer, uint32_t id, size_t *bytes);

/* The token as the file spells it ("</s>" of one that has no text), valid UTF-8, not NUL-terminated, owned by the
 * tokenizer; *bytes is 0 for an id the file has no token for. */
DESCENT_API const char *descent_tokenizer_spelling(const descent_tokenizer *tokenizer, uint32_t id, size_t *bytes);

/* Decodes a stream of tokens into text that is valid UTF-8 at every moment: bytes of an unfinished character are held
 * back, bytes that can never become one come out as U+FFFD. */
typedef struct descent_decoder descent_decoder;
DESCENT_API descent_code descent_decoder_create(const descent_tokenizer *tokenizer, descent_decoder **decoder,
                                                descent_status *status);
DESCENT_API void descent_decoder_destroy(descent_decoder *decoder);
/* Feeds one token; returns the text that is now certain, NUL-terminated, owned by the decoder until the next call, and
 * its length in *bytes (text may hold NULs). NULL when memory ran out. */
DESCENT_API const char *descent_decoder_push(descent_decoder *decoder, uint32_t id, size_t *bytes);
/* Bytes held back now, of an unfinished character: 0..3. */
DESCENT_API size_t descent_decoder_held(const descent_decoder *decoder);
/* Ends the stream: what was held back comes out, as U+FFFD where it is incomplete. The decoder is then as new. */
DESCENT_API const char *descent_decoder_finish(descent_decoder *decoder, size_t *bytes);

/* Releases memory that a function above says the caller owns. */
DESCENT_API void descent_free(void *memory);

/* ---- Cache ----------------------------------------------------------------------------------------------------- */

typedef struct descent_cache descent_cache;

/* What the numbers of history are rounded to, once. Q8: 32 signed bytes and an f32 that they are multiples of. */
typedef enum descent_page_type {
    DESCENT_PAGE_F32 = 0,
    DESCENT_PAGE_F16,
    DESCENT_PAGE_BF16,
    DESCENT_PAGE_Q8,
    DESCENT_PAGE_TYPES
} descent_page_type;

typedef struct descent_cache_options {
    descent_page_type page_type;
    uint64_t byte_limit; /* pages, planes and states of every sequence together; 0: descent_cache_bytes_by_default */
} descent_cache_options;

typedef struct descent_cache_usage {
    uint64_t bytes, byte_limit;
    uint64_t pages;       /* pages held */
    uint64_t idle_pages;  /* of those, kept only for prefixes that may come again */
    uint64_t shared_hits; /* pages found instead of computed, since creation */
} descent_cache_usage;

/* `options` NULL: f32 pages and the default limit. The cache keeps a pointer to the model. */
DESCENT_API descent_code descent_cache_create(const descent_model *model, const descent_cache_options *options,
                                              descent_cache **cache, descent_status *status);
/* Destroy every sequence and batch of the cache first. */
DESCENT_API void descent_cache_destroy(descent_cache *cache);
DESCENT_API descent_cache_usage descent_cache_describe(const descent_cache *cache);

/* ---- Sequence -------------------------------------------------------------------------------------------------- */

typedef struct descent_sequence descent_sequence;

typedef struct descent_sequence_options {
    descent_depth depth; /* all zero: the trained depth */
    descent_motion motion;
    descent_solver solver;
    descent_exit exit; /* of a model that descends an energy; prefixes are shared between equal ones, and equal motions */
    descent_history history;
    uint64_t share_group; /* prefixes are shared within a group of equal numbers only */
    bool no_sharing;      /* neither find pages of others nor offer its own */
} descent_sequence_options;

/* `options` NULL: the trained depth, shared with everybody in group 0. */
DESCENT_API descent_code descent_sequence_create(descent_cache *cache, const descent_sequence_options *options,
                                                 descent_sequence **sequence, descent_status *status);
/* Bytes that a sequence made with these options (NULL: as above) holds of `tokens` tokens; saturates at UINT64_MAX, which is
 * also said of an unknown type and of options that no sequence is made with. */
DESCENT_API uint64_t descent_cache_bytes_needed(const descent_model *model, descent_page_type type, uint64_t tokens,
                                                const descent_sequence_options *options);

/* Takes its rows out of any batch first. NULL is allowed. */
DESCENT_API void descent_sequence_destroy(descent_sequence *sequence);

/* Appends tokens (each below V, the total at most the context), not yet descended. A sequence that is empty first looks
 * for the longest run of whole pages that others computed for the same tokens, never the page of the last token: those
 * count as descended to the depth they have. All or nothing. */
DESCENT_API descent_code descent_sequence_append(descent_sequence *sequence, const uint32_t *tokens, size_t count,
                                                 descent_status *status);

/* Keeps the first `count` tokens (at most the length). Their states stay, interventions too: they apply again to tokens that
 * come to their sites. DESCENT_LIMIT or DESCENT_NO_MEMORY where a page shared with others is cut in two and there is no
 * room for a copy of it. */
DESCENT_API descent_code descent_sequence_truncate(descent_sequence *sequence, size_t count, descent_status *status);

/* Changes T for the tokens not yet at that depth and those to come. Where the model deepens (descent_model_info.deepens) and
 * the history is OWN, tokens at a smaller depth become unfinished and go on from where they stand, tokens at a larger one stay
 * and serve as history; otherwise every token starts again, and the sequence looks for shared pages at its new depth. The T of
 * history.prompt_steps stays. */
DESCENT_API descent_code descent_sequence_set_depth(descent_sequence *sequence, descent_depth depth, descent_status *status);
DESCENT_API descent_depth descent_sequence_depth(const descent_sequence *sequence);

DESCENT_API size_t descent_sequence_length(const descent_sequence *sequence);
/* Owned by the sequence until it changes. */
DESCENT_API const uint32_t *descent_sequence_tokens(const descent_sequence *sequence);
/* Tokens, from the first, that have reached the sequence's depth (or a larger one), or have stopped before it. */
DESCENT_API size_t descent_sequence_finished(const descent_sequence *sequence);
/* Tokens, from the first, that came from pages computed by others and have nothing left to do: each has at least the depth
 * asked, or has stopped. A prefix: one that has stopped behind one that goes on is not among them, nor among the deepened. */
DESCENT_API size_t descent_sequence_reused(const descent_sequence *sequence);
/* Tokens that came from such pages at a smaller depth, to be taken on from there: behind the reused ones. */
DESCENT_API size_t descent_sequence_deepened(const descent_sequence *sequence);
/* Row steps run for this sequence so far. */
DESCENT_API uint64_t descent_sequence_steps_run(const descent_sequence *sequence);
/* And what was run beside them to see which tokens stop. */
DESCENT_API descent_exit_cost descent_sequence_exit_cost(const descent_sequence *sequence);
/* Row steps that the state of the token at `position` took, by whomever they were run: fewer than its depth asks where it
 * stopped early, 0 where it has not begun (or, where a token cannot be resumed, not finished) and past the last token. */
DESCENT_API uint32_t descent_sequence_token_steps(const descent_sequence *sequence, size_t position);
/* False where the (finished) token came to its T without the residual that its solver was asked for. True of what is not
 * solved, and past the last token. */
DESCENT_API bool descent_sequence_converged(const descent_sequence *sequence, size_t position);
/* DESCENT_OK, or DESCENT_DIVERGED: the sequence has ended, its rows have left the batch, and only reading, truncating to
 * before the named token and destroying are allowed. */
DESCENT_API descent_code descent_sequence_state_code(const descent_sequence *sequence, descent_status *status);

/* Copies x (C numbers) of a token at the step it has come to, and that step (counted within its sub-layer program) into
 * *steps. BAD_ARGUMENT while the token's state is in the middle of a step program that cannot be resumed. */
DESCENT_API descent_code descent_sequence_state(const descent_sequence *sequence, size_t position, float *x, uint32_t *steps,
                                                descent_status *status);

/* Saves tokens, depth and everything computed to a file, and restores it into a cache of the same model (checked by
 * fingerprint) and page type. The restored sequence continues with the same bits. Observers and interventions are not
 * saved. The file is written beside `path` and renamed. */
DESCENT_API descent_code descent_sequence_save(const descent_sequence *sequence, const char *path, descent_status *status);
DESCENT_API descent_code descent_sequence_restore(descent_cache *cache, const char *path, descent_sequence **sequence,
                                                  descent_status *status);

/* ---- Looking inside, and reaching in ---------------------------------------------------------------------------- */

/* A place in a descent: before step `step` (0-based) of the sub-layer `kind` of layer `layer`, of the token at `position`. A
 * sub-layer without T has the one step 0. */
typedef struct descent_site {
    uint32_t layer;
    uint32_t kind;
    uint32_t step;
    size_t position;
} descent_site;

enum {
    DESCENT_OBSERVE_ENERGY = 1,      /* energy[], and the split of its change */
    DESCENT_OBSERVE_CONVERGENCE = 2, /* update_norm, relative_change */
    DESCENT_OBSERVE_STATE = 4,       /* x and g */
    DESCENT_OBSERVE_SLOPE = 16,      /* slope */
    DESCENT_OBSERVE_LOGITS = 32,     /* logits, each a product with the head more (descent_sequence_logits_read) */
    DESCENT_OBSERVE_FINAL = 8        /* one more observation of each sub-layer, at x(T) or where the token stopped; a finished
                                        token's row may stay in the batch one step longer for it */
};

/* What a token's step was. Numbers that were not asked for, or do not exist, are NaN, pointers NULL. */
typedef struct descent_observation {
    descent_site site;
    bool final;                      /* the reading at x(T): no update followed */
    float energy[DESCENT_MAX_TERMS]; /* E_i at x(step), by term, keys of this step; none of them where the kind has no terms */
    float own_change;                /* dE_own of this step: E(g(step+1); keys of this step) - E(g(step); the same keys) */
    float history_change;  /* dE_history of the step before: E(g(step); keys of this step) - E(g(step); keys of step-1); NaN
                              where that step was not run just before (the first, or rows that were taken out and came back) */
    float update_norm;     /* |x(step+1) - x(step)| */
    float relative_change; /* r_t = |g(step+1) - g(step)| / |g(step)| */
    float slope;    /* grad^T J R grad at this step: grad of the energy at g, J = dg/dx of the norm at x, R the model's rate
                       of this step (CEM: eta P) without step_scale and what else a request may change of a step. A small
                       plain step of step_scale s changes the energy by about -s slope while the history is held. Where
                       R = c diag(gamma), gamma the norm's weight and c > 0, it is never negative */
    const float *x; /* [C] x(step); valid during the call */
    const float *g; /* [C] norm(x(step)); valid during the call */
    const float *logits; /* [V] what the head reads at x(step); valid during the call. Of a model that deepens at every step and
                            at x(T); elsewhere only in the last observation of a sub-layer (DESCENT_OBSERVE_FINAL), as if the
                            network ended there */
} descent_observation;

/* Called on the thread that steps the batch, once for each observed row of a step, in no promised order between rows. It must
 * not call into the cache it is called from. */
typedef void (*descent_observer)(void *user, const descent_observation *observation);

/* Observes every row of the sequence from now on (flags 0: nobody). Rows computed before are not seen: observe before the
 * first step, with no_sharing, to see all. Costs nothing when off and never changes a bit of the results. */
DESCENT_API descent_code descent_sequence_observe(descent_sequence *sequence, int flags, descent_observer observer, void *user,
                                                  descent_status *status);

/* What a model's rate R at a step is beside the weight gamma of the norm that makes g of x. Where R = c diag(gamma) with c > 0
 * at a step, that is off_diagonal 0 and low = high > 0, the slope there is never negative: a short enough step lowers the
 * energy while its history is held. */
typedef struct descent_rate {
    double low, high;    /* of R_cc / gamma_c over c */
    double off_diagonal; /* share of R's sum of squares off its diagonal, 0..1 */
} descent_rate;

/* R at a site's layer, kind and step (CEM: eta P; the position is not looked at). False where that sub-layer descends no energy
 * or is not there. Any thread. */
DESCENT_API bool descent_model_rate(const descent_model *model, descent_site site, descent_rate *rate);

/* States whose logits were read for the observer so far. */
DESCENT_API uint64_t descent_sequence_logits_read(const descent_sequence *sequence);

typedef enum descent_intervention { DESCENT_SET_X = 0, DESCENT_ADD_X, DESCENT_SET_G, DESCENT_ADD_G } descent_intervention;

/* When the row at `site` runs, its x or g (C finite numbers, copied) is replaced or added to first; g both as the query
 * and as history (where a block has two norms, as gpt-rec-parallel's, g is its attention's). Where layers descend in
 * sub-layers, x at step 0 is the sub-layer's input, and g at step 0 also what its key or gate is made of; later steps leave
 * those alone. Several at one site apply in the order given. From that token's page on the sequence shares with nobody.
 * BAD_ARGUMENT when that step has been run already. */
DESCENT_API descent_code descent_sequence_intervene(descent_sequence *sequence, descent_site site, descent_intervention how,
                                                    const float *values, descent_status *status);

/* Lets a token that has not begun start its descent at `site` with state x (C finite numbers, copied) instead of step 0
 * from its embedding: the steps before are not run. Allowed at any step of a model that deepens, at step 0 of any
 * sub-layer of one that does not (a later step needs the sub-layer's input as well: intervene instead). A token that starts at
 * step k serves as history only for tokens that start at k or later, but where the history is LAST. */
DESCENT_API descent_code descent_sequence_start(descent_sequence *sequence, descent_site site, const float *x,
                                                descent_status *status);

/* A state, where it is, or where a token starts with it. */
typedef struct descent_state {
    descent_site site;
    const float *values; /* [C] finite */
} descent_state;

typedef struct descent_change {
    descent_state state;
    descent_intervention how;
} descent_change;

/* Reaching into a generation's prompt: as descent_sequence_intervene and descent_sequence_start, all of it said beforehand. At
 * most one of starts, previous and noise. */
typedef struct descent_reach {
    const descent_change *changes; /* [n_changes], in order */
    size_t n_changes;
    const descent_state *starts; /* [n_starts], at most one a position; the other tokens start from their embedding */
    size_t n_starts;
    bool previous; /* x(0) of every token but the first is the last state of the one before: they run one after another */
    float noise;   /* sigma >= 0: x(0) of the prompt's tokens = e + sigma |e| / sqrt(C) xi, e the embedding, xi standard normal,
                      drawn from (noise_seed, position) alone */
    int64_t noise_seed;
} descent_reach;

/* ---- Batch ----------------------------------------------------------------------------------------------------- */

typedef struct descent_batch descent_batch;

typedef struct descent_batch_options {
    uint32_t max_rows; /* rows enrolled at once, 1..65536; 0: 512 */
    uint32_t threads;  /* 0: descent_threads_by_default */
} descent_batch_options;

DESCENT_API descent_code descent_batch_create(descent_cache *cache, const descent_batch_options *options, descent_batch **batch,
                                              descent_status *status);
DESCENT_API void descent_batch_destroy(descent_batch *batch);

/* Enrols the sequence's next unfinished tokens, at most `most` of them and as many as there is room for, and takes the
 * memory their whole descent needs. *added may be 0: nothing unfinished, no room, or the next token lies in a page that
 * another sequence is deepening; it is 0 on failure. DESCENT_LIMIT when the cache has no room left even after idle prefixes
 * went. A sequence is in one batch at a time. */
DESCENT_API descent_code descent_batch_add(descent_batch *batch, descent_sequence *sequence, size_t most, size_t *added,
                                           descent_status *status);

/* Takes the sequence's rows out. Where the model deepens they keep what they have done; elsewhere a token in the middle of
 * its descent starts again when it is added again. */
DESCENT_API void descent_batch_remove(descent_batch *batch, descent_sequence *sequence);

/* Rows enrolled now. */
DESCENT_API size_t descent_batch_rows(const descent_batch *batch);

/* Numbers counted by powers of two: in bucket i those above 2^(i-1) and up to 2^i, in the last all above 1,024. */
enum { DESCENT_ROW_BUCKETS = 12 };

typedef struct descent_step_report {
    size_t rows;                              /* rows advanced by this step */
    size_t finished;                          /* rows that reached their depth and left */
    size_t diverged;                          /* sequences that ended because a state was not finite */
    size_t rows_by_step[DESCENT_ROW_BUCKETS]; /* of `rows`, by the step t, from 1, of the sub-layer they are in that gave them
                                                 x(t) */
    uint64_t steps_sum;                       /* these t, added */
} descent_step_report;

/* Advances every enrolled row that shares the earliest weights by one step, through one product per weight matrix: all
 * rows of a model whose block is applied T times; of a layered model the rows at the earliest sub-layer, the others
 * waiting for them. `report` may be NULL. */
DESCENT_API descent_code descent_batch_step(descent_batch *batch, descent_step_report *report, descent_status *status);

/* Adds and steps until every token of the sequence is finished, other enrolled rows advancing beside it. Returns
 * DESCENT_DIVERGED where the sequence did. */
DESCENT_API descent_code descent_batch_finish(descent_batch *batch, descent_sequence *sequence, descent_status *status);

typedef struct descent_reading {
    const descent_sequence *sequence;
    size_t position;
} descent_reading;

/* Next-token logits [count][V] read from the states of finished tokens. A token must stand exactly at its sequence's
 * depth, or have stopped on the way there: BAD_ARGUMENT when it was computed deeper, by this sequence or by another that shares
 * the page (truncate and append it again; who reads the logits of a whole prompt sets no_sharing). DESCENT_DIVERGED when a
 * logit is not finite, named by its token; `logits` then holds what was computed. */
DESCENT_API descent_code descent_batch_logits(descent_batch *batch, const descent_reading *readings, size_t count,
                                              float *logits, descent_status *status);

/* ---- Sampling -------------------------------------------------------------------------------------------------- */

typedef struct descent_logit_bias {
    uint32_t token;
    float bias; /* added to the logit */
} descent_logit_bias;

/* How the next token is chosen. descent_sampling_defaults gives OpenAI's defaults: temperature 1, everything else off. */
typedef struct descent_sampling {
    float temperature;              /* >= 0; 0: greedy, the lowest id on a tie */
    int32_t top_k;                  /* keep the k largest; <= 0: off */
    float top_p;                    /* (0, 1]: keep the smallest set of largest probabilities that reaches p; 1: off */
    float min_p;                    /* [0, 1]: keep those of at least min_p times the largest; 0: off */
    float typical_p;                /* (0, 1]: locally typical sampling; 1: off */
    float repetition_penalty;       /* > 0: logits of seen tokens divided (if positive) or multiplied by it; 1: off */
    float presence_penalty;         /* subtracted once from the logits of generated tokens */
    float frequency_penalty;        /* subtracted once per occurrence */
    const descent_logit_bias *bias; /* [n_bias], owned by the caller */
    size_t n_bias;
    bool ignore_eos;         /* never sample EOS */
    uint32_t min_tokens;     /* no EOS before this many generated tokens */
    int64_t seed;            /* together with prompt and choice, the stream of random numbers */
    uint32_t prompt, choice; /* index of the prompt in the request, and of the choice */
} descent_sampling;

DESCENT_API descent_sampling descent_sampling_defaults(void);

/* Checks every field, naming the first that is wrong and what it may be. */
DESCENT_API descent_code descent_sampling_check(const descent_sampling *sampling, uint32_t vocab, descent_status *status);

/* Chooses the next token. `logits` [V] is read only. `tokens` [count] is the whole text so far, its first `prompt_count`
 * the prompt: the repetition penalty looks at all of it, presence and frequency at what was generated. The random number
 * used is a function of (seed, prompt, choice, count) alone. `tokenizer` (may be NULL) says which ids have no text and
 * which is EOS. BAD_ARGUMENT when nothing may be sampled, DESCENT_DIVERGED when a logit is not finite. */
DESCENT_API descent_code descent_sample(const descent_sampling *sampling, const descent_tokenizer *tokenizer,
                                        const float *logits, uint32_t vocab, const uint32_t *tokens, size_t count,
                                        size_t prompt_count, uint32_t *token, descent_status *status);

/* ---- Scheduler ------------------------------------------------------------------------------------------------- */

/* A scheduler is one thread that owns a cache and a batch over one model, and runs everybody's generations in it: a
 * *generation* is one prompt and the tokens that follow it. Rows of all generations, whatever their T, advance together; a new
 * one joins at the next step (of a layered model: when the rows in flight have finished their tokens). At most `chunk` rows of
 * prompts are in flight at once, shared evenly between the prompts, so a running text waits for no more than that.
 *
 * At most max_running generations hold cache; the others wait in the order they came. When the cache is full, idle prefixes
 * go first, then the generation that began last is paused: its memory goes, its tokens stay, and it is computed again, to the
 * same bits, when there is room. The one that began first always goes on, so that every generation ends. */
typedef struct descent_scheduler descent_scheduler;
typedef struct descent_generation descent_generation;

typedef struct descent_scheduler_options {
    descent_cache_options cache;
    uint32_t threads;           /* 0: descent_threads_by_default */
    uint32_t chunk;             /* rows of prompts in flight at once; 0: 128 */
    uint32_t max_running;       /* generations that hold cache at once, 1..4096; 0: 64 */
    void (*notify)(void *user); /* what descent_scheduler_notify has called; may be NULL */
    void *notify_user;
} descent_scheduler_options;

/* One chosen token, or (token_chosen false) one read prompt position. Pointers are valid during the call. */
typedef struct descent_choice {
    size_t position; /* of the token in the whole text: prompt_count for the first one generated. In a reading of the prompt,
                        the position the logits are of: they predict position + 1 */
    bool token_chosen;
    uint32_t token;      /* EOS included: it is then the last one */
    const float *logits; /* [V] the token was chosen from, unaltered */
    uint32_t steps;      /* row steps of the token these logits were read from */
} descent_choice;

typedef enum descent_generation_end {
    DESCENT_END_EOS,       /* the token before was EOS */
    DESCENT_END_LENGTH,    /* `limit` tokens are there, or the context is full */
    DESCENT_END_STOPPED,   /* a callback said so */
    DESCENT_END_CANCELLED, /* descent_generation_cancel */
    DESCENT_END_FAILED     /* `status` says why: DESCENT_DIVERGED, DESCENT_LIMIT, DESCENT_NO_MEMORY ... */
} descent_generation_end;

/* What a generation took. Seconds on a monotonic clock; the sum of the three is its life in the scheduler. */
typedef struct descent_generation_report {
    descent_generation_end end;
    descent_status status;
    size_t prompt_count, reused; /* prompt tokens; those of them found in the cache at the depth asked, a prefix */
    size_t deepened;             /* prompt tokens found at a smaller depth and taken on from there */
    size_t generated;            /* tokens chosen, EOS included */
    size_t unconverged;       /* tokens that choices were read from, or the prompt's readings, which descent_sequence_converged
                                 is not true of */
    size_t drafted, accepted; /* tokens begun before they were chosen; those of them that were chosen then */
    uint64_t row_steps;       /* run for it, those repeated after a pause and those of drafts included */
    uint64_t logits_read;     /* states whose logits were read for `observe`, those repeated included */
    descent_exit_cost exit_cost; /* the same of what was run to see which tokens stop */
    uint32_t pauses;
    double queue_seconds, prompt_seconds, generation_seconds;
} descent_generation_report;

/* Called on the scheduler's thread; they must return soon and may call no function of the scheduler but
 * descent_generation_cancel and descent_scheduler_notify. `chosen` returns false to end the text with this token. `ended` is
 * the last call of a generation, which it still may read; the handle is dead when it returns. */
typedef struct descent_generation_calls {
    bool (*chosen)(void *user, const descent_choice *choice);
    void (*ended)(void *user, const descent_generation_report *report);
    descent_observer observe; /* may be NULL */
} descent_generation_calls;

enum { DESCENT_DRAFT_AUTO = -1 };

typedef struct descent_generation_options {
    const uint32_t *prompt; /* [prompt_count], copied; at least 1 token, at most the context */
    size_t prompt_count;
    size_t limit;              /* tokens to generate at most; 0: none, the prompt is only computed */
    descent_sampling sampling; /* copied, bias too */
    descent_depth depth;       /* all zero: the trained depth */
    descent_motion motion;     /* as in descent_sequence_options */
    descent_solver solver;     /* the same */
    descent_exit exit;         /* the same */
    descent_history history;   /* the same; its `prompt` is not looked at */
    int draft_steps;           /* steps after which a token's state is asked what may follow, and again after so many more, so
                                  that the next token begins before this one has finished: faster where the guess is mostly
                                  right, the text the same. 0: never, else below the depth; DESCENT_DRAFT_AUTO: whatever is
                                  measured to be fastest, or never. Nothing is drafted where tokens are observed or may stop
                                  early, with the history LAST, or while the batch is large */
    uint64_t share_group;
    bool read_prompt;    /* `chosen` is also called for every prompt position but the last, in order, before the first token
                            (and for the last where limit is 0); such a generation shares no pages */
    int observe;         /* DESCENT_OBSERVE_...: the rows that choose tokens, from the prompt's last on, are reported to
                            `observe`, each step once; shares no pages */
    bool observe_prompt; /* the prompt's other rows too */
    const descent_reach *reach; /* copied; NULL: nothing. Such a generation shares no pages and drafts nothing */
    descent_generation *like;   /* a generation submitted before, with the same prompt, depth, motion and group: this one
                                   waits for its prompt, to share the pages. Whoever differs, shares none, or has ended meanwhile
                                   (nothing is read through the handle) is not waited for; nor is one in the background, but by
                                   another there */
    bool background; /* runs only while no other generation is there: its rows leave the batch for another's, or finish
                        their tokens first where the model does not deepen */
    descent_generation_calls calls;
    void *user;
} descent_generation_options;

typedef struct descent_scheduler_state {
    size_t running, waiting;                     /* generations */
    size_t rows;                                 /* in the batch now */
    uint64_t steps;                              /* batch steps made */
    uint64_t row_steps;                          /* rows advanced, in all */
    uint64_t steps_by_rows[DESCENT_ROW_BUCKETS]; /* of the steps, by how many rows they advanced */
    uint64_t rows_by_step[DESCENT_ROW_BUCKETS];  /* of the rows advanced, and */
    uint64_t steps_sum;                          /* the sum of their t: both as in descent_step_report */
    uint64_t pauses;
    double seconds_since_step; /* since the last step was made or there was nothing to do */
    descent_cache_usage cache;
} descent_scheduler_state;

/* Starts the thread. `options` NULL: defaults. The model outlives the scheduler. */
DESCENT_API descent_code descent_scheduler_create(const descent_model *model, const descent_scheduler_options *options,
                                                  descent_scheduler **scheduler, descent_status *status);
/* Cancels every generation (their `ended` is called), then ends the thread. Not from a callback. */
DESCENT_API void descent_scheduler_destroy(descent_scheduler *scheduler);

/* Any thread. Checks the options at once: BAD_ARGUMENT names what is wrong; DESCENT_LIMIT where the generation alone would not
 * fit into the whole cache, with both numbers. *generation may be used until its `ended` returns. */
DESCENT_API descent_code descent_scheduler_submit(descent_scheduler *scheduler, const descent_generation_options *options,
                                                  descent_generation **generation, descent_status *status);
/* Any thread, before `ended` has returned: its rows leave the batch within one step; `ended` follows on the scheduler's thread.
 */
DESCENT_API void descent_generation_cancel(descent_generation *generation);

/* From a callback of a generation, which tells another thread that there is something for it: to wake a thread takes as long as
 * a step of a small model, which everybody else would wait for. So options.notify is called soon, on one of the scheduler's
 * threads that waits for work; here and now where none is awake. Asked for again before it has begun, it is called once; two
 * calls may overlap on two threads. Until descent_scheduler_destroy has returned it may be called. */
DESCENT_API void descent_scheduler_notify(descent_scheduler *scheduler);
/* Any thread: a consistent picture, taken between two steps. */
DESCENT_API descent_scheduler_state descent_scheduler_describe(descent_scheduler *scheduler);

/* ---- Counted multiply-adds --------------------------------------------------------------------------------------- */

/* What a model's row steps cost by its shape: multiply-adds, and bytes of weights, counted from metadata and tensors, whatever
 * the engine makes of them. A *product* is one matrix times one vector, rows * columns multiply-adds. A matrix that is
 * multiplied both ways in a step is two products of the same bytes, so bytes are counted twice: once for every product, and
 * once for every matrix. */
typedef struct descent_weight_cost {
    uint64_t multiply_adds;
    uint64_t of_bytes;      /* of them, with matrices of quantized types, which are multiplied as bytes */
    uint64_t product_bytes; /* of each matrix as often as it is multiplied with */
    uint64_t bytes;         /* of each matrix once */
} descent_weight_cost;

/* Sub-layers of one kind, all layers of it together. */
typedef struct descent_kind_cost {
    descent_weight_cost step;  /* every step */
    descent_weight_cost entry; /* beside it on the first step of the T */
    /* Multiply-adds with what attention sees, for each token seen: in every step; and numbers of history read. */
    uint64_t attention, history;
    /* Multiply-adds with weights of an energy by itself, where history stands still; it takes half of attention's as well. */
    uint64_t energy;
    /* Multiply-adds of `step` that a form with keys made for every head saves where a whole prompt is computed; those of
     * bytes among them. */
    uint64_t saved_in_prompts, saved_of_bytes;
} descent_kind_cost;

typedef struct descent_model_cost {
    const descent_model_info *info; /* the model's */
    descent_kind_cost kinds[DESCENT_MAX_KINDS];
    descent_weight_cost head;
    bool strict; /* a token does not see itself */
} descent_model_cost;

/* Any thread. DESCENT_UNSUPPORTED names a key or tensor that is counted and not there. */
DESCENT_API descent_code descent_model_count(const descent_model *model, descent_model_cost *cost, descent_status *status);

/* What a token costs at a depth, without its head. `seen`: tokens its attention sees, itself among them where the mask has it.
 */
typedef struct descent_token_cost {
    uint64_t weights, attention;    /* multiply-adds */
    uint64_t of_bytes;              /* of `weights` */
    uint64_t product_bytes;         /* of weights */
    uint64_t history;               /* numbers */
    uint64_t saved, saved_of_bytes; /* of `weights` and of `of_bytes`, as in descent_kind_cost */
} descent_token_cost;
DESCENT_API descent_token_cost descent_cost_token(const descent_model_cost *cost, descent_depth depth, uint64_t seen);

/* ---- Compute scaling --------------------------------------------------------------------------------------------- */

/* What does T buy? A *sweep* runs one input at several depths and measures each: how well the model predicts the input's tokens
 * there, how far their descents have come, and what it took. Where tokens are deepened it is one pass: the tokens go down to
 * the smallest T, are read, and go on to the next, so that a sweep takes the steps of its largest T and one reading for each;
 * elsewhere every depth computes the input anew. Sweeps run on a scheduler beside generations, as these do: many at once share
 * products, they begin, pause and are cancelled like them, and what is measured is the same, bit for bit, whatever ran beside
 * (seconds excepted). Sweeps share `chunk` with prompts as one of these would, the first of them going first.
 *
 * Measures of inputs are then summed up to one row for each depth, with intervals (descent_scaling_summarize). */

enum { DESCENT_SWEEP_DEPTHS = 1024 }; /* of one sweep, at most */

/* Multiply-adds by what they are for, counted by descent_model_cost: of a token's steps, the matrices of its block (or layers)
 * and the tokens it sees; a head for each prediction; and what the exit criterion asks: heads it reads, energies, and steps
 * that were computed for one and not made. Sums over a state alone are not counted, here as in norms. */
typedef struct descent_multiply_adds {
    uint64_t weights, attention, head, exit;
} descent_multiply_adds;

/* One input at one depth. Every number is a sum over tokens, so that measures of several inputs add up. It is what a run at
 * this depth alone would be, though it was part of a sweep: steps, multiply-adds and seconds are those of such a run.
 *
 * Energy and convergence are of the tokens that predict, at positions first - 1 .. count - 2. The energy of a token is the sum
 * over its sub-layers of theirs at x(T), or where the descent stopped. Its r is the largest over its descents of r_t at the
 * last step each made (descent_observation.relative_change). Both are NaN where they were not asked for, and where the model
 * has none: energy where it has no terms, r where it has no T. */
typedef struct descent_measure {
    descent_depth depth;
    descent_code code;    /* DESCENT_DIVERGED: a state or logit was not finite; nats, energy and r are then NaN, right and
                             converged 0, and steps and multiply-adds those of the depth asked */
    uint64_t predictions; /* tokens predicted: count - first */
    uint64_t bytes;       /* of the text of the tokens predicted; 0 where the file has no tokenizer */
    double nats;          /* the sum of -log p(token) */
    uint64_t items;       /* questions asked: of a sweep, at every prediction, whether the token is the likeliest, the lowest id
                             on a tie. Who matches answers puts in its own: 1 an input, say */
    uint64_t right;       /* of them, answered right */
    uint64_t tokens;      /* tokens run: count - 1 */
    uint64_t token_steps; /* row steps of these */
    descent_multiply_adds cost;
    double energy;
    double relative_change; /* the sum of r */
    uint64_t converged;     /* tokens whose r is below the threshold */
    double seconds;         /* of the scheduler's time with steps and readings, this input's share of them by its rows; what
                               it takes to measure energies and r is in it */
} descent_measure;

/* Any thread. The sum of two measures of one depth. `sum` may start as {0} with its depth; not finite is contagious. */
DESCENT_API void descent_measure_add(descent_measure *sum, const descent_measure *part);

/* What a measure of one input of `tokens` tokens run, `predictions` of them read, costs at a depth without early exit: its
 * token_steps and cost, and nothing else, are filled in. For what no sweep has measured, such as generated answers. */
DESCENT_API descent_measure descent_measure_cost(const descent_model_cost *cost, descent_depth depth, uint64_t tokens,
                                                 uint64_t predictions);

typedef struct descent_sweep_result {
    descent_generation_end end;      /* LENGTH: every depth was measured; CANCELLED; FAILED: as `status` says */
    descent_status status;           /* where end is not FAILED, of the first measure that diverged, or OK */
    const descent_measure *measures; /* [n_depths] in the order asked, all of them there where end is LENGTH; valid during the
                                        call */
    size_t n_depths;
    uint64_t row_steps; /* that the whole sweep took: pages found in the cache are not among them, those repeated after a pause
                           are */
    descent_exit_cost exit_cost; /* the same of what was run to see which tokens stop */
    uint32_t pauses;
    bool shared; /* rows of others, not of this experiment, shared a step or a reading with it, or it was paused: its seconds
                    say little */
    double queue_seconds, seconds; /* before it began, and paused; running */
} descent_sweep_result;

typedef struct descent_sweep_options {
    const uint32_t *tokens; /* [count], copied: 2 .. context + 1 of them, as the last is only predicted */
    size_t count;
    size_t first; /* the first position predicted, 1 .. count - 1: 1 of a text; of an answer behind a prompt its first token */
    const descent_depth *depths; /* [n_depths], copied: 1 .. DESCENT_SWEEP_DEPTHS, in any order; {0}: the trained depth */
    size_t n_depths;
    descent_sequence_options how; /* motion, exit, ... and share_group; its depth is not looked at, nor history.prompt: tokens
                                     before the first that predicts take prompt_steps. Pages before that token are shared as
                                     other sequences' are, unless no_sharing, and with an exit or prompt_steps none */
    bool energy, convergence;     /* whether these are measured: they take time */
    float threshold;              /* of r: 0 or more */
    uint64_t experiment;          /* sweeps of an equal number are not others to each other (descent_sweep_result.shared) */
    bool background;              /* as in descent_generation_options */
    void (*done)(void *user, const descent_sweep_result *result); /* the last call, on the scheduler's thread; as the `ended` of
                                                                     generations, the handle is dead when it returns */
    void *user;
} descent_sweep_options;

/* Any thread; the handle is for descent_generation_cancel. Checks the options at once and fails as descent_scheduler_submit. A
 * state that is not finite does not end a sweep: its measures from there on say DESCENT_DIVERGED. */
DESCENT_API descent_code descent_scheduler_sweep(descent_scheduler *scheduler, const descent_sweep_options *options,
                                                 descent_generation **sweep, descent_status *status);

/* Row steps that a sweep of `tokens` tokens run takes at most: of the largest T where the model deepens and the history
 * (NULL: so) is OWN, else of all together. Any thread; saturates at UINT64_MAX. */
DESCENT_API uint64_t descent_sweep_steps(const descent_model *model, const descent_depth *depths, size_t n_depths,
                                         const descent_history *history, uint64_t tokens);

/* What is reported of a depth. */
typedef enum descent_metric {
    DESCENT_METRIC_LOSS = 0,   /* nats / predictions */
    DESCENT_METRIC_PERPLEXITY, /* e^loss */
    DESCENT_METRIC_BITS,       /* a byte: nats / (ln 2 * bytes) */
    DESCENT_METRIC_ACCURACY,   /* right / items */
    DESCENT_METRIC_ENERGY,     /* / predictions */
    DESCENT_METRIC_CHANGE,     /* r / predictions */
    DESCENT_METRIC_CONVERGED,  /* converged / predictions: the share */
    DESCENT_METRICS
} descent_metric;

/* "loss", "perplexity", "bits_per_byte", "accuracy", "energy", "relative_change", "converged"; NULL for what is no metric. */
DESCENT_API const char *descent_metric_name(descent_metric metric);

/* NaN where it does not exist. */
typedef struct descent_estimate {
    double value;
    double low, high; /* the interval; NaN of a single unit, too */
} descent_estimate;

typedef struct descent_scaling_row {
    descent_measure sum;       /* of all inputs; its code is DESCENT_DIVERGED where some input's is */
    uint64_t inputs, diverged; /* those, and of them, those that diverged */
    descent_estimate metrics[DESCENT_METRICS];
    descent_estimate difference[DESCENT_METRICS]; /* to the reference: this row's minus its, resampled together; of the
                                                     reference itself 0, 0, 0 */
} descent_scaling_row;

enum { DESCENT_NO_REFERENCE = -1 };
enum { DESCENT_SCALING_NUMBERS = 1 << 27 }; /* depths times DESCENT_METRICS, for every resample and every unit, at most */

/* Called now and then by functions that take long; false: stop, which then end with DESCENT_IO. */
typedef bool (*descent_progress)(void *user, uint64_t done, uint64_t total);

typedef struct descent_scaling_options {
    uint32_t resamples; /* 0: 1000; at most 100000 */
    double level;       /* of the intervals, in (0, 1); 0: 0.95 */
    uint64_t seed;
    int reference;             /* the index of a depth, or DESCENT_NO_REFERENCE: differences are NaN */
    descent_progress progress; /* before each resample, row and difference, on the calling thread. May be NULL */
    void *user;
} descent_scaling_options;

/* Sums up measures [n_inputs][n_depths], the same depths in each. Input i belongs to unit units[i], any number: what was drawn
 * together, as a document's windows were; NULL: each is its own. Intervals are percentiles over resamples of units, as many as
 * there are, drawn with replacement by random numbers that are a function of (seed, resample, draw) alone; each resample is of
 * all depths at once, so that differences between depths are those of the same units. Units are numbered as they first come, so
 * that the rows are a function, bit for bit, of measures and units in their order. `options` NULL: defaults, the first depth
 * the reference. Any thread; rows [n_depths]. */
DESCENT_API descent_code descent_scaling_summarize(const descent_measure *measures, const uint64_t *units, size_t n_inputs,
                                                   size_t n_depths, const descent_scaling_options *options,
                                                   descent_scaling_row *rows, descent_status *status);

/* ---- Quantization ---------------------------------------------------------------------------------------------- */

/* Types weights are written in, from the one that keeps least to the one that keeps all. */
typedef enum descent_weight_type {
    DESCENT_WEIGHT_BY_RULE = 0, /* as the function that takes it says */
    DESCENT_WEIGHT_Q4_0,
    DESCENT_WEIGHT_Q4_K,
    DESCENT_WEIGHT_Q6_K,
    DESCENT_WEIGHT_Q8_0,
    DESCENT_WEIGHT_BF16,
    DESCENT_WEIGHT_F16,
    DESCENT_WEIGHT_F32
} descent_weight_type;

/* "Q8_0", ...; NULL for BY_RULE and numbers that are no type. */
DESCENT_API const char *descent_weight_type_name(descent_weight_type type);

/* What a text makes of each row and column of a model's matrices: mean squares of the vectors they meet. Errors of weights
 * that meet large ones are then made smaller, at the cost of the others. */
typedef struct descent_importance descent_importance;

/* Runs the model over tokens [count], in windows of its context, at `depth` (all zero: the trained one), on the calling
 * thread. `progress` (may be NULL) counts tokens. The caller frees *importance. */
DESCENT_API descent_code descent_importance_gather(const descent_model *model, const uint32_t *tokens, size_t count,
                                                   descent_depth depth, descent_progress progress, void *user,
                                                   descent_importance **importance, descent_status *status);
DESCENT_API void descent_importance_free(descent_importance *importance); /* NULL is allowed */

typedef struct descent_tensor_choice {
    const char *pattern; /* of tensor names, * and ? as in a shell */
    descent_weight_type type;
} descent_tensor_choice;

/* What became of one tensor. Pointers are valid during the call. */
typedef struct descent_quantized_tensor {
    const char *name, *from, *to; /* types */
    uint32_t n_dims;
    uint64_t dims[4];       /* without padding, fastest first */
    uint64_t bytes, before; /* in the new file and in the old */
    bool matrix;            /* false: kept as it is, whatever was asked */
    bool tiled;             /* written with equal scales */
    bool changed;           /* false: copied byte by byte */
    double rms, rms_error;  /* of the old numbers, and of what they lost */
    const char *note;       /* why it has another type than asked; NULL: it has not */
} descent_quantized_tensor;

typedef enum descent_scales {
    DESCENT_SCALES_BY_RULE = 0, /* tile in Q8_0 but for what is Q8_0 already and copied, row in Q4_0 */
    DESCENT_SCALES_ROW,         /* each block of a row has its own */
    DESCENT_SCALES_TILE /* Q8_0 and Q4_0 of matrices that are multiplied both ways: equal over 32 x 32 weights, which the
                           kernels run faster */
} descent_scales;

typedef struct descent_quantize_options {
    descent_weight_type type;             /* of matrices; BY_RULE is refused */
    descent_weight_type embedding_type;   /* of tokens and positions; by rule: `type`, but Q6_K where that has 4 bits */
    descent_weight_type head_type;        /* the same; refused where the head is the embedding */
    const descent_tensor_choice *choices; /* [n_choices], before all else, the last that fits */
    size_t n_choices;
    descent_scales scales;
    const descent_importance *importance; /* of a model of the same shape, or NULL */
    bool requantize;                      /* types below Q8_0 may be read and written in another type */
    bool replace;                         /* the file may exist */
    uint32_t threads;                     /* 0: descent_threads_by_default */
    bool (*written)(void *user, const descent_quantized_tensor *tensor); /* of each tensor; false: stop. May be NULL */
    descent_progress progress; /* inside of tensors as well, on the calling thread; bytes of the old tensors. May be NULL */
    void *user;                /* of both */
} descent_quantize_options;

/* Writes the model of the GGUF file `in` to `out`, its matrices in other types. Metadata is copied; general.file_type,
 * general.quantization_version and descent.scales become what is true. Norms, biases, rates that are no matrix, diagonals and
 * preconditioners stay as they are; a rate matrix is at least Q8_0 (`choices` excepted). Rows are padded with zeros to whole
 * blocks; where a type would thereby take as much as one that keeps more, that one is taken, but not of `choices`. The file
 * appears when it is whole. DESCENT_BAD_FILE names a number that is not finite or that its type has no room for. Takes memory
 * for one tensor beside what descent_model_open takes. */
DESCENT_API descent_code descent_quantize(const char *in, const char *out, const descent_quantize_options *options,
                                          descent_status *status);

/* ---- Products on their own --------------------------------------------------------------------------------------- */

/* A matrix W of made-up weights, packed as a model's are, and vectors for it: what the kernels can do with nothing around
 * them, for whoever measures that. */
typedef struct descent_trial descent_trial;

typedef struct descent_trial_options {
    descent_weight_type type;
    bool tiled;        /* Q8_0 and Q4_0: scales equal over 32 x 32 weights; of others of no effect */
    size_t rows, cols; /* of W: multiples of 32 and 256, together at most 2^30 weights */
    uint32_t vectors;  /* the most that are multiplied at once */
} descent_trial_options;

/* Takes about twice the memory of W while it is made. Owned by the caller; different trials may run on different threads. */
DESCENT_API descent_code descent_trial_create(const descent_trial_options *options, descent_trial **trial,
                                              descent_status *status);
DESCENT_API void descent_trial_destroy(descent_trial *trial); /* NULL is allowed */

/* Bytes of memory that W takes, all of which a product reads. */
DESCENT_API uint64_t descent_trial_bytes(const descent_trial *trial);
/* Weights of W: multiply-adds of a product with one vector. */
DESCENT_API uint64_t descent_trial_weights(const descent_trial *trial);

/* Multiplies W with `vectors` vectors, at most those it was made with, `times` times, on the calling thread: W x, or with
 * `back` W^T u. Returns the product with the last of them, [rows] or [cols], which is the trial's. */
DESCENT_API const float *descent_trial_run(descent_trial *trial, bool back, uint32_t vectors, uint64_t times);

#ifdef __cplusplus
}
#endif
#endif
