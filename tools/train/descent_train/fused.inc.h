/* The fused kernels once, for a storage type: fused.c includes this file with REAL (how numbers are stored), NAME(x) (x with
 * the type's suffix), LOAD and STORE. All arithmetic is in float. Arrays are contiguous, row-major. */

/* a = gelu(z), c = w * gelu'(z): what stands between the four products of FF2W's gradient. */
void NAME(ff2w_forward)(int64_t n, const REAL *restrict z, const REAL *restrict w, REAL *restrict a, REAL *restrict c)
{
    for (int64_t i = 0; i < n; i++) {
        float x = LOAD(z[i]);
        float density, cdf = normal_cdf(x, &density);
        a[i] = STORE(x * cdf);
        c[i] = STORE(LOAD(w[i]) * (cdf + x * density));
    }
}

/* The same backwards: dz, dw of da, dc; a and c again, which the products of the weights' gradients need. */
void NAME(ff2w_backward)(int64_t n, const REAL *restrict z, const REAL *restrict w, const REAL *restrict da,
                         const REAL *restrict dc, REAL *restrict dz, REAL *restrict dw, REAL *restrict a, REAL *restrict c)
{
    for (int64_t i = 0; i < n; i++) {
        float x = LOAD(z[i]), u = LOAD(w[i]), d = LOAD(dc[i]);
        float density, cdf = normal_cdf(x, &density);
        float slope = cdf + x * density;
        dz[i] = STORE(LOAD(da[i]) * slope + d * u * density * (2.0f - x * x));
        dw[i] = STORE(d * slope);
        a[i] = STORE(x * cdf);
        c[i] = STORE(u * slope);
    }
}

/* y = v * act(z), act silu or gelu: CEM's MLP and SwiGLU. */
void NAME(gate_forward)(int64_t n, int gelu, const REAL *restrict z, const REAL *restrict v, REAL *restrict y)
{
    if (gelu) {
        for (int64_t i = 0; i < n; i++) {
            float x = LOAD(z[i]), density;
            y[i] = STORE(LOAD(v[i]) * x * normal_cdf(x, &density));
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            float x = LOAD(z[i]);
            y[i] = STORE(LOAD(v[i]) * x * logistic(x));
        }
    }
}

/* dz, dv of dy; y again. */
void NAME(gate_backward)(int64_t n, int gelu, const REAL *restrict z, const REAL *restrict v, const REAL *restrict dy,
                         REAL *restrict dz, REAL *restrict dv, REAL *restrict y)
{
    if (gelu) {
        for (int64_t i = 0; i < n; i++) {
            float x = LOAD(z[i]), g = LOAD(v[i]), d = LOAD(dy[i]);
            float density, cdf = normal_cdf(x, &density);
            dz[i] = STORE(d * g * (cdf + x * density));
            dv[i] = STORE(d * x * cdf);
            y[i] = STORE(g * x * cdf);
        }
    } else {
        for (int64_t i = 0; i < n; i++) {
            float x = LOAD(z[i]), g = LOAD(v[i]), d = LOAD(dy[i]);
            float s = logistic(x);
            dz[i] = STORE(d * g * s * (1.0f + x * (1.0f - s)));
            dv[i] = STORE(d * x * s);
            y[i] = STORE(g * x * s);
        }
    }
}

/* Scores become probabilities in place: s [groups, L, L], row i over its history (columns 0..i, or 0..i-1 where strict),
 * softmax(scale * s + scale * bias). bias is [groups / share, L, L] or NULL, one for `share` groups on end. Columns outside
 * the history become 0; so does the row of a token without history. */
void NAME(softmax_forward)(int64_t groups, int64_t L, float scale, int strict, int64_t share, const REAL *bias, REAL *s)
{
    for (int64_t r = 0; r < groups * L; r++) {
        int64_t n = r % L + (strict ? 0 : 1);
        REAL *row = s + r * L;
        const REAL *add = bias ? bias + (r / L / share * L + r % L) * L : NULL;
        float line[MAX_LENGTH], top = -INFINITY, sum = 0.0f;
        if (add) {
            for (int64_t j = 0; j < n; j++) {
                line[j] = scale * (LOAD(row[j]) + LOAD(add[j]));
            }
        } else {
            for (int64_t j = 0; j < n; j++) {
                line[j] = scale * LOAD(row[j]);
            }
        }
        for (int64_t j = 0; j < n; j++) {
            top = line[j] > top ? line[j] : top;
        }
        for (int64_t j = 0; j < n; j++) {
            line[j] = exponential(line[j] - top);
            sum += line[j];
        }
        float part = n ? 1.0f / sum : 0.0f;
        for (int64_t j = 0; j < n; j++) {
            row[j] = STORE(line[j] * part);
        }
        memset(row + n, 0, (size_t)(L - n) * sizeof *row);
    }
}

/* dp becomes ds in place: ds = scale * p * (dp - sum p dp). `same`, where not NULL, is [groups / share, L, L] and is added to
 * the dp of each of its groups first. */
void NAME(softmax_backward)(int64_t groups, int64_t L, float scale, int strict, int64_t share, const REAL *same,
                            const REAL *restrict p, REAL *restrict dp)
{
    for (int64_t r = 0; r < groups * L; r++) {
        int64_t n = r % L + (strict ? 0 : 1);
        const REAL *from = p + r * L;
        const REAL *add = same ? same + (r / L / share * L + r % L) * L : NULL;
        REAL *row = dp + r * L;
        float line[MAX_LENGTH], dot = 0.0f;
        if (add) {
            for (int64_t j = 0; j < n; j++) {
                line[j] = LOAD(row[j]) + LOAD(add[j]);
            }
        } else {
            for (int64_t j = 0; j < n; j++) {
                line[j] = LOAD(row[j]);
            }
        }
        for (int64_t j = 0; j < n; j++) {
            dot += LOAD(from[j]) * line[j];
        }
        for (int64_t j = 0; j < n; j++) {
            row[j] = STORE(scale * LOAD(from[j]) * (line[j] - dot));
        }
        memset(row + n, 0, (size_t)(L - n) * sizeof *row);
    }
}

/* Rotary rotation and the change of layout in one: x [B, L, K, D] -> y [B, K, L, D], pairs (d, d + D/2) of position l turned
 * by its angles (cosine, sine [L, D/2]); `back` goes from y to x and turns the other way. */
void NAME(rotate)(int64_t B, int64_t L, int64_t K, int64_t D, int back, const float *restrict cosine,
                  const float *restrict sine, const REAL *restrict in, REAL *restrict out)
{
    for (int64_t r = 0; r < B * L * K; r++) {
        int64_t k = r % K, l = r / K % L, b = r / K / L;
        int64_t by_head = ((b * K + k) * L + l) * D, by_token = r * D;
        const REAL *from = in + (back ? by_head : by_token);
        REAL *to = out + (back ? by_token : by_head);
        const float *co = cosine + l * (D / 2), *si = sine + l * (D / 2);
        float turn = back ? -1.0f : 1.0f;
        for (int64_t d = 0; d < D / 2; d++) {
            float x = LOAD(from[d]), y = LOAD(from[d + D / 2]), s = turn * si[d];
            to[d] = STORE(x * co[d] - y * s);
            to[d + D / 2] = STORE(y * co[d] + x * s);
        }
    }
}
