/* The fastest way to call: one loop that keeps many calls out.
 *
 *     cc pipeline.c $(pkg-config --cflags --libs dunlin) -o pipeline
 *     ./pipeline dunlin://127.0.0.1:7400
 */

#include <dunlin.h>
#include <stdio.h>
#include <string.h>

#include "services.h"

#define CALLS 20000
#define WINDOW 64

struct counts {
    unsigned right, wrong;
};

static void answer(uint64_t tag, dunlin_code code, const void *data, size_t length, const dunlin_error *error,
                   void *user) {
    struct counts *counts = user;
    if (code == DUNLIN_CODE_OK && length == sizeof tag && memcmp(data, &tag, sizeof tag) == 0) {
        counts->right++;
        return;
    }
    counts->wrong++;
    fprintf(stderr, "call %llu: %s\n", (unsigned long long)tag, dunlin_error_message(error));
}

int main(int count, char **arguments) {
    const char *address = count > 1 ? arguments[1] : "dunlin://127.0.0.1:7400";
    dunlin_client *client = NULL;
    dunlin_pipeline *pipeline = NULL;
    dunlin_error *error = NULL;
    dunlin_code code = DUNLIN_CODE_OK;
    struct counts counts = {0, 0};
    uint64_t next = 0;

    if (dunlin_client_connect(address, NULL, &client, &error) != DUNLIN_CODE_OK ||
        dunlin_pipeline_new(client, WINDOW, &pipeline, &error) != DUNLIN_CODE_OK) {
        fprintf(stderr, "connect: %s\n", dunlin_error_message(error));
        return 1;
    }
    while (code == DUNLIN_CODE_OK && counts.right + counts.wrong < CALLS) {
        while (next < CALLS && dunlin_pipeline_outstanding(pipeline) < WINDOW) {
            code = dunlin_pipeline_submit(pipeline, ECHO, &next, sizeof next, next, &error);
            if (code != DUNLIN_CODE_OK)
                break;
            next++;
        }
        /* No room is no failure: the answers that come make some. */
        if (code == DUNLIN_CODE_OK || code == DUNLIN_CODE_FULL)
            code = dunlin_pipeline_wait(pipeline, answer, &counts, NULL, &error);
    }
    if (code != DUNLIN_CODE_OK)
        fprintf(stderr, "pipeline: %s\n", dunlin_error_message(error));
    printf("%u right, %u wrong\n", counts.right, counts.wrong);
    dunlin_error_free(error);
    dunlin_pipeline_free(pipeline);
    dunlin_client_free(client);
    return counts.right == CALLS ? 0 : 1;
}
