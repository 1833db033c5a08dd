/* reading.c: see reading.h. While a body is read elsewhere its exchange stays, whoever leaves: exchange.reading says so. */
#include "reading.h"

#include <stdlib.h>

enum { READ_AT_ONCE = 16 << 10 }; /* bytes whose reading takes a millisecond or two at most */

static void finish(reading *r)
{
    exchange *x = r->exchange;
    x->reading = false;
    if (x->request && !x->gone && exchange_may_begin(x)) {
        if (r->error.status)
            exchange_fail(x, &r->error);
        else
            r->use(r);
    }
    request_release(&r->request);
    json_text_release(&r->answer);
    http_body_release(&r->body);
    free(r);
    exchange_settle(x);
}

static void read_aside(uv_work_t *work)
{
    reading *r = work->data;
    r->read(r);
}

static void on_read(uv_work_t *work, int status)
{
    (void)status; /* nobody cancels it */
    finish(work->data);
}

void reading_start(exchange *x, request_kind kind, void (*read)(reading *r), void (*use)(reading *r))
{
    reading *r = calloc(1, sizeof *r);
    if (!r) {
        exchange_reply(x, 500, NULL);
        return;
    }
    *r = (reading){.exchange = x, .service = x->service, .kind = kind, .read = read, .use = use};
    r->body = http_take_body(x->request);
    r->work.data = r;
    x->reading = true;
    if (r->body.bytes > READ_AT_ONCE && uv_queue_work(x->service->loop, &r->work, read_aside, on_read) == 0) return;
    r->read(r);
    finish(r);
}
