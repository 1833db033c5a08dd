/* nfc.h: Unicode's normalization form C, by the utf8proc library. */
#ifndef DESCENT_NFC_H
#define DESCENT_NFC_H

#include "tokenizer.h"

/* Code points on their way through normalization. Starts as {0}; released with nfc_work_free. */
typedef struct nfc_work {
    int32_t *points, *sorted; /* [room] each */
    size_t count, room;
} nfc_work;

void nfc_work_free(nfc_work *work);

/* Replaces what is in *out by the normalized text. Bytes that are no UTF-8 stay as they are. Linear in the text. */
descent_code nfc_normalize(nfc_work *work, const char *text, size_t bytes, text_buffer *out, descent_status *status);

#endif
