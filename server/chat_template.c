/* chat_template.c: see chat_template.h. A template writes a list of parts, its own text and the messages' contents, whose texts
 * are then encoded as one: special tokens are found in the template's own parts only. Nothing is copied: parts point to
 * literals, to the messages and to the tokenizer's spellings. Called by request_chat.c. */
#include "chat_template.h"

#include "status.h"
#include "utf8.h"

#include <stdlib.h>
#include <string.h>

const char *const chat_template_names[] = {"plain", "chatml", "llama2", "llama3", NULL};

chat_template chat_template_find(const char *name)
{
    for (int i = 0; chat_template_names[i]; i++)
        if (!strcmp(name, chat_template_names[i])) return (chat_template)(CHAT_PLAIN + i);
    return CHAT_NONE;
}

/* ---- Parts ------------------------------------------------------------------------------------------------------- */

enum { SYSTEM, USER, ASSISTANT, ROLES };
static const char *const role_names[ROLES] = {"system", "user", "assistant"};

enum { MOST_OF_A_MESSAGE = 5, MOST_OF_AN_END = 3 }; /* parts that a template writes */

typedef struct rendering {
    chat_template which;
    const chat_message *messages;
    const uint8_t *roles; /* [count] */
    size_t count;
    descent_text_part bos, eos; /* empty where the tokenizer has none */
    bool parse_special;         /* in contents too */
    descent_text_part *parts;   /* room for what every message and the end may need */
    size_t n_parts;
} rendering;

static void add(rendering *r, const char *text)
{
    r->parts[r->n_parts++] = (descent_text_part){text, strlen(text), true};
}

