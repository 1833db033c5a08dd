/* fields.h: reading a JSON request, one object's fields by name and type. null is absent. What is wrong is an api_error naming
 * the field, what it was and what it may be; the first one found stays, and later reads then do nothing and give defaults, so
 * that a reader checks once at its end.
 *
 * `fields_parse` takes bytes as they came: it refuses what is no JSON (naming line and column), duplicate keys, invalid UTF-8,
 * nesting deeper than `max_depth` (without recursion that deep), and numbers that no double or 64-bit integer holds (1e400, 2^64).
 */
#ifndef DESCENT_SERVER_FIELDS_H
#define DESCENT_SERVER_FIELDS_H

#include "api_error.h"

#include <stdint.h>

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

#endif
