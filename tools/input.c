/* input.c: see input.h. Nothing read here is trusted to be small: sizes are checked before memory is taken. */
#include "input.h"

#include <errno.h>
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Text ------------------------------------------------------------------------------------------------------- */

bool text_append(text_buffer *text, const char *bytes, size_t length)
{
    if (length >= SIZE_MAX / 4 - text->length) return false;
    if (text->length + length + 1 > text->room) {
        size_t room = (text->length + length + 1) * 3 / 2;
        char *grown = realloc(text->bytes, room);
        if (!grown) return false;
        text->bytes = grown;
        text->room = room;
    }
    if (length) memcpy(text->bytes + text->length, bytes, length);
    text->length += length;
    text->bytes[text->length] = '\0';
    return true;
}

void text_buffer_release(text_buffer *text)
{
    free(text->bytes);
    *text = (text_buffer){.bytes = NULL};
}

/* Reads to the end of the file, as it may be a pipe. */
static int read_stream(FILE *file, const char *shown, size_t limit, text_buffer *text)
{
    char block[65536];
    size_t got;
    while ((got = fread(block, 1, sizeof block, file)) > 0) {
        if (got > limit - text->length) {
            cli_error("%s: more than the %zu bytes allowed here", shown, limit);
            return EXIT_FAILURE;
        }
        if (text_append(text, block, got)) continue;
        cli_error("%s: no memory left after %zu bytes", shown, text->length);
        return EXIT_FAILURE;
    }
    if (!ferror(file)) return EXIT_SUCCESS;
    cli_error("%s: %s", shown, strerror(errno));
    return EXIT_FAILURE;
}

int read_text(const char *path, size_t limit, text_buffer *text)
{
    *text = (text_buffer){.bytes = NULL};
    if (!text_append(text, "", 0)) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    if (!strcmp(path, "-")) return read_stream(stdin, "standard input", limit, text);
    FILE *file = fopen(path, "rb");
    if (!file) {
        cli_error("%s: %s", path, strerror(errno));
        return EXIT_FAILURE;
    }
    int exit_code = read_stream(file, path, limit, text);
    fclose(file);
    return exit_code;
}

bool text_next_line(const text_buffer *text, text_line *line)
{
    const char *end = text->bytes + text->length;
    if (!line->next) line->next = text->bytes;
    while (line->next < end) {
        const char *newline = memchr(line->next, '\n', (size_t)(end - line->next));
        line->bytes = line->next;
        line->length = (size_t)((newline ? newline : end) - line->bytes);
        line->next = newline ? newline + 1 : end;
        line->number++;
        if (line->length > 0 && line->bytes[line->length - 1] == '\r') line->length--;
        if (line->length > 0) return true;
    }
    return false;
}

/* ---- Lists ------------------------------------------------------------------------------------------------------ */

static size_t count_items(const char *list)
{
    size_t count = 1;
    for (const char *c = list; *c; c++) count += *c == ',';
    return count;
}

const char *next_item(const char *rest, char separator, char *item, size_t size)
{
    const char *end = strchr(rest, separator);
    size_t length = end ? (size_t)(end - rest) : strlen(rest);
    bool fits = length < size;
    snprintf(item, size, "%.*s%s", (int)(fits ? length : size - 2), rest, fits ? "" : "?");
    return end ? end + 1 : NULL;
}

int read_numbers(const cli_command *command, const char *option, const char *list, int64_t most, int64_t *numbers, size_t room,
                 size_t *count)
{
    *count = 0;
    for (const char *rest = list; rest; (*count)++) {
        char item[24];
        rest = next_item(rest, ',', item, sizeof item);
        if (*count == room || !cli_read_integer(item, 1, most, &numbers[*count]))
            return cli_usage_error(command, "%s must be at most %zu numbers from 1 to %lld with commas between, got \"%s\"",
                                   option, room, (long long)most, list);
    }
    return EXIT_SUCCESS;
}

int read_tokens(const cli_command *command, const char *list, uint32_t vocab, uint32_t **tokens, size_t *count)
{
    size_t n = count_items(list), i = 0;
    uint32_t *ids = calloc(n, sizeof *ids);
    if (!ids) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    for (const char *rest = list; rest; i++) {
        char item[24];
        int64_t id;
        rest = next_item(rest, ',', item, sizeof item);
        if (!cli_read_integer(item, 0, (int64_t)vocab - 1, &id)) {
            free(ids);
            return cli_usage_error(command, "--tokens must be ids from 0 to %u with commas between, got \"%s\"", vocab - 1,
                                   item);
        }
        ids[i] = (uint32_t)id;
    }
    *tokens = ids;
    *count = n;
    return EXIT_SUCCESS;
}

int read_depth(const cli_command *command, const descent_model *model, const char *text, descent_depth *depth)
{
    descent_status status;
    if (!text)
        *depth = descent_model_describe(model)->trained;
    else if (descent_depth_parse(model, text, depth, &status) != DESCENT_OK)
        return cli_usage_error(command, "%s", status.message);
    return EXIT_SUCCESS;
}

int read_draft_steps(const cli_command *command, const char *text, int *steps)
{
    int64_t number = DESCENT_DRAFT_AUTO;
    if (strcmp(text, "auto") != 0 && !cli_read_integer(text, 0, DESCENT_MAX_STEPS, &number))
        return cli_usage_error(command, "--draft-steps must be auto or an integer from 0 to %d, got \"%s\"", DESCENT_MAX_STEPS,
                               text);
    *steps = (int)number;
    return EXIT_SUCCESS;
}

