/* Calls that do not wait: one thread, many calls out, and poll(2), as in a program with a loop over descriptors.
 *
 *     cc async.c $(pkg-config --cflags --libs dunlin) -o async
 *     ./async dunlin://127.0.0.1:7400
 */

#include <dunlin.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "services.h"

#define CALLS 200

static int failed(const char *what, dunlin_error *error) {
    fprintf(stderr, "%s: %s\n", what, dunlin_error_message(error));
    dunlin_error_free(error);
    return 1;
}

/* Takes all answers that are there; says how many, or -1. */
static int take(dunlin_client *client, int *right, int *refused) {
    int taken = 0;
    for (;;) {
        uint64_t tag = 0;
        dunlin_code status = DUNLIN_CODE_OK;
        dunlin_reply *reply = NULL;
        dunlin_error *error = NULL;
        dunlin_code code = dunlin_client_next(client, &tag, &status, &reply, &error);
        if (code == DUNLIN_CODE_EMPTY)
            return taken;
        if (code != DUNLIN_CODE_OK) {
            failed("next", error);
            return -1;
        }
        taken++;
        uint64_t number = 0;
        if (status == DUNLIN_CODE_OK && dunlin_reply_length(reply) == sizeof number) {
            memcpy(&number, dunlin_reply_data(reply), sizeof number);
            *right += number == tag;
        } else if (status == DUNLIN_CODE_UNKNOWN_HANDLER) {
            printf("call %llu: %s\n", (unsigned long long)tag, dunlin_error_message(error));
            *refused += 1;
        } else if (status == DUNLIN_CODE_OK) {
            printf("call %llu: %.*s\n", (unsigned long long)tag, (int)dunlin_reply_length(reply),
                   (const char *)dunlin_reply_data(reply));
        }
        dunlin_reply_free(reply);
        dunlin_error_free(error);
    }
}

int main(int count, char **arguments) {
    const char *address = count > 1 ? arguments[1] : "dunlin://127.0.0.1:7400";
    dunlin_client *client = NULL;
    dunlin_error *error = NULL;
    int fd = -1, right = 0, refused = 0;
    dunlin_client_options options = {.struct_size = sizeof options, .deadline_us = 30 * 1000 * 1000};

    if (dunlin_client_connect(address, &options, &client, &error) != DUNLIN_CODE_OK ||
        dunlin_client_fd(client, &fd, &error) != DUNLIN_CODE_OK)
        return failed("connect", error);

    /* The tag is what tells the answers apart. They come in any order. */
    for (uint64_t tag = 0; tag < CALLS; tag++)
        if (dunlin_call_start(client, ECHO, &tag, sizeof tag, 0, tag, &error) != DUNLIN_CODE_OK)
            return failed("start", error);
    if (dunlin_call_start(client, LATER, "100", 3, 0, 1000, &error) != DUNLIN_CODE_OK ||
        dunlin_call_start(client, 999, NULL, 0, 0, 1001, &error) != DUNLIN_CODE_OK)
        return failed("start", error);

    /* Other descriptors would stand beside this one. */
    int taken = 0;
    while (taken < CALLS + 2) {
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (poll(&ready, 1, 60 * 1000) <= 0) {
            fprintf(stderr, "nothing has come for a minute\n");
            return 1;
        }
        int some = take(client, &right, &refused);
        if (some < 0)
            return 1;
        taken += some;
    }
    printf("%d of %d are right, %d refused, %zu out\n", right, CALLS, refused, dunlin_client_outstanding(client));
    dunlin_client_free(client);
    return right == CALLS && refused == 1 ? 0 : 1;
}
