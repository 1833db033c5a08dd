/* answer.c: see answer.h. */
#include "answer.h"

#include <stdlib.h>
#include <string.h>

static void put_text(json_text *out, const char *text)
{
    json_text_string(out, text, strlen(text));
}

const answer_kind *answer_kind_of(const job *j)
{
    static const answer_kind file = {.id_prefix = "states-"}; /* a file: answer_states */
    switch (j->request.kind) {
    case REQUEST_STATES:
        return &file;
    case REQUEST_CHAT:
        return &answer_chat;
    case REQUEST_TRACE:
        return &answer_trace;
    default:
        return &answer_completion;
    }
}

const char *answer_finish_reason(const job_text *t)
{
    return t->report.end == DESCENT_END_EOS || t->report.end == DESCENT_END_STOPPED ? "stop" : "length";
}

void answer_text_or_null(json_text *out, const char *text)
{
    if (text)
        put_text(out, text);
    else
        json_text_put(out, "null");
}

void answer_traces(json_text *out, const answer_part *part)
{
    if (!part->traces) return;
    json_text_put(out, ",\"descent\":{\"trace\":[");
    for (const token_trace *trace = part->traces; trace; trace = trace->next) {
        if (trace != part->traces) json_text_put(out, ",");
        token_trace_render(out, trace, &part->text->trace, NULL);
        json_text_put(out, "}");
    }
    json_text_put(out, "]}");
}

/* ---- What stands around the choices -------------------------------------------------------------------------------- */

/* {"id": ..., up to the list of choices. */
static void put_head(const job *j, json_text *out, const char *object)
{
    const generation_request *r = &j->request;
    json_text_put(out, "{\"id\":");
    put_text(out, j->id);
    json_text_put(out, ",\"object\":");
    put_text(out, object);
    json_text_put(out, ",\"created\":");
    json_text_integer(out, (int64_t)j->created);
    json_text_put(out, ",\"model\":");
    put_text(out, r->model_name);
    json_text_put(out, ",\"system_fingerprint\":");
    put_text(out, r->model->fingerprint);
    json_text_put(out, ",\"");
    json_text_put(out, answer_kind_of(j)->list);
    json_text_put(out, "\":[");
}

typedef struct sums {
    uint64_t unconverged;
    uint64_t prompt, cached, deepened; /* tokens of prompts, each prompt counted once */
    uint64_t read, generated, steps;   /* prompt tokens computed, tokens chosen, row steps: of all texts */
    uint64_t readings;                 /* states whose logits were read on the way, beside those that tokens were chosen from */
    uint64_t energies;                 /* computed to see which tokens stop (descent_exit_cost) */
    uint64_t drafted, accepted;        /* tokens, likewise */
    double prompt_seconds, generation_seconds;
    bool out_of_time;
} sums;

static sums add_up(const job *j)
{
    sums s = {0};
    for (size_t i = 0; i < j->n_texts; i++) {
        const job_text *t = &j->texts[i];
        const descent_generation_report *r = &t->report;
        if (t->choice == 0) {
            s.prompt += j->request.prompts[t->prompt].count;
            s.cached += r->reused;
            s.deepened += r->deepened;
        }
        s.read += r->prompt_count - r->reused;
        s.generated += r->generated;
        s.steps += r->row_steps;
        s.unconverged += r->unconverged;
        s.readings += r->logits_read + r->exit_cost.readings;
        s.energies += r->exit_cost.energies;
        s.drafted += r->drafted;
        s.accepted += r->accepted;
        s.prompt_seconds += r->prompt_seconds;
        s.generation_seconds += r->generation_seconds;
        s.out_of_time |= r->end == DESCENT_END_CANCELLED;
    }
    return s;
}

static void put_count(json_text *out, const char *before, uint64_t count)
{
    json_text_put(out, before);
    json_text_unsigned(out, count);
}

static void put_usage(json_text *out, const sums *s)
{
    put_count(out, "\"usage\":{\"prompt_tokens\":", s->prompt);
    put_count(out, ",\"completion_tokens\":", s->generated);
    put_count(out, ",\"total_tokens\":", s->prompt + s->generated);
    put_count(out, ",\"prompt_tokens_details\":{\"cached_tokens\":", s->cached);
    put_count(out, "},\"completion_tokens_details\":{\"accepted_prediction_tokens\":", s->accepted);
    put_count(out, ",\"rejected_prediction_tokens\":", s->drafted - s->accepted);
    put_count(out, "},\"descent_steps\":", s->steps);
    if (s->readings) put_count(out, ",\"descent_readings\":", s->readings);
    if (s->energies) put_count(out, ",\"descent_energies\":", s->energies);
    json_text_put(out, "}");
}

