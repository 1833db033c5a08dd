/* test_fields.c: bodies that are no JSON object, in every way, and one object's fields by name and type; the errors they
 * become. */
#include "fields.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DEPTH = 8 };

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

static void refuses_bytes(const char *text, size_t bytes, const char *message)
{
    api_error error = {0};
    char *exact = malloc(bytes ? bytes : 1); /* of the exact size: a byte read beyond it is seen */
    memcpy(exact, text, bytes);
    assert_null(fields_parse(exact, bytes, DEPTH, &error));
    free(exact);
    assert_int_equal(error.status, 400);
    assert_string_equal(error.message, message);
    assert_string_equal(error.param, "");
    assert_null(error.code);
}

static void refuses(const char *text, const char *message)
{
    refuses_bytes(text, strlen(text), message);
}

static void bodies_that_are_no_object(void **state)
{
    (void)state;
    refuses("", "the body is empty: expected a JSON object");
    refuses("[1]", "the body is a list: expected a JSON object");
    refuses("5", "the body is 5: expected a JSON object");
    refuses("null", "the body is null: expected a JSON object");
    refuses("\"a secret\"", "the body is a string: expected a JSON object");
    refuses(" ", "the body is not valid JSON: unexpected token at line 1, column 1");
    refuses("{\"a\": 1} x", "the body is not valid JSON: end of file expected at line 1, column 10");
    refuses("{\"a\": 1,}", "the body is not valid JSON: string or '}' expected at line 1, column 9");
    refuses("{\"a\":\n \"secret", "the body is not valid JSON: premature end of input at line 2, column 8");
    refuses("{\"a\": \"secret\n\"}", "the body is not valid JSON: unexpected newline at line 1, column 13");
    refuses("\xef\xbb\xbf{}", "the body is not valid JSON: invalid token at line 1, column 1");
    refuses("{\"\xc3\xa4\": 1 1}", "the body is not valid JSON: '}' expected at line 1, column 9");
    refuses("{\"a\": \"\\ud800\"}", "the body is not valid JSON: invalid Unicode '\\uD800' at line 1, column 14");
    refuses("{'a': 1}", "the body is not valid JSON: string or '}' expected at line 1, column 2");
    refuses_bytes("{}\0", 3, "the body is not valid JSON: end of file expected at line 1, column 3");
    refuses_bytes("{\"a\": \"\0\"}", 10, "the body is not valid JSON: control character 0x0 at line 1, column 7");
    refuses("{\"a\\u0000\": 1}", "the body is not valid JSON: NUL byte in object key not supported at line 1, column 10");
}

static void bytes_that_are_no_utf8(void **state)
{
    (void)state;
    refuses("{\"a\": \"\xff\"}", "the body is not valid UTF-8: unable to decode byte 0xff at line 1, column 7");
    refuses("{\"a\": \"\xc3\"}", "the body is not valid UTF-8: unable to decode byte 0xc3 at line 1, column 7");
    refuses("{\"a\": \"\xed\xa0\x80\"}", "the body is not valid UTF-8: unable to decode byte 0xed at line 1, column 7");
    refuses("{\"a\": \"\xc0\x80\"}", "the body is not valid UTF-8: unable to decode byte 0xc0 at line 1, column 7");
}

static void keys_that_stand_twice(void **state)
{
    (void)state;
    refuses("{\"a\": 1,\n \"a\": 2}", "the key \"a\" stands twice in one object, at line 2, column 4");
    refuses("{\"b\": {\"a\": 1, \"a\": 1}}", "the key \"a\" stands twice in one object, at line 1, column 18");
    refuses("{\"a\": 1, \"\\u0061\": 1}", "the key \"\\u0061\" stands twice in one object, at line 1, column 17");
    refuses("{\"k\\\"\\\\\": 1, \"k\\\"\\\\\": 2}", "the key \"k\\\"\\\\\" stands twice in one object, at line 1, column 20");
    refuses("{\"\": 1, \"\": 2}", "the key \"\" stands twice in one object, at line 1, column 10");
}

static void numbers_that_nothing_holds(void **state)
{
    (void)state;
    static const char *const numbers[] = {"1e400", "-1e400", "9223372036854775808", "-9223372036854775809",
                                          "18446744073709551616"};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        char body[64], message[160];
        (void)snprintf(body, sizeof body, "{\"a\":%s}", numbers[i]);
        api_error error = {0};
        assert_null(fields_parse(body, strlen(body), DEPTH, &error));
        (void)snprintf(
            message, sizeof message,
            "the number that ends at line 1, column %zu is out of range: expected a signed 64-bit integer or a double",
            5 + strlen(numbers[i]));
        assert_string_equal(error.message, message);
    }
    refuses("{\"a\": NaN}", "the body is not valid JSON: invalid token at line 1, column 9");
    refuses("{\"a\": -Infinity}", "the body is not valid JSON: invalid token at line 1, column 7");
    refuses("{\"a\": 01}", "the body is not valid JSON: invalid token at line 1, column 7");
    refuses("{\"a\": +1}", "the body is not valid JSON: invalid token at line 1, column 7");
    refuses("{\"a\": .5}", "the body is not valid JSON: invalid token at line 1, column 7");
}

