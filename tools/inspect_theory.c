/* inspect_theory.c: the check of the theory. Where R = c diag(gamma), c > 0, the slope of a token's energy along its step is
 * never negative, so that a short enough step lowers the energy while the history is held: dE_own <= 0 as step_scale -> 0. The
 * text is run at step scales 1, 1/2, 1/4 ...; what is reported is to which sub-layers the theorem applies, where slopes are
 * negative, and where dE_own is positive, by how much, beyond what rounding to f32 may do. See inspect.h. */
#include "inspect.h"

#include "json_output.h"
#include "terminal.h"

#include <math.h>
#include <stdlib.h>

enum { MOST_SCALES = 17 };

/* What is the largest of its kind, and where. */
typedef struct extreme {
    double value; /* 0: none */
    descent_site site;
} extreme;

/* All steps of one run. */
typedef struct check {
    const descent_model_info *info;
    double scale;
    size_t steps;
    size_t negative;         /* slopes below 0 */
    size_t risen, risen_far; /* dE_own above 0; above what rounding explains */
    extreme lowest_slope, largest_rise;
    double wrong, sum; /* over first steps: of |dE_own / s + slope|, of |slope| */
} check;

/* Energies are rounded to 24 bits of the largest of their parts, which the terms stand for. */
static double rounding_of(const descent_model_info *info, const descent_observation *seen)
{
    double size = 1;
    for (uint32_t k = 0; k < info->terms[seen->site.kind]; k++) size = fmax(size, fabs((double)seen->energy[k]));
    return 0x1p-18 * size;
}

static void on_seen(void *user, const descent_observation *seen)
{
    check *c = user;
    double own = (double)seen->own_change, slope = (double)seen->slope;
    if (seen->final || c->info->terms[seen->site.kind] == 0) return;
    c->steps++;
    c->negative += slope < 0;
    c->risen += own > 0;
    c->risen_far += own > rounding_of(c->info, seen);
    if (slope < c->lowest_slope.value) c->lowest_slope = (extreme){slope, seen->site};
    if (own > c->largest_rise.value) c->largest_rise = (extreme){own, seen->site};
    if (seen->site.step > 0 || seen->site.layer > 0 || seen->site.kind > 0) return; /* whose x is the same at every scale */
    c->wrong += fabs(own / c->scale + slope);
    c->sum += fabs(slope);
}

