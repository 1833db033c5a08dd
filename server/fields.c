/* fields.c: see fields.h. Before jansson sees a body its nesting and its number of values are counted in one pass without
 * recursion, since jansson recurses and every value takes memory. Of jansson's messages only what it expected is used: what it
 * found, which it adds, may be a prompt. */
#include "fields.h"

#include "utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

/* Line and column (in characters) of an offset, both from 1 on. */
static void locate(const char *text, size_t offset, size_t *line, size_t *column)
{
    *line = *column = 1;
    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            (*line)++;
            *column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            (*column)++;
        }
    }
}

/* Where a string that opens at `at` ends: its closing quote, or `bytes`. */
static size_t skip_string(const char *text, size_t bytes, size_t at)
{
    for (at++; at < bytes && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < bytes ? at : bytes;
}

/* Counts what will take memory or recursion. Brackets that match none are jansson's to refuse. */
static bool check_shape(const char *text, size_t bytes, unsigned max_depth, api_error *error)
{
    size_t depth = 0, containers = 0, values = 1, line, column;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '"') i = skip_string(text, bytes, i);
        if (c == ',') values++;
        if ((c == '}' || c == ']') && depth > 0) depth--;
        if (c == '{' || c == '[') {
            depth++;
            containers++;
            values++;
        }
        if (depth <= max_depth && containers <= FIELDS_MOST_CONTAINERS && values <= FIELDS_MOST_VALUES) continue;
        locate(text, i, &line, &column);
        if (depth > max_depth)
            return api_fail(error, 400, NULL, NULL, "the body nests deeper than %u levels at line %zu, column %zu", max_depth,
                            line, column);
        return api_fail(error, 400, NULL, NULL, "the body holds more than %d %s at line %zu, column %zu",
                        containers > FIELDS_MOST_CONTAINERS ? FIELDS_MOST_CONTAINERS : FIELDS_MOST_VALUES,
                        containers > FIELDS_MOST_CONTAINERS ? "objects and lists" : "values", line, column);
    }
    return true;
}

/* The key that ends before `end`, printable. Between its quotes a quote stands only behind a backslash. */
static const char *key_before(const char *text, size_t end, char shown[FIELDS_WORDS])
{
    size_t begin = end;
    if (end == 0 || text[end - 1] != '"') return "";
    for (begin = --end; begin > 0; begin--) {
        size_t slashes = 0;
        if (text[begin - 1] != '"') continue;
        while (slashes + 1 < begin && text[begin - 2 - slashes] == '\\') slashes++;
        if (slashes % 2 == 0) break;
    }
    return utf8_printable(text + begin, end - begin, shown, FIELDS_WORDS);
}

static void explain(const char *text, const json_error_t *why, api_error *error)
{
    char shown[FIELDS_WORDS];
    const char *near = strstr(why->text, " near "); /* what was found follows */
    int expected = (int)(near ? (size_t)(near - why->text) : strlen(why->text));
    switch (json_error_code(why)) {
    case json_error_out_of_memory:
        (void)api_fail(error, 500, NULL, NULL, "no memory for the body's JSON");
        error->no_retry = true;
        return;
    case json_error_duplicate_key:
        (void)api_fail(error, 400, NULL, NULL, "the key \"%s\" stands twice in one object, at line %d, column %d",
                       key_before(text, (size_t)why->position, shown), why->line, why->column);
        return;
    case json_error_numeric_overflow:
        (void)api_fail(
            error, 400, NULL, NULL,
            "the number that ends at line %d, column %d is out of range: expected a signed 64-bit integer or a double",
            why->line, why->column);
        return;
    case json_error_invalid_utf8:
        (void)api_fail(error, 400, NULL, NULL, "the body is not valid UTF-8: %.*s at line %d, column %d", expected, why->text,
                       why->line, why->column);
        return;
    default:
        (void)api_fail(error, 400, NULL, NULL, "the body is not valid JSON: %.*s at line %d, column %d", expected, why->text,
                       why->line, why->column);
    }
}