/* Depth counts the outermost object; brackets inside strings are text. */
static void nesting(void **state)
{
    (void)state;
    api_error error = {0};
    const char *text = "{\"a\": [[[[[[[\"[{[{\\\"[\"]]]]]]]}";
    json_t *deepest = fields_parse(text, strlen(text), DEPTH, &error);
    assert_non_null(deepest);
    json_decref(deepest);
    refuses("{\"a\": [[[[[[[\n[]]]]]]]]}", "the body nests deeper than 8 levels at line 2, column 1");
    refuses("{\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\": {\"a\"",
            "the body nests deeper than 8 levels at line 1, column 49");

    size_t bytes = 100000;
    char *brackets = malloc(bytes);
    memset(brackets, '[', bytes);
    refuses_bytes(brackets, bytes, "the body nests deeper than 8 levels at line 1, column 9");
    /* However deep is allowed, jansson's own limit stands. */
    assert_null(fields_parse(brackets, bytes, 1000000, &error));
    assert_string_equal(error.message, "the body holds more than 65536 objects and lists at line 1, column 65537");
    assert_null(fields_parse(brackets, 60000, 1000000, &error));
    assert_non_null(strstr(error.message, "maximum parsing depth reached"));
    memset(brackets, '"', bytes);
    refuses_bytes(brackets, bytes, "the body is not valid JSON: end of file expected at line 1, column 4");
    memset(brackets, ']', bytes);
    refuses_bytes(brackets, bytes, "the body is not valid JSON: unexpected token at line 1, column 1");
    free(brackets);
}

/* A list of `count` zeros, or of empty lists. */
static char *many(size_t count, const char *value, size_t *bytes)
{
    size_t length = strlen(value);
    char *body = malloc(count * (length + 1) + 16), *at = body + sprintf(body, "{\"a\":[");
    for (size_t i = 0; i < count; i++, at += length + 1) (void)sprintf(at, "%s,", value);
    at += sprintf(at - 1, "]}") - 1;
    *bytes = (size_t)(at - body);
    return body;
}

static void values_are_counted(void **state)
{
    (void)state;
    api_error error = {0};
    size_t bytes;
    char *body = many(FIELDS_MOST_CONTAINERS - 2, "[]", &bytes);
    json_t *parsed = fields_parse(body, bytes, DEPTH, &error);
    assert_non_null(parsed);
    assert_int_equal(json_array_size(json_object_get(parsed, "a")), FIELDS_MOST_CONTAINERS - 2);
    json_decref(parsed);
    free(body);
    body = many(FIELDS_MOST_CONTAINERS - 1, "[]", &bytes);
    assert_null(fields_parse(body, bytes, DEPTH, &error));
    assert_non_null(strstr(error.message, "the body holds more than 65536 objects and lists at line 1, column "));
    free(body);
    body = many(FIELDS_MOST_VALUES, "0", &bytes);
    assert_null(fields_parse(body, bytes, DEPTH, &error));
    assert_non_null(strstr(error.message, "the body holds more than 4194304 values at line 1, column "));
    free(body);
}

/* ---- Fields ------------------------------------------------------------------------------------------------------ */

static const char *const object =
    "{\"null\": null, \"true\": true, \"int\": 7, \"real\": 2.0, \"half\": 0.5, \"zero\": -0, \"minus\": -0.0, \"large\": "
    "1e300,"
    " \"exact\": 9007199254740993, \"least\": -9223372036854775808, \"edge\": 9223372036854775808.0, \"tiny\": 1e-320,"
    " \"text\": \"a\\u0000b\", \"list\": [1], \"in\": {\"x\": 1, \"secret prompt\": 2}}";

static fields opened(api_error *error)
{
    *error = (api_error){0};
    fields f = {.path = "", .error = error};
    f.object = fields_parse(object, strlen(object), DEPTH, error);
    assert_non_null(f.object);
    return f;
}

