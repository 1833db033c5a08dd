/* blocks.c: F32, F16, BF16, Q8_0 and Q4_0 from floats and back; the search for a scale. See blocks.h; blocks_k.c has the types
 * of 256 numbers. Called by quantize.c.
 *
 * Q8_0 and Q4_0 are d q, one half-precision d for 32 numbers, q in -127..127 or -8..7. The usual d, the largest number over the
 * largest q, is one candidate of several: for each the q it rounds to, the d that fits these best, and the q for that. */
#include "blocks.h"

#include "kernels/half.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 32, Q8_0_BYTES = 34, Q4_0_BYTES = 18 };

bool block_type_known(uint32_t type)
{
    static const uint32_t known[] = {GGUF_F32, GGUF_F16, GGUF_BF16, GGUF_Q8_0, GGUF_Q4_0, GGUF_Q4_K, GGUF_Q6_K};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i] == type) return true;
    return false;
}

/* ---- Scales ----------------------------------------------------------------------------------------------------- */

/* Eight sums side by side, so that a compiler may use vectors without reordering anything. */
enum { LANES = 8 };

/* To the nearest integer, ties to even, for |x| < 2^22. */
static inline float nearest(float x)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23 */
    return x + magic - magic;
}

double block_round(const float *x, const float *w, size_t n, float d, float low, float high, float *q)
{
    float inverse = d != 0 ? 1 / d : 0, sums[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            float scaled = x[i + l] * inverse;
            scaled = scaled < low ? low : scaled;
            scaled = scaled > high ? high : scaled;
            q[i + l] = nearest(scaled);
            float error = x[i + l] - d * q[i + l];
            sums[l] += w[i + l] * error * error;
        }
    double sum = 0;
    for (size_t l = 0; l < LANES; l++) sum += (double)sums[l];
    return sum;
}

float block_fit(const float *x, const float *w, size_t n, const float *q)
{
    float products[LANES] = {0}, squares[LANES] = {0};
    for (size_t i = 0; i < n; i += LANES)
        for (size_t l = 0; l < LANES; l++) {
            products[l] += w[i + l] * x[i + l] * q[i + l];
            squares[l] += w[i + l] * q[i + l] * q[i + l];
        }
    double product = 0, square = 0;
    for (size_t l = 0; l < LANES; l++) {
        product += (double)products[l];
        square += (double)squares[l];
    }
    return square > 0 ? (float)(product / square) : 0;
}

/* The number that is largest in size, with its sign. */
static float peak_of(const float *x, size_t n)
{
    float peak = 0;
    for (size_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(peak)) peak = x[i];
    return peak;
}

/* What q may be, and how many steps from zero the largest number is tried at: `tries` of them from most down to least. */
typedef struct levels {
    float low, high, most, least;
    int tries;
} levels;

static const levels q8_0_levels = {-127, 127, 127.6f, 125.9f, 28}, q4_0_levels = {-8, 7, 8.8f, 6.1f, 28};

/* The scale in half precision, and the q, of n numbers, a multiple of 32 up to 1024. Where there is one level more below zero
 * than above, the largest number may lie on either side: the scale's sign says on which. */
static uint16_t search_scale(const levels *to, const float *x, const float *w, size_t n, float *q)
{
    float trial[BLOCK_BAND * BLOCK];
    bool symmetric = -to->low == to->high;
    float peak = peak_of(x, n);
    if (symmetric) peak = -fabsf(peak);
    uint16_t best = half_from_float(peak != 0 ? peak / to->low : 0);
    double least = block_round(x, w, n, half_to_float(best), to->low, to->high, q);
    for (int i = 0; i < to->tries && peak != 0; i++)
        for (int side = 0; side < (symmetric ? 1 : 2); side++) {
            float steps = to->most + (to->least - to->most) * (float)i / (float)(to->tries - 1);
            (void)block_round(x, w, n, peak / (side ? steps : -steps), to->low, to->high, trial);
            uint16_t half = half_from_float(block_fit(x, w, n, trial));
            double error = block_round(x, w, n, half_to_float(half), to->low, to->high, trial);
            if (!(error < least)) continue;
            least = error;
            best = half;
            memcpy(q, trial, n * sizeof *q);
        }
    return best;
}

/* ---- Blocks of 32 ----------------------------------------------------------------------------------------------- */

