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

/* ---- Lists ------------------------------------------------------------------------------------------------------ */

static size_t count_items(const char *list)
{
    size_t count = 1;
    for (const char *c = list; *c; c++) count += *c == ',';
    return count;
}

/* Copies the item that starts at `list` and returns where the next one starts; NULL after the last. An item that does not
 * fit ends in "?", which no number does. */
static const char *next_item(const char *list, char *item, size_t size)
{
    size_t length = strcspn(list, ",");
    bool fits = length < size;
    snprintf(item, size, "%.*s%s", (int)(fits ? length : size - 2), list, fits ? "" : "?");
    return list[length] ? list + length + 1 : NULL;
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
        rest = next_item(rest, item, sizeof item);
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

int read_exit(const cli_command *command, const char *text, descent_exit *exit)
{
    *exit = (descent_exit){.criterion = DESCENT_EXIT_NONE};
    if (!text || !strcmp(text, "none")) return EXIT_SUCCESS;
    char items[4][32] = {"", "0.03", "1", "1"};
    const char *rest = text;
    size_t n = 0;
    for (; rest && n < 4; n++) {
        size_t length = strcspn(rest, ":");
        snprintf(items[n], sizeof items[n], "%.*s", (int)(length < sizeof items[n] ? length : 0), rest);
        rest = rest[length] ? rest + length + 1 : NULL;
    }
    double threshold;
    int64_t least, every;
    if (rest || strcmp(items[0], "state") != 0 || !cli_read_real(items[1], &threshold) || !(threshold >= 0) ||
        !(threshold <= FLT_MAX) || !cli_read_integer(items[2], 1, DESCENT_MAX_STEPS, &least) ||
        !cli_read_integer(items[3], 1, DESCENT_MAX_STEPS, &every))
        return cli_usage_error(
            command,
            "--exit must be none or state:THRESHOLD:MIN_STEPS:EVERY, a number of at least 0 and two integers "
            "from 1 to %u, the last ones left out at will; got \"%s\"",
            DESCENT_MAX_STEPS, text);
    *exit = (descent_exit){.criterion = DESCENT_EXIT_STATE,
                           .threshold = (float)threshold,
                           .min_steps = (uint16_t)least,
                           .check_every = (uint16_t)every};
    return EXIT_SUCCESS;
}

int read_depths(const cli_command *command, const descent_model *model, const char *list, asked_depth **depths, size_t *count)
{
    char trained[16];
    if (!list) list = descent_depth_format(model, descent_model_describe(model)->trained, trained);
    size_t n = count_items(list), i = 0;
    asked_depth *read = calloc(n, sizeof *read);
    if (!read) {
        cli_error("no memory left");
        return EXIT_FAILURE;
    }
    for (const char *rest = list; rest; i++) {
        rest = next_item(rest, read[i].text, sizeof read[i].text);
        int exit_code = read_depth(command, model, read[i].text, &read[i].depth);
        if (exit_code == EXIT_SUCCESS) continue;
        free(read);
        return exit_code;
    }
    *depths = read;
    *count = n;
    return EXIT_SUCCESS;
}
