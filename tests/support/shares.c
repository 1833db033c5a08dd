/* shares.c: counts what the engine gives to its teams. */
#include "shares.h"

#include <stdatomic.h>

#include "compare.h"
#include "parallel.h"

static atomic_size_t calls, shared; /* of teams of several threads: all, and those with more than one part */

void __real_team_share(team *t, size_t parts, team_part part, const void *arg);
void __wrap_team_share(team *t, size_t parts, team_part part, const void *arg);
void __wrap_team_share(team *t, size_t parts, team_part part, const void *arg)
{
    if (team_threads(t) > 1) {
        (void)atomic_fetch_add(&calls, 1);
        if (parts > 1) (void)atomic_fetch_add(&shared, 1);
    }
    __real_team_share(t, parts, part, arg);
}

void shares_expected(void)
{
    size_t of = atomic_exchange(&calls, 0), some = atomic_exchange(&shared, 0);
    if (of > 0 && some == 0) compare_fail("of %zu calls no work was shared among threads", of);
}
