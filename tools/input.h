/* input.h: what commands read: whole files and their lines, lists of numbers, of token ids, of depths. A function that fails
 * has said why on stderr, and its result is the exit code. */
#ifndef DESCENT_TOOLS_INPUT_H
#define DESCENT_TOOLS_INPUT_H

#include "cli.h"

#include "descent.h"

typedef struct text_buffer {
    char *bytes; /* NUL-terminated, may hold NULs */
    size_t length, room;
} text_buffer;

/* False when memory ran out; the buffer is then as before. */
bool text_append(text_buffer *text, const char *bytes, size_t length);
void text_buffer_release(text_buffer *text);

/* The whole of a file, or of standard input where path is "-"; more than `limit` bytes are refused. The caller releases
 * *text, which is set in every case. */
int read_text(const char *path, size_t limit, text_buffer *text);

/* A line of a text without what ends it, \n or \r\n. */
typedef struct text_line {
    const char *bytes, *next; /* all zero: the one before the first */
    size_t length, number;    /* from 1, empty lines counted */
} text_line;

/* The next line that is not empty; false behind the last. */
bool text_next_line(const text_buffer *text, text_line *line);

/* Copies the item of a list that starts at `rest` and returns where the next one starts; NULL after the last. An item that does
 * not fit ends in "?", as nothing does that an option takes. */
const char *next_item(const char *rest, char separator, char *item, size_t size);

/* At most `room` numbers from 1 to `most`, of the option called `option`, "--streams". */
int read_numbers(const cli_command *command, const char *option, const char *list, int64_t most, int64_t *numbers, size_t room,
                 size_t *count);

/* Ids from "1,2,3", each below `vocab`. The caller releases *tokens with descent_free. */
int read_tokens(const cli_command *command, const char *list, uint32_t vocab, uint32_t **tokens, size_t *count);

/* A depth as --steps gives it; NULL text: the trained depth. */
int read_depth(const cli_command *command, const descent_model *model, const char *text, descent_depth *depth);

/* "auto", or the steps of --draft-steps, as descent_generation_options has them. A usage error otherwise. */
int read_draft_steps(const cli_command *command, const char *text, int *steps);

/* An early exit as --exit gives it, "state:0.1" or "kl:0.001:2:1"; left out, the threshold is the criterion's own and the
 * others are 1. NULL text: none. */
int read_exit(const cli_command *command, const char *text, descent_exit *exit);

/* One depth of a list such as "1,2,4", "1x1,3x2", "1-32:4" (every fourth from 1 on) or "1-4x1-4" (each of one with each of the
 * other). `text` is as it was asked for. */
typedef struct asked_depth {
    descent_depth depth;
    char text[16];
} asked_depth;

/* NULL list: the trained depth alone. The caller frees *depths. */
int read_depths(const cli_command *command, const descent_model *model, const char *list, asked_depth **depths, size_t *count);

#endif