static void store_block(uint32_t type, uint16_t scale, const float *q, unsigned char *block)
{
    memcpy(block, &scale, sizeof scale);
    for (int i = 0; i < BLOCK && type == GGUF_Q8_0; i++) block[2 + i] = (unsigned char)(int)q[i];
    for (int i = 0; i < BLOCK / 2 && type == GGUF_Q4_0; i++)
        block[2 + i] = (unsigned char)(((int)q[i] + 8) | ((int)q[i + BLOCK / 2] + 8) << 4);
}

/* A block of 32 columns of every row: each with its scale, or one scale for all. */
static void encode_column(uint32_t type, bool even, const float *x, size_t rows, size_t cols, const float *row_weights,
                          const float *col_weights, unsigned char *out, size_t out_stride)
{
    float numbers[BLOCK_BAND * BLOCK], weights[BLOCK_BAND * BLOCK], q[BLOCK_BAND * BLOCK];
    const levels *to = type == GGUF_Q8_0 ? &q8_0_levels : &q4_0_levels;
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < BLOCK; c++) {
            numbers[r * BLOCK + c] = x[r * cols + c];
            weights[r * BLOCK + c] = even ? row_weights[r] * col_weights[c] : col_weights[c];
        }
    size_t at_once = even ? rows : 1;
    for (size_t r = 0; r < rows; r += at_once) {
        float *own = q + r * BLOCK;
        uint16_t scale = search_scale(to, numbers + r * BLOCK, weights + r * BLOCK, at_once * BLOCK, own);
        for (size_t k = 0; k < at_once; k++) store_block(type, scale, own + k * BLOCK, out + (r + k) * out_stride);
    }
}

/* ---- Half precision --------------------------------------------------------------------------------------------- */

static uint16_t bf16_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

static float bf16_to_float(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- Rows ------------------------------------------------------------------------------------------------------- */

static void decode_block(uint32_t type, const unsigned char *block, float *out)
{
    if (type == GGUF_Q4_K) {
        block_decode_q4_k(block, out);
        return;
    }
    if (type == GGUF_Q6_K) {
        block_decode_q6_k(block, out);
        return;
    }
    uint16_t scale;
    memcpy(&scale, block, sizeof scale);
    float d = half_to_float(scale);
    for (int i = 0; i < BLOCK && type == GGUF_Q8_0; i++) out[i] = d * (float)(int8_t)block[2 + i];
    for (int i = 0; i < BLOCK / 2 && type == GGUF_Q4_0; i++) {
        out[i] = d * (float)((block[2 + i] & 15) - 8);
        out[i + BLOCK / 2] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

void block_decode(uint32_t type, const void *data, size_t cols, float *out)
{
    const gguf_type_info *info = gguf_type_find(type);
    const unsigned char *from = data;
    if (type == GGUF_F32) {
        memcpy(out, data, cols * sizeof *out);
        return;
    }
    for (size_t c = 0; c < cols; c += info->block, from += info->block_bytes) {
        uint16_t half;
        memcpy(&half, from, sizeof half);
        if (type == GGUF_F16)
            out[c] = half_to_float(half);
        else if (type == GGUF_BF16)
            out[c] = bf16_to_float(half);
        else
            decode_block(type, from, out + c);
    }
}

static void encode_row(uint32_t type, const float *x, size_t cols, const float *weights, unsigned char *out)
{
    if (type == GGUF_F32) memcpy(out, x, cols * sizeof *x);
    for (size_t c = 0; c < cols && (type == GGUF_F16 || type == GGUF_BF16); c++) {
        uint16_t half = type == GGUF_F16 ? half_from_float(x[c]) : bf16_from_float(x[c]);
        memcpy(out + c * sizeof half, &half, sizeof half);
    }
    const gguf_type_info *info = gguf_type_find(type);
    for (size_t c = 0; c < cols && info->block == 256; c += info->block, out += info->block_bytes)
        (type == GGUF_Q4_K ? block_encode_q4_k : block_encode_q6_k)(x + c, weights + c, out);
}

void block_encode(uint32_t type, bool even, const float *x, size_t rows, size_t cols, const float *row_weights,
                  const float *col_weights, void *out)
{
    const gguf_type_info *info = gguf_type_find(type);
    size_t row_bytes = cols / info->block * info->block_bytes;
    unsigned char *to = out;
    if (info->block == BLOCK)
        for (size_t c = 0; c < cols; c += BLOCK)
            encode_column(type, even, x + c, rows, cols, row_weights, col_weights + c, to + c / BLOCK * info->block_bytes,
                          row_bytes);
    else
        for (size_t r = 0; r < rows; r++) encode_row(type, x + r * cols, cols, col_weights, to + r * row_bytes);
}
