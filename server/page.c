/* page.c: the web page, three files of server/web/dist that the build puts into the program. They need no key: what they hold
 * is public, and what they ask of the server does. Called by service.c for the paths below.
 *
 * Nothing on the page comes from elsewhere, and no script that is not the page's own runs in it: the policy says so to
 * browsers.
 */
#include "service.h"

#include <string.h>

extern const char page_html[], page_js[], page_css[]; /* made by the build */
extern const size_t page_html_size, page_js_size, page_css_size;
extern const char page_html_digest[], page_js_digest[], page_css_digest[];

static const char policy[] =
    "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'";

typedef struct asset {
    const char *path, *type, *text;
    const size_t *bytes;
    const char *digest;
} asset;

static const asset assets[] = {
    {"/", "text/html; charset=utf-8", page_html, &page_html_size, page_html_digest},
    {"/app.js", "text/javascript; charset=utf-8", page_js, &page_js_size, page_js_digest},
    {"/app.css", "text/css; charset=utf-8", page_css, &page_css_size, page_css_digest},
};
enum { N_ASSETS = sizeof assets / sizeof *assets };

/* Whether If-None-Match names this tag: one of a list, weak or strong, or any. */
static bool has_it(const http_request *request, const char *tag)
{
    const char *held = http_header(request, "If-None-Match");
    return held && (!strcmp(held, "*") || strstr(held, tag));
}

void endpoint_page(exchange *x)
{
    const asset *a = assets;
    while (a < assets + N_ASSETS - 1 && strcmp(a->path, http_path(x->request)) != 0) a++;
    char tag[80];
    (void)snprintf(tag, sizeof tag, "\"%.32s\"", a->digest);
    http_add_header(x->request, "ETag", tag);
    http_add_header(x->request, "Cache-Control", "no-cache"); /* another build may be served under this address tomorrow */
    http_add_header(x->request, "Content-Security-Policy", policy);
    http_add_header(x->request, "X-Content-Type-Options", "nosniff");
    http_add_header(x->request, "Referrer-Policy", "no-referrer");
    if (has_it(x->request, tag))
        http_reply(x->request, 304, NULL, NULL, 0);
    else
        http_reply(x->request, 200, a->type, a->text, *a->bytes);
}