static int run(const session *with, descent_depth depth, const uint32_t *tokens, size_t count, check *c)
{
    descent_status status;
    descent_sequence *sequence = NULL;
    descent_sequence_options how = {.depth = depth, .history = with->history, .no_sharing = true};
    how.history.prompt = (uint32_t)count - 1;
    how.motion.n_scales = 1;
    how.motion.step_scale[0] = (float)c->scale;
    descent_code code = descent_sequence_create(with->cache, &how, &sequence, &status);
    if (code == DESCENT_OK)
        code = descent_sequence_observe(sequence, DESCENT_OBSERVE_ENERGY | DESCENT_OBSERVE_SLOPE, on_seen, c, &status);
    if (code == DESCENT_OK) code = descent_sequence_append(sequence, tokens, count, &status);
    if (code == DESCENT_OK) code = descent_batch_finish(with->batch, sequence, &status);
    descent_sequence_destroy(sequence);
    if (code != DESCENT_OK) cli_error("at step_scale %g: %s", c->scale, status.message);
    return code != DESCENT_OK ? EXIT_FAILURE : interrupted() ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

/* ---- To what the theorem applies --------------------------------------------------------------------------------- */

/* The rates of one kind of sub-layer, over its layers and steps. */
typedef struct rates {
    size_t sites, proven;  /* (layer, step); those where R = c diag(gamma), c > 0 */
    double low, high, off; /* the extremes of descent_rate */
} rates;

/* gamma and R are rounded each to their types: equal is within some of the last bits of the coarsest. */
static bool proves(const descent_rate *rate)
{
    return rate->off_diagonal == 0 && rate->low > 0 && rate->high - rate->low <= 1e-5 * rate->high;
}

static rates rates_of(const session *with, descent_depth depth, uint32_t kind)
{
    rates all = {.low = INFINITY, .high = -INFINITY};
    for (uint32_t l = 0; l < with->info->layers; l++)
        for (uint32_t t = 0; t < depth.steps[kind]; t++) {
            descent_rate rate;
            if (!descent_model_rate(with->model, (descent_site){.layer = l, .kind = kind, .step = t}, &rate)) continue;
            all.sites++;
            all.proven += proves(&rate);
            all.low = fmin(all.low, rate.low);
            all.high = fmax(all.high, rate.high);
            all.off = fmax(all.off, rate.off_diagonal);
            if (with->info->deepens) t = depth.steps[kind]; /* every step has the same */
        }
    return all;
}

/* ---- The report -------------------------------------------------------------------------------------------------- */

static void print_site(const descent_model_info *info, const extreme *at, FILE *to)
{
    if (at->value == 0) return;
    fprintf(to, "position %zu, t = %u", at->site.position, at->site.step);
    if (info->layers > 1 || info->kinds > 1) fprintf(to, ", layer %u %s", at->site.layer, info->kind_names[at->site.kind]);
}

static void print_rates(const session *with, descent_depth depth)
{
    for (uint32_t kind = 0; kind < with->info->kinds; kind++) {
        if (with->info->terms[kind] == 0) continue;
        rates r = rates_of(with, depth, kind);
        printf("  %s: R_cc / gamma_c from %.6g to %.6g, %.1f %% of R's square off its diagonal: ", with->info->kind_names[kind],
               r.low, r.high, 100 * r.off);
        if (r.proven == r.sites)
            printf("R = c diag(gamma), the theorem applies\n");
        else if (r.proven == 0)
            printf("R is not c diag(gamma), the theorem promises nothing\n");
        else
            printf("R = c diag(gamma) in %zu of %zu\n", r.proven, r.sites);
    }
}

static void print_report(const session *with, descent_depth depth, const check *checks, size_t n)
{
    const check *c = &checks[0];
    char text[16];
    printf("\nTheory: where R = c diag(gamma), c > 0, slopes are never negative, and dE_own <= 0 once steps are short\n");
    print_rates(with, depth);
    printf("Slopes at step_scale 1, T = %s: %zu of %zu steps are negative (%.2f %%)",
           descent_depth_format(with->model, depth, text), c->negative, c->steps, 100 * (double)c->negative / (double)c->steps);
    if (c->negative > 0) {
        printf("; the lowest is %.6g at ", c->lowest_slope.value);
        print_site(with->info, &c->lowest_slope, stdout);
    }
    printf("\n%12s %10s %12s %14s %16s %18s  %s\n", "step_scale", "slope < 0", "dE_own > 0", "past rounding", "largest rise",
           "|dE/s + slope|", "where");
    for (size_t i = 0; i < n; i++) {
        c = &checks[i];
        printf("%12g %9.2f%% %11.2f%% %13.2f%% %16.6g %17.4f%%  ", c->scale, 100 * (double)c->negative / (double)c->steps,
               100 * (double)c->risen / (double)c->steps, 100 * (double)c->risen_far / (double)c->steps, c->largest_rise.value,
               100 * c->wrong / c->sum);
        print_site(with->info, &c->largest_rise, stdout);
        printf("\n");
    }
    printf("past rounding: more than 2^-18 of its energy's largest part. |dE/s + slope|: of first steps, as a share of "
           "|slope|.\n");
}

static json_t *extreme_json(const descent_model_info *info, const extreme *e)
{
    if (e->value == 0) return json_null();
    return json_pack("{sf sI si ss si}", "value", e->value, "position", (json_int_t)e->site.position, "layer",
                     (int)e->site.layer, "kind", info->kind_names[e->site.kind], "t", (int)e->site.step);
}

static json_t *report_json(const session *with, descent_depth depth, const check *checks, size_t n)
{
    json_t *list = json_array(), *kinds = json_object();
    for (uint32_t kind = 0; kind < with->info->kinds; kind++) {
        if (with->info->terms[kind] == 0) continue;
        rates r = rates_of(with, depth, kind);
        json_object_set_new(kinds, with->info->kind_names[kind],
                            json_pack("{sf sf sf sI sI}", "low", r.low, "high", r.high, "off_diagonal", r.off, "sites",
                                      (json_int_t)r.sites, "proven", (json_int_t)r.proven));
    }
    for (size_t i = 0; i < n; i++) {
        const check *c = &checks[i];
        json_array_append_new(list, json_pack("{sf sI sI sI sI so so so}", "step_scale", c->scale, "steps",
                                              (json_int_t)c->steps, "negative_slopes", (json_int_t)c->negative, "risen",
                                              (json_int_t)c->risen, "risen_past_rounding", (json_int_t)c->risen_far,
                                              "lowest_slope", extreme_json(with->info, &c->lowest_slope), "largest_rise",
                                              extreme_json(with->info, &c->largest_rise), "beside_slope",
                                              json_number(c->wrong / c->sum)));
    }
    return json_pack("{so so}", "rates", kinds, "scales", list);
}

int inspect_theory(const session *with, descent_depth depth, const uint32_t *tokens, size_t count, unsigned halvings, bool json,
                   json_t **report)
{
    check checks[MOST_SCALES];
    size_t n = halvings + 1u;
    int exit_code = EXIT_SUCCESS;
    bool descends = with->info->terms[0] > 0 || (with->info->kinds > 1 && with->info->terms[1] > 0);
    if (!descends) {
        cli_error("model %s does not descend an energy, so there is no theory of it to check", with->info->name);
        return EXIT_FAILURE;
    }
    progress bar = progress_begin("theory", "scales", n);
    for (size_t i = 0; i < n && exit_code == EXIT_SUCCESS; i++) {
        checks[i] = (check){.info = with->info, .scale = ldexp(1, -(int)i)};
        exit_code = run(with, depth, tokens, count, &checks[i]);
        progress_advance(&bar, 1);
    }
    progress_end(&bar);
    if (exit_code != EXIT_SUCCESS) return exit_code;
    if (json)
        *report = report_json(with, depth, checks, n);
    else
        print_report(with, depth, checks, n);
    return EXIT_SUCCESS;
}