json_t *fields_parse(const char *text, size_t bytes, unsigned max_depth, api_error *error)
{
    json_error_t why;
    if (bytes == 0) {
        (void)api_fail(error, 400, NULL, NULL, "the body is empty: expected a JSON object");
        return NULL;
    }
    if (!check_shape(text, bytes, max_depth, error)) return NULL;
    json_t *parsed = json_loadb(text, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &why);
    if (!parsed) {
        explain(text, &why, error);
        return NULL;
    }
    if (json_is_object(parsed)) return parsed;
    char words[FIELDS_WORDS];
    (void)api_fail(error, 400, NULL, NULL, "the body is %s: expected a JSON object", fields_describe(parsed, words));
    json_decref(parsed);
    return NULL;
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

const char *fields_describe(const json_t *value, char words[FIELDS_WORDS])
{
    static const char *const kinds[] = {[JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list", [JSON_STRING] = "a string",
                                        [JSON_TRUE] = "true",        [JSON_FALSE] = "false",  [JSON_NULL] = "null"};
    if (json_is_integer(value))
        (void)snprintf(words, FIELDS_WORDS, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        (void)snprintf(words, FIELDS_WORDS, "%.17g", json_real_value(value));
    else
        (void)snprintf(words, FIELDS_WORDS, "%s", kinds[json_typeof(value)]);
    return words;
}

const char *fields_quote(const json_t *string, char words[FIELDS_WORDS])
{
    char shown[FIELDS_WORDS - 2];
    utf8_printable(json_string_value(string), json_string_length(string), shown, sizeof shown);
    (void)snprintf(words, FIELDS_WORDS, "\"%s\"", shown);
    return words;
}

bool fields_ok(const fields *f)
{
    return f->error->status == 0;
}

bool fields_fail(const fields *f, const char *name, const char *code, const char *format, ...)
{
    if (!fields_ok(f)) return false;
    char param[API_PARAM_SIZE], message[API_MESSAGE_SIZE];
    (void)snprintf(param, sizeof param, "%s%s%s", f->path, f->path[0] ? "." : "", name);
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return api_fail(f->error, 400, param, code, "%s %s", param, message);
}

static void fail_kind(const fields *f, const char *name, const json_t *value, const char *expected)
{
    char words[FIELDS_WORDS];
    (void)fields_fail(f, name, NULL, "is %s: expected %s", fields_describe(value, words), expected);
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

json_t *fields_any(const fields *f, const char *name)
{
    if (!f->object || !fields_ok(f)) return NULL;
    json_t *value = json_object_get(f->object, name);
    return json_is_null(value) ? NULL : value;
}

bool fields_bool(const fields *f, const char *name, bool otherwise)
{
    const json_t *value = fields_any(f, name);
    if (!value) return otherwise;
    if (json_is_boolean(value)) return json_is_true(value);
    fail_kind(f, name, value, "true or false");
    return otherwise;
}

bool fields_as_integer(const json_t *value, int64_t low, int64_t high, int64_t *integer)
{
    int64_t whole;
    if (json_is_integer(value)) {
        whole = json_integer_value(value);
    } else {
        double real = json_is_real(value) ? json_real_value(value) : NAN;
        if (!(real >= -0x1p63 && real < 0x1p63) || real != floor(real)) return false;
        whole = (int64_t)real;
    }
    if (whole < low || whole > high) return false;
    *integer = whole;
    return true;
}

int64_t fields_integer(const fields *f, const char *name, int64_t low, int64_t high, int64_t otherwise)
{
    char words[FIELDS_WORDS];
    const json_t *value = fields_any(f, name);
    int64_t integer = otherwise;
    if (!value || fields_as_integer(value, low, high, &integer)) return integer;
    fields_describe(value, words);
    if (high < INT64_MAX)
        (void)fields_fail(f, name, NULL, "is %s: expected an integer from %" PRId64 " to %" PRId64, words, low, high);
    else if (low > INT64_MIN)
        (void)fields_fail(f, name, NULL, "is %s: expected an integer of at least %" PRId64, words, low);
    else
        (void)fields_fail(f, name, NULL, "is %s: expected a signed 64-bit integer", words);
    return otherwise;
}

double fields_real(const fields *f, const char *name, double low, double high, bool open_low, double otherwise)
{
    char words[FIELDS_WORDS];
    const json_t *value = fields_any(f, name);
    if (!value) return otherwise;
    double real = json_is_number(value) ? json_number_value(value) : NAN;
    if ((open_low ? real > low : real >= low) && real <= high) return real;
    (void)fields_fail(f, name, NULL,
                      open_low ? "is %s: expected a number above %g and at most %g" : "is %s: expected a number from %g to %g",
                      fields_describe(value, words), low, high);
    return otherwise;
}

const char *fields_text(const fields *f, const char *name, const char *otherwise, size_t *bytes)
{
    const json_t *value = fields_any(f, name);
    *bytes = otherwise ? strlen(otherwise) : 0;
    if (!value) return otherwise;
    if (!json_is_string(value)) {
        fail_kind(f, name, value, "a string");
        return otherwise;
    }
    *bytes = json_string_length(value);
    return json_string_value(value);
}

fields fields_object(const fields *f, const char *name, const char *path)
{
    json_t *value = fields_any(f, name);
    if (value && !json_is_object(value)) {
        fail_kind(f, name, value, "an object");
        value = NULL;
    }
    return (fields){.object = value, .path = path, .error = f->error};
}

json_t *fields_array(const fields *f, const char *name)
{
    json_t *value = fields_any(f, name);
    if (!value || json_is_array(value)) return value;
    fail_kind(f, name, value, "a list");
    return NULL;
}

void fields_only(const fields *f, const char *const *names)
{
    const char *key;
    json_t *value;
    if (!f->object || !fields_ok(f)) return;
    json_object_foreach(f->object, key, value)
    {
        bool known = false;
        for (size_t i = 0; names[i] && !known; i++) known = !strcmp(key, names[i]);
        if (known) continue;
        char all[512] = "", shown[FIELDS_WORDS];
        size_t at = 0;
        for (size_t i = 0; names[i] && at < sizeof all; i++)
            at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", i ? ", " : "", names[i]);
        (void)fields_fail(f, utf8_printable(key, strlen(key), shown, sizeof shown), NULL, "is no field: expected one of %s",
                          all);
        return;
    }
}