/* T: a number where the model has one, null where it has none, else one for each kind of sub-layer. */
static void put_depth(json_text *out, const generation_request *r)
{
    const descent_model_info *info = r->model->info;
    uint32_t deep = 0, last = 0;
    for (uint32_t k = 0; k < info->kinds; k++) {
        if (!r->depth.steps[k]) continue;
        deep++;
        last = k;
    }
    if (deep == 0) {
        json_text_put(out, "null");
        return;
    }
    if (deep == 1) {
        json_text_unsigned(out, r->depth.steps[last]);
        return;
    }
    for (uint32_t k = 0; k < info->kinds; k++) {
        json_text_put(out, k > 0 ? "," : "{");
        put_text(out, info->kind_names[k]);
        json_text_put(out, ":");
        json_text_unsigned(out, r->depth.steps[k]);
    }
    json_text_put(out, "}");
}

/* Each of a prompt's candidates: what it is, and what it is worth by every rule. */
static void put_candidates(json_text *out, const job *j, size_t p)
{
    static const struct {
        const char *name;
        choose_rule rule;
    } worths[] = {{",\"logprob\":", CHOOSE_LOGPROB}, {",\"energy\":", CHOOSE_ENERGY}, {",\"energy_gap\":", CHOOSE_ENERGY_GAP}};
    bool texts = j->request.model->tokenizer;
    json_text_put(out, ",\"candidates\":[");
    for (size_t i = 0; i < j->choices; i++) {
        const candidate *c = &j->candidates[p * j->choices + i];
        json_text_put(out, i > 0 ? ",{\"text\":" : "{\"text\":");
        json_text_string(out, c->text ? c->text : "", c->bytes);
        json_text_put(out, ",\"finish_reason\":");
        put_text(out, answer_finish_reason(&j->texts[p * j->choices + i]));
        put_count(out, ",\"tokens\":", c->tokens);
        for (size_t k = 0; k < sizeof worths / sizeof *worths; k++) {
            json_text_put(out, worths[k].name);
            json_text_real(out, c->worth[worths[k].rule]);
        }
        if (texts) put_count(out, ",\"votes\":", (uint64_t)c->worth[CHOOSE_VOTE]);
        json_text_put(out, texts ? "}" : ",\"votes\":null}");
    }
    json_text_put(out, "]");
}

/* Which of a prompt's candidates is the answer, and what each was worth. */
static void put_chosen(json_text *out, const job *j, size_t p)
{
    const candidate *of_prompt = j->candidates + p * j->choices;
    size_t chosen = 0;
    while (j->texts[p * j->choices + chosen].index == UINT32_MAX) chosen++;
    put_count(out, "{\"n\":", j->choices);
    json_text_put(out, ",\"by\":");
    put_text(out, choose_rule_names[j->request.choose_by]);
    put_count(out, ",\"index\":", chosen);
    json_text_put(out, ",\"score\":");
    json_text_real(out, of_prompt[chosen].score);
    json_text_put(out, ",\"scores\":[");
    for (size_t i = 0; i < j->choices; i++) {
        if (i > 0) json_text_put(out, ",");
        json_text_real(out, of_prompt[i].score);
    }
    json_text_put(out, "]");
    if (j->request.show_candidates) put_candidates(out, j, p);
    json_text_put(out, "}");
}

/* One object, or of several prompts a list of them. */
static void put_choose(json_text *out, const job *j)
{
    bool several = j->request.n_prompts > 1;
    json_text_put(out, several ? ",\"choose\":[" : ",\"choose\":");
    for (size_t p = 0; p < j->request.n_prompts; p++) {
        if (p > 0) json_text_put(out, ",");
        put_chosen(out, j, p);
    }
    if (several) json_text_put(out, "]");
}

static void put_descent(json_text *out, const job *j, const sums *s)
{
    const generation_request *r = &j->request;
    json_text_put(out, ",\"descent\":{\"steps\":");
    put_depth(out, r);
    json_text_put(out, ",\"seed\":");
    json_text_integer(out, r->sampling.seed);
    answer_put_motion(out, r);
    if (r->solver.method != DESCENT_SOLVER_PLAIN) put_count(out, ",\"unconverged_tokens\":", s->unconverged);
    put_count(out, ",\"deepened_tokens\":", s->deepened);
    if (r->depth_capped) json_text_put(out, ",\"capped\":true");
    if (s->out_of_time) json_text_put(out, ",\"stop\":\"time\"");
    if (j->candidates) put_choose(out, j);
    json_text_put(out, "}");
}

static void put_rates(json_text *out, const char *name, uint64_t count, double seconds)
{
    const double values[] = {seconds * 1e3, count ? seconds * 1e3 / (double)count : 0,
                             seconds > 0 ? (double)count / seconds : 0};
    static const char *const endings[] = {"_ms", "_per_token_ms", "_per_second"};
    json_text_put(out, ",\"");
    json_text_put(out, name);
    put_count(out, "_n\":", count);
    for (size_t i = 0; i < 3; i++) {
        json_text_put(out, ",\"");
        json_text_put(out, name);
        json_text_put(out, endings[i]);
        json_text_put(out, "\":");
        json_text_real(out, values[i]);
    }
}

