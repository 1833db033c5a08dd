/* progression.c: in which order a token's row steps go through the network, for the two shapes that models have. Owns no
 * memory; the families point to one of these (model.h), and whoever runs, shares or saves tokens asks through them. */
#include "model.h"

/* ---- One block, applied T times: step t reads and writes plane t -------------------------------------------------- */

static uint32_t recurrent_total(const descent_model *model, descent_depth depth)
{
    (void)model;
    return depth.steps[0];
}

static place recurrent_locate(const descent_model *model, descent_depth depth, uint32_t progress)
{
    (void)model;
    (void)depth;
    return (place){.step = progress, .plane = progress, .level = progress};
}

static uint32_t recurrent_leave(const descent_model *model, descent_depth depth, uint32_t progress)
{
    (void)model;
    (void)depth;
    return progress + 1;
}

static bool recurrent_find(const descent_model *model, descent_depth depth, descent_site site, uint32_t *progress)
{
    (void)model;
    if (site.layer != 0 || site.kind != 0 || site.step >= depth.steps[0]) return false;
    *progress = site.step;
    return true;
}

const progression recurrent_progression = {
    .planes = recurrent_total,
    .total = recurrent_total,
    .locate = recurrent_locate,
    .leave = recurrent_leave,
    .find = recurrent_find,
};

/* ---- Layers of two sub-layers, each with its T or run once: layer l's attention keeps plane l --------------------- */

enum { FIRST, SECOND, SUBLAYERS };

static uint32_t layered_planes(const descent_model *model, descent_depth depth)
{
    (void)depth;
    return model->info.layers;
}

/* Row steps of a layer. */
static uint32_t both_steps(descent_depth depth)
{
    return sublayer_steps(depth, FIRST) + sublayer_steps(depth, SECOND);
}

static uint32_t layered_total(const descent_model *model, descent_depth depth)
{
    return model->info.layers * both_steps(depth);
}

static place layered_locate(const descent_model *model, descent_depth depth, uint32_t progress)
{
    (void)model;
    uint32_t both = both_steps(depth), l = progress / both, t = progress % both, first = sublayer_steps(depth, FIRST);
    uint32_t kind = t < first ? FIRST : SECOND;
    return (place){.layer = l,
                   .kind = kind,
                   .step = kind == FIRST ? t : t - first,
                   .group = 2 * l + kind,
                   .plane = l,
                   .level = 2 * l + kind};
}

/* The first step of the next sub-layer. */
static uint32_t layered_leave(const descent_model *model, descent_depth depth, uint32_t progress)
{
    place where = layered_locate(model, depth, progress);
    return progress - where.step + sublayer_steps(depth, where.kind);
}

static bool layered_find(const descent_model *model, descent_depth depth, descent_site site, uint32_t *progress)
{
    if (site.layer >= model->info.layers || site.kind >= SUBLAYERS || site.step >= sublayer_steps(depth, site.kind))
        return false;
    *progress = site.layer * both_steps(depth) + (site.kind == SECOND ? sublayer_steps(depth, FIRST) : 0) + site.step;
    return true;
}

const progression layered_progression = {
    .planes = layered_planes,
    .total = layered_total,
    .locate = layered_locate,
    .leave = layered_leave,
    .find = layered_find,
};
