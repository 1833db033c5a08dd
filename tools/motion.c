/* motion.c: see motion.h. Each option is a text of its own small grammar, lists with commas, fields with colons. */
#include "motion.h"

#include "input.h"

#include <float.h>
#include <stdlib.h>
#include <string.h>

static const char *const rule_names[] = {"plain", "angular", NULL};
static const char *const history_names[] = {"own", "latest", "last", NULL};

void motion_option_table(motion_options *options, cli_option *table)
{
    size_t i = 0;
    table[i++] =
        cli_text(0, "step-scale", "S[,S...]", &options->step_scale,
                 "every step S times as far, above 0 and at most 4; of a list one for each step, the last also for all "
                 "behind");
    table[i++] = cli_real(0, "momentum", &options->momentum, 0, 1,
                          "a step moves by itself and by so much of the step before, less than 1; 0: off");
    table[i++] = cli_choice(0, "step-rule", &options->rule, rule_names,
                            "angular, of NRGPT: steps only turn x, and by as much as if it were as long as at the start");
    table[i++] =
        cli_text(0, "noise", "SIGMA[:SEED[:SCHEDULE]]", &options->noise,
                 "each step adds normal noise of SIGMA times the length of x; the schedule is fixed, or decay, divided by "
                 "the step's number; seed 1 and fixed by default");
    table[i++] =
        cli_text(0, "solver", "anderson[:N[:RESIDUAL]]", &options->solver,
                 "look for the limit of large T by Anderson acceleration over N steps (5), until what a step turns x by is "
                 "below RESIDUAL (1e-4) of its length, or T; or plain");
    table[i++] = cli_choice(0, "history", &options->history, history_names,
                            "what is read of earlier tokens, of NRGPT: own, the same step; latest, that or their last one; "
                            "last, their last state at every step");
    table[i++] = cli_integer(0, "prompt-steps", &options->prompt_steps, 1, DESCENT_MAX_STEPS,
                             "T of a prompt's tokens but the last, of NRGPT; fewer than --steps with --history latest or last");
}

static int read_scales(const cli_command *command, const char *text, descent_motion *motion)
{
    char item[32];
    for (const char *rest = text; rest; motion->n_scales++) {
        double s;
        rest = next_item(rest, ',', item, sizeof item);
        if (motion->n_scales == DESCENT_MAX_SCALES || !cli_read_real(item, &s) || !((float)s > 0 && s <= 4))
            return cli_usage_error(
                command, "--step-scale must be 1 to %d numbers above 0 and at most 4, with commas between, got \"%s\"",
                DESCENT_MAX_SCALES, text);
        motion->step_scale[motion->n_scales] = (float)s;
    }
    return EXIT_SUCCESS;
}

static int read_noise(const cli_command *command, const char *text, descent_noise *noise)
{
    char items[3][32] = {"", "1", "fixed"};
    const char *rest = text;
    double sigma;
    for (size_t n = 0; n < 3 && rest; n++) rest = next_item(rest, ':', items[n], sizeof items[n]);
    bool decays = !strcmp(items[2], "decay");
    if (rest || !cli_read_real(items[0], &sigma) || !(sigma >= 0) || !(sigma <= FLT_MAX) ||
        !cli_read_integer(items[1], INT64_MIN, INT64_MAX, &noise->seed) || (!decays && strcmp(items[2], "fixed") != 0))
        return cli_usage_error(
            command,
            "--noise must be SIGMA:SEED:SCHEDULE, a number of at least 0, an integer and fixed or decay, the "
            "last ones left out at will; got \"%s\"",
            text);
    noise->sigma = (float)sigma;
    noise->schedule = decays ? DESCENT_NOISE_DECAY : DESCENT_NOISE_FIXED;
    return EXIT_SUCCESS;
}

static int read_solver(const cli_command *command, const char *text, descent_solver *solver)
{
    char items[3][32] = {"", "5", "1e-4"};
    const char *rest = text;
    int64_t nstep = 0;
    double residual = 0;
    if (!strcmp(text, "plain")) return EXIT_SUCCESS;
    for (size_t n = 0; n < 3 && rest; n++) rest = next_item(rest, ':', items[n], sizeof items[n]);
    if (rest || strcmp(items[0], "anderson") != 0 || !cli_read_integer(items[1], 1, DESCENT_MAX_NSTEP, &nstep) ||
        !cli_read_real(items[2], &residual) || !(residual >= 0) || !(residual <= FLT_MAX))
        return cli_usage_error(
            command,
            "--solver must be plain or anderson:N:RESIDUAL, an integer from 1 to %d and a number of at least 0, "
            "the last ones left out at will; got \"%s\"",
            DESCENT_MAX_NSTEP, text);
    *solver = (descent_solver){.method = DESCENT_SOLVER_ANDERSON, .nstep = (uint32_t)nstep, .residual = (float)residual};
    return EXIT_SUCCESS;
}

int read_motion(const cli_command *command, const motion_options *options, descent_motion *motion, descent_solver *solver,
                descent_history *history)
{
    *motion = (descent_motion){.n_scales = 0};
    int exit_code = EXIT_SUCCESS;
    if (options->step_scale) exit_code = read_scales(command, options->step_scale, motion);
    motion->momentum = (float)options->momentum;
    if (exit_code == EXIT_SUCCESS && motion->momentum >= 1)
        exit_code = cli_usage_error(command, "--momentum must be less than 1, got %g", options->momentum);
    motion->rule = (descent_step_rule)options->rule;
    if (exit_code == EXIT_SUCCESS && options->noise) exit_code = read_noise(command, options->noise, &motion->noise);
    *history =
        (descent_history){.policy = (descent_history_policy)options->history, .prompt_steps = (uint32_t)options->prompt_steps};
    *solver = (descent_solver){.method = DESCENT_SOLVER_PLAIN};
    if (exit_code == EXIT_SUCCESS && options->solver) exit_code = read_solver(command, options->solver, solver);
    return exit_code;
}
