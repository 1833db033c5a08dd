/* chat_tool.c: a model's chat template and tokenizer, driven through standard input by test_chat_template.py.
 *
 *     chat_tool MODEL.gguf TEMPLATE
 *
 * A line is a JSON object {"messages": [[role, content], ...], "parse_special": bool}, content null for none; an answer a line,
 * {"tokens": [...]} or {"code": n, "message": text}. */
#include "chat_template.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

static json_t *answer(chat_template which, const descent_tokenizer *tokenizer, const json_t *request)
{
    const json_t *list = json_object_get(request, "messages");
    size_t count = json_array_size(list), n_tokens = 0;
    chat_message *messages = calloc(count + 1, sizeof *messages);
    uint32_t *tokens = NULL;
    descent_status status;
    for (size_t i = 0; messages && i < count; i++) {
        const json_t *content = json_array_get(json_array_get(list, i), 1);
        messages[i] = (chat_message){json_string_value(json_array_get(json_array_get(list, i), 0)), json_string_value(content),
                                     json_string_length(content)};
    }
    descent_code code =
        chat_template_encode(which, tokenizer, messages, count, json_is_true(json_object_get(request, "parse_special")),
                             &tokens, &n_tokens, &status);
    free(messages);
    if (code) return json_pack("{s:i, s:s}", "code", (int)code, "message", status.message);
    json_t *ids = json_array();
    for (size_t i = 0; i < n_tokens; i++) (void)json_array_append_new(ids, json_integer(tokens[i]));
    descent_free(tokens);
    return json_pack("{s:o}", "tokens", ids);
}

int main(int argc, char **argv)
{
    descent_model *model;
    descent_status status;
    char *line = NULL;
    size_t room = 0;
    if (argc != 3) return 2;
    if (descent_model_open(argv[1], &model, &status)) {
        (void)fprintf(stderr, "%s\n", status.message);
        return 1;
    }
    while (getline(&line, &room, stdin) > 0) {
        json_t *request = json_loads(line, JSON_ALLOW_NUL, NULL);
        json_t *said = answer(chat_template_find(argv[2]), descent_model_tokenizer(model), request);
        if (!said || json_dumpf(said, stdout, JSON_COMPACT) || putchar('\n') == EOF || fflush(stdout)) return 2;
        json_decref(said);
        json_decref(request);
    }
    free(line);
    descent_model_close(model);
    return 0;
}
