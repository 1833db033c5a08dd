/* golden.c: where the golden models are and which depths they were computed at. */
#include "golden.h"

#include "test_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const char *const golden_names[] = {"gpt",
                                    "gpt-rec-parallel",
                                    "nrgpt-ff1",
                                    "nrgpt-ff1-rms-diag-alpha",
                                    "nrgpt-ff2",
                                    "nrgpt-ff2w",
                                    "nrgpt-ff2w-scalar",
                                    "nrgpt-ff2w-strict",
                                    "nrgpt-listops-bare",
                                    "cem-none-noprecond",
                                    "cem-perhead-diag-gelu",
                                    "cem-shared-eta3",
                                    "cem-shared-r8-silu",
                                    NULL};

golden golden_open(const char *name)
{
    bool without_depth = !strcmp(name, "gpt");
    golden model = {.name = name, .without_depth = without_depth, .least_depths = without_depth ? 1 : 3};
    const char *directory = getenv("DESCENT_GOLDEN_DIR");
    char expected[256];
    if (!directory) {
        fprintf(stderr, "DESCENT_GOLDEN_DIR must name the directory the golden models were converted into\n");
        exit(1);
    }
    (void)snprintf(model.path, sizeof model.path, "%s/%s.gguf", directory, name);
    if (access(model.path, R_OK)) {
        perror(model.path);
        exit(1);
    }
    (void)snprintf(expected, sizeof expected, "golden/%s/expected.safetensors", name);
    model.expected = safetensors_open(expected);
    const safetensors_array *tokens = safetensors_find(model.expected, "tokens");
    if (!tokens || !tokens->count) {
        fprintf(stderr, "%s has no tokens\n", expected);
        exit(1);
    }
    model.count = tokens->count;
    model.tokens = test_alloc(model.count, sizeof *model.tokens);
    for (size_t i = 0; i < model.count; i++) model.tokens[i] = (uint32_t)tokens->values[i];
    return model;
}

void golden_close(golden *model)
{
    safetensors_close(model->expected);
    free(model->tokens);
}

bool golden_depth(const golden *model, size_t i, descent_depth *depth, const char **suffix)
{
    const char *name;
    for (size_t n = 0; safetensors_at(model->expected, n, &name); n++) {
        if (strncmp(name, "logits.", 7) || i-- > 0) continue;
        unsigned attention = 0, mlp = 0;
        if (sscanf(name, "logits.Ta%u.Tm%u", &attention, &mlp) != 2 && sscanf(name, "logits.T%u", &attention) != 1) {
            fprintf(stderr, "%s: %s has no depth in its name\n", model->name, name);
            exit(1);
        }
        *depth = (descent_depth){{(uint16_t)attention, (uint16_t)mlp}};
        if (model->without_depth) *depth = (descent_depth){{0}}; /* the number in the name is that of its blocks */
        *suffix = name + 7;
        return true;
    }
    return false;
}