static void values_by_type(void **state)
{
    (void)state;
    api_error error;
    size_t bytes;
    fields f = opened(&error);
    assert_true(fields_bool(&f, "true", false));
    assert_true(fields_bool(&f, "null", true) && fields_bool(&f, "absent", true));
    assert_int_equal(fields_integer(&f, "int", 0, 7, 1), 7);
    assert_int_equal(fields_integer(&f, "real", 2, 2, 1), 2);
    assert_int_equal(fields_integer(&f, "zero", 0, 2, 1), 0);
    assert_int_equal(fields_integer(&f, "minus", 0, 2, 1), 0);
    assert_true(fields_integer(&f, "exact", INT64_MIN, INT64_MAX, 1) == 9007199254740993);
    assert_true(fields_integer(&f, "least", INT64_MIN, INT64_MAX, 1) == INT64_MIN);
    assert_int_equal(fields_integer(&f, "null", 5, 6, -3), -3);
    assert_true(fields_real(&f, "int", 0, 7, false, 1) == 7);
    assert_true(fields_real(&f, "half", 0.5, 1, false, 1) == 0.5);
    assert_true(fields_real(&f, "zero", 0, 1, false, 1) == 0);
    assert_true(fields_real(&f, "tiny", 0, 1, true, 1) > 0);
    assert_true(fields_real(&f, "absent", 0, 1, true, 0.25) == 0.25);
    assert_memory_equal(fields_text(&f, "text", NULL, &bytes), "a\0b", 4);
    assert_int_equal(bytes, 3);
    assert_null(fields_text(&f, "null", NULL, &bytes));
    assert_int_equal(bytes, 0);
    assert_string_equal(fields_text(&f, "absent", "four", &bytes), "four");
    assert_int_equal(bytes, 4);
    assert_int_equal(json_array_size(fields_array(&f, "list")), 1);
    assert_null(fields_array(&f, "null"));
    fields in = fields_object(&f, "in", "in");
    assert_int_equal(fields_integer(&in, "x", 1, 1, 0), 1);
    fields none = fields_object(&f, "null", "null");
    assert_null(none.object);
    assert_int_equal(fields_integer(&none, "x", 1, 1, 0), 0);
    fields_only(&none, (const char *const[]){NULL});
    assert_true(fields_ok(&f));
    json_decref(f.object);
}

/* One read that fails, with this message. */
#define FAILS(read, field, text)                                                                                               \
    do {                                                                                                                       \
        api_error error;                                                                                                       \
        fields f = opened(&error);                                                                                             \
        size_t bytes;                                                                                                          \
        (void)bytes;                                                                                                           \
        (void)(read);                                                                                                          \
        assert_false(fields_ok(&f));                                                                                           \
        assert_int_equal(error.status, 400);                                                                                   \
        assert_string_equal(error.param, field);                                                                               \
        assert_string_equal(error.message, text);                                                                              \
        json_decref(f.object);                                                                                                 \
    } while (0)

static void values_of_the_wrong_type(void **state)
{
    (void)state;
    FAILS(fields_bool(&f, "int", false), "int", "int is 7: expected true or false");
    FAILS(fields_bool(&f, "text", false), "text", "text is a string: expected true or false");
    FAILS(fields_integer(&f, "half", 0, 7, 1), "half", "half is 0.5: expected an integer from 0 to 7");
    FAILS(fields_integer(&f, "int", -1, 6, 1), "int", "int is 7: expected an integer from -1 to 6");
    FAILS(fields_integer(&f, "least", 0, INT64_MAX, 1), "least",
          "least is -9223372036854775808: expected an integer of at least 0");
    FAILS(fields_integer(&f, "edge", INT64_MIN, INT64_MAX, 1), "edge",
          "edge is 9.2233720368547758e+18: expected a signed 64-bit integer");
    FAILS(fields_integer(&f, "large", 0, INT64_MAX, 1), "large",
          "large is 1.0000000000000001e+300: expected an integer of at least 0");
    FAILS(fields_integer(&f, "true", 0, 7, 1), "true", "true is true: expected an integer from 0 to 7");
    FAILS(fields_real(&f, "int", 0, 2, false, 1), "int", "int is 7: expected a number from 0 to 2");
    FAILS(fields_real(&f, "zero", 0, 4, true, 1), "zero", "zero is 0: expected a number above 0 and at most 4");
    FAILS(fields_real(&f, "minus", 0, 4, true, 1), "minus", "minus is -0: expected a number above 0 and at most 4");
    FAILS(fields_real(&f, "text", 0, 4, true, 1), "text", "text is a string: expected a number above 0 and at most 4");
    FAILS(fields_text(&f, "list", "", &bytes), "list", "list is a list: expected a string");
    FAILS(fields_array(&f, "in"), "in", "in is an object: expected a list");
    FAILS(fields_object(&f, "list", "list").object, "list", "list is a list: expected an object");
}

static void fields_of_fields(void **state)
{
    (void)state;
    api_error error;
    fields f = opened(&error);
    fields in = fields_object(&f, "in", "in");
    fields_only(&in, (const char *const[]){"x", "y", NULL});
    assert_string_equal(error.message, "in.secret prompt is no field: expected one of x, y");
    assert_string_equal(error.param, "in.secret prompt");
    json_decref(f.object);
}

