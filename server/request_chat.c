/* request_chat.c: "messages" into one prompt, by the model's chat template. Contents are strings, or lists of text parts, which
 * are joined; what is no text is refused by name. */
#include "request_parts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 64 };

/* One message being read; errors name its fields "messages[3].content". */
typedef struct message_reader {
    const request_reader *request;
    fields fields;
    char path[NAME_SIZE];
    chat_message *out;
    char *joined; /* content of several parts, owned; NULL: it lies in the JSON */
} message_reader;

static bool is_role(const char *role, size_t bytes)
{
    static const char *const roles[] = {"system", "developer", "user", "assistant", "tool"};
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++)
        if (!strcmp(role, roles[i]) && bytes == strlen(roles[i])) return true;
    return false;
}

/* The text of one part of a content. */
static bool read_part(message_reader *m, const json_t *part, size_t index, const char **text, size_t *bytes)
{
    char path[2 * NAME_SIZE], words[FIELDS_WORDS];
    size_t type_bytes;
    (void)snprintf(path, sizeof path, "%s.content[%zu]", m->path, index);
    fields f = {.object = json_is_object(part) ? (json_t *)part : NULL, .path = path, .error = m->fields.error};
    if (!f.object) {
        (void)snprintf(path, sizeof path, "content[%zu]", index);
        return fields_fail(&m->fields, path, NULL, "is %s: expected an object", fields_describe(part, words));
    }
    const char *type = fields_text(&f, "type", "", &type_bytes);
    if (!fields_ok(&f)) return false;
    if (strcmp(type, "text") || type_bytes != 4) {
        const json_t *value = fields_any(&f, "type");
        return fields_fail(&f, "type", value ? "unsupported_parameter" : NULL, "is %s: expected \"text\"",
                           value ? fields_quote(value, words) : "missing");
    }
    *text = fields_text(&f, "text", NULL, bytes);
    if (!*text) return fields_fail(&f, "text", NULL, "is missing: expected a string");
    return fields_ok(&f);
}

/* The parts' texts, one behind the other: no more bytes than the body has. */
static void read_parts(message_reader *m, const json_t *parts)
{
    size_t total = 0, count = json_array_size(parts), bytes;
    const char *text;
    for (size_t i = 0; i < count; i++) {
        if (!read_part(m, json_array_get(parts, i), i, &text, &bytes)) return;
        total += bytes;
    }
    m->joined = malloc(total + 1);
    if (!m->joined) {
        request_no_memory(m->request);
        return;
    }
    m->out->content = m->joined;
    for (size_t i = 0; i < count; i++) {
        if (!read_part(m, json_array_get(parts, i), i, &text, &bytes)) return;
        memcpy(m->joined + m->out->bytes, text, bytes);
        m->out->bytes += bytes;
    }
    m->joined[total] = '\0';
}

static void read_content(message_reader *m)
{
    char words[FIELDS_WORDS];
    const json_t *content = fields_any(&m->fields, "content");
    if (json_is_array(content)) {
        read_parts(m, content);
    } else if (json_is_string(content)) {
        m->out->content = json_string_value(content);
        m->out->bytes = json_string_length(content);
    } else if (content || strcmp(m->out->role, "assistant")) {
        (void)fields_fail(&m->fields, "content", NULL, "is %s: expected a string or a list of text parts",
                          content ? fields_describe(content, words) : "null");
    }
}

static void read_message(message_reader *m)
{
    char words[FIELDS_WORDS];
    size_t bytes;
    const char *role = fields_text(&m->fields, "role", NULL, &bytes);
    if (!fields_ok(&m->fields)) return;
    if (!role || !is_role(role, bytes)) {
        (void)fields_fail(&m->fields, "role", NULL, "is %s: expected system, developer, user, assistant or tool",
                          role ? fields_quote(fields_any(&m->fields, "role"), words) : "missing");
        return;
    }
    *m->out = (chat_message){.role = role, .content = ""};
    if (json_array_size(fields_array(&m->fields, "tool_calls")) > 0 || fields_any(&m->fields, "function_call")) {
        const char *name = fields_any(&m->fields, "function_call") ? "function_call" : "tool_calls";
        (void)fields_fail(&m->fields, name, "unsupported_parameter", "is not supported: this server calls no tools");
    }
    read_content(m);
}

static void encode(const request_reader *r, const chat_message *messages, size_t count)
{
    generation_request *out = r->out;
    descent_status status;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) bytes += messages[i].bytes;
    if (!request_check_text(r, "messages", bytes)) return;
    out->prompts = calloc(1, sizeof *out->prompts);
    if (!out->prompts) {
        request_no_memory(r);
        return;
    }
    out->n_prompts = 1;
    prompt *p = out->prompts;
    if (chat_template_encode(out->model->template, out->model->tokenizer, messages, count, out->parse_special, &p->tokens,
                             &p->count, &status)) {
        (void)request_unspelled(r, "messages", &status);
        return;
    }
    if (p->count == 0) (void)fields_fail(&r->top, "messages", NULL, "are no tokens: expected some text");
    (void)request_check_prompt(r, "messages", p);
}

void request_read_messages(const request_reader *r)
{
    char words[FIELDS_WORDS];
    const served_model *model = r->out->model;
    const json_t *list = fields_array(&r->top, "messages");
    size_t count = json_array_size(list);
    if (!fields_ok(&r->top)) return;
    if (count == 0) {
        (void)fields_fail(&r->top, "messages", NULL, "is %s: expected a list of messages", list ? "an empty list" : "missing");
        return;
    }
    if (!model->tokenizer || model->template == CHAT_NONE) {
        (void)fields_fail(&r->top, "messages", "chat_template_unsupported",
                          model->tokenizer
                              ? "cannot be written for model %s, whose file names no chat template: --chat-template "
                                "names one, /v1/completions needs none"
                              : "cannot be written for model %s, which has no tokenizer",
                          model->id);
        return;
    }
    chat_message *messages = calloc(count, sizeof *messages);
    char **joined = calloc(count, sizeof *joined);
    if (!messages || !joined) request_no_memory(r);
    for (size_t i = 0; i < count && fields_ok(&r->top); i++) {
        json_t *value = json_array_get(list, i);
        message_reader m = {.request = r, .out = &messages[i]};
        (void)snprintf(m.path, sizeof m.path, "messages[%zu]", i);
        m.fields = (fields){.object = value, .path = m.path, .error = r->top.error};
        if (json_is_object(value))
            read_message(&m);
        else
            (void)fields_fail(&r->top, m.path, NULL, "is %s: expected an object", fields_describe(value, words));
        joined[i] = m.joined;
    }
    if (fields_ok(&r->top)) encode(r, messages, count);
    for (size_t i = 0; joined && i < count; i++) free(joined[i]);
    free(joined);
    free(messages);
}