/* What llama.cpp's server says of its time. Of several texts, the sums. */
static void put_timings(json_text *out, const sums *s)
{
    put_count(out, ",\"timings\":{\"cache_n\":", s->cached);
    put_rates(out, "prompt", s->read, s->prompt_seconds);
    put_rates(out, "predicted", s->generated, s->generation_seconds);
    json_text_put(out, "}");
}

/* ---- Whole answers ------------------------------------------------------------------------------------------------ */

void answer_text(job_text *t)
{
    const record *r = &t->record;
    answer_part part = {.text = t,
                        .bytes = r->text ? r->text : "",
                        .count = r->bytes,
                        .to = r->n_tokens,
                        .traces = r->traces,
                        .finish = answer_finish_reason(t)};
    answer_kind_of(t->job)->whole(&t->written, &part);
}

/* The text that is choice `index`; the few texts of a job are looked through. */
static const job_text *text_of_index(const job *j, size_t index)
{
    for (size_t i = 0; i < j->n_texts; i++)
        if (j->texts[i].index == index) return &j->texts[i];
    return NULL;
}

void answer_whole(job *j)
{
    json_text *out = &j->out;
    sums s = add_up(j);
    put_head(j, out, answer_kind_of(j)->object);
    for (size_t i = 0; i < j->request.n_prompts * j->request.n; i++) {
        const job_text *t = text_of_index(j, i);
        if (!t) continue;
        if (i > 0) json_text_put(out, ",");
        json_text_bytes(out, t->written.text, t->written.bytes);
        out->failed |= t->written.failed;
    }
    json_text_put(out, "],");
    put_usage(out, &s);
    put_descent(out, j, &s);
    put_timings(out, &s);
    json_text_put(out, "}");
}

/* ---- Streams ------------------------------------------------------------------------------------------------------ */

static const char event[] = "data: ";

void answer_head(job *j)
{
    json_text_put(&j->head, event);
    put_head(j, &j->head, answer_kind_of(j)->chunk_object);
}

static void begin_chunk(const job *j, json_text *out)
{
    json_text_bytes(out, j->head.text, j->head.bytes);
    out->failed |= j->head.failed;
}

static void end_chunk(const job *j, json_text *out)
{
    json_text_put(out, j->request.include_usage ? "],\"usage\":null}\n\n" : "]}\n\n");
}

static void put_chunk(const job_text *t, json_text *out, const answer_part *part)
{
    begin_chunk(t->job, out);
    answer_kind_of(t->job)->chunk(out, part);
    end_chunk(t->job, out);
}

void answer_opening(job *j)
{
    for (size_t i = 0; answer_kind_of(j)->opening && i < j->n_texts; i++) {
        begin_chunk(j, &j->out);
        answer_kind_of(j)->opening(&j->out, &j->texts[i]);
        end_chunk(j, &j->out);
    }
}

/* Room for all chunks of a text as it is in most of them, so that it does not grow chunk by chunk. */
static void reserve_pieces(const job_text *t, json_text *out)
{
    enum { AROUND = 96 }; /* a choice's own, without its text */
    const record *r = &t->record;
    (void)json_text_reserve(out, r->n_pieces * (t->job->head.bytes + AROUND) + r->bytes);
}

void answer_pieces(job_text *t, json_text *out)
{
    const record *r = &t->record;
    text_piece before = {0};
    reserve_pieces(t, out);
    for (size_t i = 0; i < r->n_pieces; before = r->pieces[i++]) {
        size_t count = r->pieces[i].bytes - before.bytes;
        answer_part part = {.text = t,
                            .bytes = count > 0 ? r->text + before.bytes : "",
                            .count = count,
                            .from = before.tokens,
                            .to = r->pieces[i].tokens};
        put_chunk(t, out, &part);
    }
    if (r->traces) put_chunk(t, out, &(answer_part){.text = t, .bytes = "", .traces = r->traces, .silent = true});
}

/* What the whole stream took goes with its last chunk. */
static void put_last_words(job *j)
{
    sums s = add_up(j);
    if (j->request.include_usage) {
        json_text_put(&j->out, ",");
        put_usage(&j->out, &s);
    }
    put_descent(&j->out, j, &s);
    put_timings(&j->out, &s);
    json_text_put(&j->out, "}\n\n");
}

void answer_finish(job *j, job_text *t)
{
    answer_part part = {.text = t, .bytes = "", .finish = answer_finish_reason(t), .silent = true};
    bool last = ++j->n_finished == j->n_texts && !j->request.include_usage;
    t->finished = true;
    begin_chunk(j, &j->out);
    answer_kind_of(j)->chunk(&j->out, &part);
    if (last) {
        json_text_put(&j->out, "]");
        put_last_words(j);
    } else {
        end_chunk(j, &j->out);
    }
}

void answer_end(job *j)
{
    if (j->request.include_usage) {
        begin_chunk(j, &j->out);
        json_text_put(&j->out, "]");
        put_last_words(j);
    }
    json_text_put(&j->out, "data: [DONE]\n\n");
}