static void the_first_error_stays(void **state)
{
    (void)state;
    api_error error;
    fields f = opened(&error);
    assert_int_equal(fields_integer(&f, "int", 0, 1, 1), 1);
    assert_false(fields_bool(&f, "text", false));
    assert_int_equal(fields_integer(&f, "real", 2, 2, 1), 1); /* later reads give defaults */
    assert_false(fields_fail(&f, "other", "code", "is %d", 4));
    assert_string_equal(error.message, "int is 7: expected an integer from 0 to 1");
    assert_null(error.code);
    json_decref(f.object);
}

/* ---- Errors ------------------------------------------------------------------------------------------------------ */

static void is_json(const api_error *error, const char *expected)
{
    json_t *body = api_error_json(error);
    char *text = json_dumps(body, JSON_COMPACT);
    assert_string_equal(text, expected);
    free(text);
    json_decref(body);
}

static void errors_as_json(void **state)
{
    (void)state;
    static const struct {
        unsigned status;
        const char *type;
    } types[] = {{400, "invalid_request_error"}, {401, "authentication_error"},  {403, "permission_error"},
                 {404, "not_found_error"},       {405, "invalid_request_error"}, {413, "invalid_request_error"},
                 {415, "invalid_request_error"}, {429, "rate_limit_error"},      {500, "server_error"},
                 {503, "server_error"},          {504, "server_error"}};
    api_error error;
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        char expected[160];
        assert_false(api_fail(&error, types[i].status, NULL, NULL, "no %s", "way"));
        (void)snprintf(expected, sizeof expected,
                       "{\"error\":{\"message\":\"no way\",\"type\":\"%s\",\"param\":null,\"code\":null}}", types[i].type);
        is_json(&error, expected);
    }
    assert_false(api_fail(&error, 400, "n", "c", "\"%d\"", 3));
    is_json(&error,
            "{\"error\":{\"message\":\"\\\"3\\\"\",\"type\":\"invalid_request_error\",\"param\":\"n\",\"code\":\"c\"}}");
}

/* Messages are always UTF-8: cut between characters, what is none replaced. */
static void errors_are_utf8(void **state)
{
    (void)state;
    char text[2 * API_MESSAGE_SIZE];
    api_error error;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4) memcpy(text + i, "\xf0\x9f\x98\x80", 5);
        assert_false(api_fail(&error, 400, text, NULL, "%s", text));
        assert_int_equal(strlen(error.message), shift + (API_MESSAGE_SIZE - 1 - shift) / 4 * 4);
        assert_int_equal(strlen(error.param), shift + (API_PARAM_SIZE - 1 - shift) / 4 * 4);
        json_t *body = api_error_json(&error);
        assert_non_null(body);
        json_decref(body);
    }
    assert_false(api_fail(&error, 400, NULL, NULL, "a\xff\xc3(b\xe2\x82"));
    assert_string_equal(error.message, "a??"
                                       "(b");
}

static void errors_of_the_engine(void **state)
{
    (void)state;
    static const struct {
        descent_code code;
        unsigned status;
        const char *name;
    } codes[] = {{DESCENT_BAD_ARGUMENT, 400, NULL}, {DESCENT_UNSUPPORTED, 400, "unsupported_parameter"},
                 {DESCENT_LIMIT, 400, NULL},        {DESCENT_DIVERGED, 400, "descent_diverged"},
                 {DESCENT_NO_MEMORY, 500, NULL},    {DESCENT_IO, 500, NULL},
                 {DESCENT_BAD_FILE, 500, NULL}};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        api_error error;
        descent_status status = {codes[i].code, "what was wrong"};
        assert_false(api_fail_status(&error, "field", &status));
        assert_int_equal(error.status, codes[i].status);
        assert_int_equal(error.no_retry, codes[i].status == 500);
        assert_string_equal(error.message, "what was wrong");
        assert_string_equal(error.param, "field");
        if (codes[i].name)
            assert_string_equal(error.code, codes[i].name);
        else
            assert_null(error.code);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bodies_that_are_no_object),
        cmocka_unit_test(bytes_that_are_no_utf8),
        cmocka_unit_test(keys_that_stand_twice),
        cmocka_unit_test(numbers_that_nothing_holds),
        cmocka_unit_test(nesting),
        cmocka_unit_test(values_are_counted),
        cmocka_unit_test(values_by_type),
        cmocka_unit_test(values_of_the_wrong_type),
        cmocka_unit_test(fields_of_fields),
        cmocka_unit_test(the_first_error_stays),
        cmocka_unit_test(errors_as_json),
        cmocka_unit_test(errors_are_utf8),
        cmocka_unit_test(errors_of_the_engine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