/* White space as Python's str.strip() takes it: Unicode's, and the four separators U+001C to U+001F. */
static bool is_space(uint32_t c)
{
    return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

typedef enum trim { AS_IS, TRIM_END, TRIM_BOTH } trim;

static void add_content(rendering *r, size_t message, trim how)
{
    const chat_message *m = &r->messages[message];
    const char *text = m->content;
    size_t bytes = text ? m->bytes : 0, length, start;
    uint32_t c;
    while (how == TRIM_BOTH && (length = utf8_read(text, bytes, &c)) > 0 && is_space(c)) {
        text += length;
        bytes -= length;
    }
    while (how != AS_IS && bytes > 0) {
        for (start = bytes - 1; start > 0 && bytes - start < 4 && ((unsigned char)text[start] & 0xC0) == 0x80;) start--;
        if (utf8_read(text + start, bytes - start, &c) != bytes - start || !is_space(c)) break;
        bytes = start;
    }
    r->parts[r->n_parts++] = (descent_text_part){text, bytes, r->parse_special};
}

/* ---- The four, as docs/convert.md defines them ------------------------------------------------------------------- */

static void write_plain(rendering *r)
{
    static const char *const labels[ROLES] = {"", "User: ", "Assistant: "};
    for (size_t i = 0; i < r->count; i++) {
        add(r, labels[r->roles[i]]);
        add_content(r, i, AS_IS);
        add(r, "\n\n");
    }
    add(r, "Assistant:");
}

static void write_chatml(rendering *r)
{
    static const char *const heads[ROLES] = {"<|im_start|>system\n", "<|im_start|>user\n", "<|im_start|>assistant\n"};
    for (size_t i = 0; i < r->count; i++) {
        add(r, heads[r->roles[i]]);
        add_content(r, i, AS_IS);
        add(r, "<|im_end|>\n");
    }
    add(r, heads[ASSISTANT]);
}

static void write_llama2(rendering *r)
{
    size_t first = r->roles[0] == SYSTEM;
    for (size_t i = first; i < r->count; i++) {
        if (r->roles[i] == ASSISTANT) {
            add(r, " ");
            add_content(r, i, TRIM_BOTH);
            add(r, " ");
            r->parts[r->n_parts++] = r->eos;
            continue;
        }
        bool with_system = first && i == first;
        r->parts[r->n_parts++] = r->bos;
        add(r, with_system ? "[INST] <<SYS>>\n" : "[INST] ");
        if (with_system) {
            add_content(r, 0, AS_IS);
            add(r, "\n<</SYS>>\n\n");
        }
        add_content(r, i, with_system ? TRIM_END : TRIM_BOTH);
        add(r, " [/INST]");
    }
}

static void write_llama3(rendering *r)
{
    static const char *const heads[ROLES] = {"<|start_header_id|>system<|end_header_id|>\n\n",
                                             "<|start_header_id|>user<|end_header_id|>\n\n",
                                             "<|start_header_id|>assistant<|end_header_id|>\n\n"};
    r->parts[r->n_parts++] = r->bos;
    for (size_t i = 0; i < r->count; i++) {
        add(r, heads[r->roles[i]]);
        add_content(r, i, TRIM_BOTH);
        add(r, "<|eot_id|>");
    }
    add(r, heads[ASSISTANT]);
}

/* ---- Who may speak when ------------------------------------------------------------------------------------------ */

static descent_code read_roles(const chat_message *messages, size_t count, const char *template_name, uint8_t *roles,
                               descent_status *status)
{
    for (size_t i = 0; i < count; i++) {
        const char *role = strcmp(messages[i].role, "developer") ? messages[i].role : "system";
        for (roles[i] = 0; roles[i] < ROLES && strcmp(role, role_names[roles[i]]);) roles[i]++;
        if (roles[i] == ROLES)
            return descent_fail(
                status, DESCENT_BAD_ARGUMENT,
                "messages[%zu] has the role \"%.40s\", which the chat template \"%s\" has no form for: expected system, "
                "developer, user or assistant",
                i, messages[i].role, template_name);
    }
    return DESCENT_OK;
}

static descent_code check_turns(const uint8_t *roles, size_t count, descent_status *status)
{
    size_t first = roles[0] == SYSTEM;
    for (size_t i = first; i < count; i++) {
        uint8_t expected = (i - first) % 2 ? ASSISTANT : USER;
        if (roles[i] != expected)
            return descent_fail(
                status, DESCENT_BAD_ARGUMENT,
                "messages[%zu] is of the %s, expected the %s's: in the chat template \"llama2\" user and assistant take "
                "turns, behind one system message at most",
                i, role_names[roles[i]], role_names[expected]);
    }
    if (first == count)
        return descent_fail(
            status, DESCENT_BAD_ARGUMENT,
            "messages[0] is all there is: in the chat template \"llama2\" a user's message follows the system's");
    return DESCENT_OK;
}

/* ---- Encoding ---------------------------------------------------------------------------------------------------- */

static descent_text_part spelling(const descent_tokenizer *tokenizer, int64_t id)
{
    descent_text_part part = {"", 0, true};
    if (id >= 0) part.text = descent_tokenizer_spelling(tokenizer, (uint32_t)id, &part.bytes);
    return part;
}

static descent_code render(rendering *r, const descent_tokenizer *tokenizer, uint32_t **tokens, size_t *n_tokens,
                           descent_status *status)
{
    static void (*const write[])(rendering *) = {
        [CHAT_PLAIN] = write_plain, [CHAT_CHATML] = write_chatml, [CHAT_LLAMA2] = write_llama2, [CHAT_LLAMA3] = write_llama3};
    write[r->which](r);
    return descent_tokenizer_encode_parts(tokenizer, r->parts, r->n_parts, r->which == CHAT_PLAIN, tokens, n_tokens, status);
}

descent_code chat_template_encode(chat_template which, const descent_tokenizer *tokenizer, const chat_message *messages,
                                  size_t count, bool parse_special, uint32_t **tokens, size_t *n_tokens, descent_status *status)
{
    if (which == CHAT_NONE || !tokenizer)
        return descent_fail(status, DESCENT_UNSUPPORTED, "the model has no %s", tokenizer ? "chat template" : "tokenizer");
    if (count == 0) return descent_fail(status, DESCENT_BAD_ARGUMENT, "messages is empty: expected one message at least");
    const descent_tokenizer_info *info = descent_tokenizer_describe(tokenizer);
    uint8_t *roles = calloc(count, sizeof *roles);
    descent_text_part *parts =
        count < SIZE_MAX / MOST_OF_A_MESSAGE ? calloc(count * MOST_OF_A_MESSAGE + MOST_OF_AN_END, sizeof *parts) : NULL;
    descent_code code = roles && parts
                            ? DESCENT_OK
                            : descent_fail(status, DESCENT_NO_MEMORY, "no memory for a conversation of %zu messages", count);
    if (!code) code = read_roles(messages, count, chat_template_names[which - CHAT_PLAIN], roles, status);
    if (!code && which == CHAT_LLAMA2) code = check_turns(roles, count, status);
    if (!code) {
        rendering r = {.which = which,
                       .messages = messages,
                       .roles = roles,
                       .count = count,
                       .bos = spelling(tokenizer, info->bos),
                       .eos = spelling(tokenizer, info->eos),
                       .parse_special = parse_special,
                       .parts = parts};
        code = render(&r, tokenizer, tokens, n_tokens, status);
    }
    free(parts);
    free(roles);
    return code;
}