static int wrong_exit(const cli_command *command, const char *text)
{
    return cli_usage_error(
        command,
        "--exit must be none or CRITERION:THRESHOLD:MIN_STEPS:EVERY, the criterion one of state, cosine, energy, "
        "entropy, kl and argmax, the threshold a number of at least 0 (of argmax an integer from 1) and two "
        "integers from 1 to %u, the last ones left out at will; got \"%s\"",
        DESCENT_MAX_STEPS, text);
}

int read_exit(const cli_command *command, const char *text, descent_exit *exit)
{
    *exit = (descent_exit){.criterion = DESCENT_EXIT_NONE};
    if (!text || !strcmp(text, "none")) return EXIT_SUCCESS;
    char items[4][32] = {"", "", "1", "1"};
    const char *rest = text;
    size_t n = 0;
    for (; rest && n < 4; n++) rest = next_item(rest, ':', items[n], sizeof items[n]);
    descent_exit_criterion criterion = DESCENT_EXIT_STATE;
    while (descent_exit_name(criterion) && strcmp(descent_exit_name(criterion), items[0]) != 0) criterion++;
    double threshold = (double)descent_exit_default_threshold(criterion);
    int64_t count = 1, least, every;
    bool counts = criterion == DESCENT_EXIT_ARGMAX;
    if (rest || !descent_exit_name(criterion) || (n > 1 && !cli_read_real(items[1], &threshold)) || !(threshold >= 0) ||
        !(threshold <= FLT_MAX) || (n > 1 && counts && !cli_read_integer(items[1], 1, DESCENT_MAX_STEPS, &count)) ||
        !cli_read_integer(items[2], 1, DESCENT_MAX_STEPS, &least) || !cli_read_integer(items[3], 1, DESCENT_MAX_STEPS, &every))
        return wrong_exit(command, text);
    *exit = (descent_exit){
        .criterion = criterion, .threshold = (float)threshold, .min_steps = (uint16_t)least, .check_every = (uint16_t)every};
    return EXIT_SUCCESS;
}

/* ---- Lists of depths ---------------------------------------------------------------------------------------------- */

enum { MOST_DEPTHS = 4096 };

typedef struct depth_list {
    asked_depth *items; /* [MOST_DEPTHS] */
    size_t count;
} depth_list;

/* FIRST, FIRST-LAST or FIRST-LAST:EVERY */
typedef struct step_range {
    int64_t first, last, every;
} step_range;

static bool read_range(const char *text, size_t length, step_range *range)
{
    char copy[48];
    if (length >= sizeof copy) return false;
    snprintf(copy, sizeof copy, "%.*s", (int)length, text);
    range->every = 1;
    char *last = strchr(copy, '-'), *every = last ? strchr(last, ':') : NULL;
    if (every) {
        *every++ = '\0';
        if (!cli_read_integer(every, 1, DESCENT_MAX_STEPS, &range->every)) return false;
    }
    if (last) *last++ = '\0';
    if (!cli_read_integer(copy, 1, DESCENT_MAX_STEPS, &range->first)) return false;
    range->last = range->first;
    return !last || cli_read_integer(last, range->first, DESCENT_MAX_STEPS, &range->last);
}

static int add_depth(const cli_command *command, const descent_model *model, const char *text, depth_list *list)
{
    if (list->count == MOST_DEPTHS) return cli_usage_error(command, "--steps lists more than %d depths", MOST_DEPTHS);
    asked_depth *asked = &list->items[list->count];
    int exit_code = read_depth(command, model, text, &asked->depth);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    if (strlen(text) < sizeof asked->text)
        snprintf(asked->text, sizeof asked->text, "%s", text);
    else
        descent_depth_format(model, asked->depth, asked->text);
    list->count++;
    return EXIT_SUCCESS;
}

/* Every depth of "1-32:4", or of "1-4x1-4", where the second number changes fastest. */
static int add_range(const cli_command *command, const descent_model *model, const char *text, depth_list *list)
{
    step_range first, second = {1, 1, 1};
    const char *by = strchr(text, 'x');
    if (!read_range(text, by ? (size_t)(by - text) : strlen(text), &first) ||
        (by && !read_range(by + 1, strlen(by + 1), &second)))
        return cli_usage_error(command,
                               "\"%s\" is no range of depths: FIRST-LAST or FIRST-LAST:EVERY, such as 1-32 or 1-32:4, or two "
                               "of them for attention and MLP, such as 1-4x1-4; integers from 1 to %u",
                               text, DESCENT_MAX_STEPS);
    for (int64_t a = first.first; a <= first.last; a += first.every)
        for (int64_t b = second.first; b <= second.last; b += second.every) {
            char depth[32];
            if (by)
                snprintf(depth, sizeof depth, "%dx%d", (int)a, (int)b);
            else
                snprintf(depth, sizeof depth, "%d", (int)a);
            int exit_code = add_depth(command, model, depth, list);
            if (exit_code != EXIT_SUCCESS) return exit_code;
        }
    return EXIT_SUCCESS;
}

int read_depths(const cli_command *command, const descent_model *model, const char *text, asked_depth **depths, size_t *count)
{
    char trained[16];
    if (!text) text = descent_depth_format(model, descent_model_describe(model)->trained, trained);
    depth_list list = {.items = calloc(MOST_DEPTHS, sizeof *list.items)};
    if (!list.items) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    for (const char *rest = text; rest;) {
        char item[48];
        rest = next_item(rest, ',', item, sizeof item);
        int exit_code = (strchr(item, '-') ? add_range : add_depth)(command, model, item, &list);
        if (exit_code == EXIT_SUCCESS) continue;
        free(list.items);
        return exit_code;
    }
    *depths = list.items;
    *count = list.count;
    return EXIT_SUCCESS;
}
