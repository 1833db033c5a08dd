/* fields.h: reading a JSON request, one object's fields by name and type. null is absent. What is wrong is an api_error naming
 * the field, what it was and what it may be; the first one found stays, and later reads then do nothing and give defaults, so
 * that a reader checks once at its end.
 *
 * `fields_parse` takes bytes as they came: it refuses what is no JSON (naming line and column), duplicate keys, invalid UTF-8,
 * nesting deeper than `max_depth` (without recursion that deep), numbers that no double or 64-bit integer holds (1e400, 2^64),
 * and more values than FIELDS_MOST_VALUES, so that what JSON takes in memory is bounded whatever its bytes are. A message never
 * holds a text the client sent where that may be a prompt: it says "a string".
 */
#ifndef DESCENT_SERVER_FIELDS_H
#define DESCENT_SERVER_FIELDS_H

#include "api_error.h"

#include <stdint.h>

enum {
    FIELDS_MOST_VALUES = 4 << 20,     /* in one body: as many as tokens of the longest prompts */
    FIELDS_MOST_CONTAINERS = 1 << 16, /* objects and lists among them */
    FIELDS_WORDS = 64                 /* bytes that describe a value */
};

typedef struct fields {
    json_t *object;
    const char *path; /* "" or "descent": how errors name fields: "descent.steps" */
    api_error *error;
} fields;

/* A new reference to the object in `bytes`, or NULL and an error of status 400. */
json_t *fields_parse(const char *text, size_t bytes, unsigned max_depth, api_error *error);

json_t *fields_any(const fields *f, const char *name); /* borrowed; NULL where absent or null */
bool fields_bool(const fields *f, const char *name, bool otherwise);
/* An integer in [low, high]; 2.0 is one. */
int64_t fields_integer(const fields *f, const char *name, int64_t low, int64_t high, int64_t otherwise);
/* A finite number in [low, high], `low` itself not allowed where open_low. */
double fields_real(const fields *f, const char *name, double low, double high, bool open_low, double otherwise);
/* Borrowed, *bytes without its NUL (the text may hold some); `otherwise` (may be NULL) where absent. */
const char *fields_text(const fields *f, const char *name, const char *otherwise, size_t *bytes);
/* A nested object as fields of its own; .object NULL where absent. `path` is the nested one's: a literal. */
fields fields_object(const fields *f, const char *name, const char *path);
json_t *fields_array(const fields *f, const char *name); /* borrowed; NULL where absent */
/* Every key must be one of `names` (NULL-terminated): the first that is not is an error that lists them. */
void fields_only(const fields *f, const char *const *names);
bool fields_ok(const fields *f);
/* Records an error of status 400 about one of its fields, unless one stands already. Returns false. */
bool fields_fail(const fields *f, const char *name, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* What a value that should be something else is: "-1", "a string", "a list". Returns words. */
const char *fields_describe(const json_t *value, char words[FIELDS_WORDS]);
/* A string the client chose from a list of names, as a message shows it: quoted, printable and cut. Returns words. */
const char *fields_quote(const json_t *string, char words[FIELDS_WORDS]);
/* True where the value is an integer in [low, high]. */
bool fields_as_integer(const json_t *value, int64_t low, int64_t high, int64_t *integer);

#endif
