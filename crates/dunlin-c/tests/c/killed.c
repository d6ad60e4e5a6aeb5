/* Has a call of each kind out when its server is killed: each ends with an error that says what has happened. */

#include <dunlin.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "services.h"

#define TIME "600000"
#define SECONDS(n) ((n) * 1000000ull)

static void fail(const char *what, dunlin_code code, const dunlin_error *error) {
    printf("%s ended with %d: %s\n", what, code, dunlin_error_message(error));
    exit(1);
}

static int is_lost(dunlin_code code) {
    return code == DUNLIN_CODE_CONNECTION_LOST || code == DUNLIN_CODE_DEADLINE_EXCEEDED;
}

static void answer(uint64_t tag, dunlin_code code, const void *data, size_t length, const dunlin_error *error,
                   void *user) {
    (void)data;
    (void)length;
    if (tag != 2 || !is_lost(code) || dunlin_error_executed(error) != DUNLIN_EXECUTED_UNKNOWN)
        fail("the pipeline's call", code, error);
    *(int *)user += 1;
}

int main(int count, char **arguments) {
    dunlin_client *client = NULL;
    dunlin_pipeline *pipeline = NULL;
    dunlin_reply *reply = NULL;
    dunlin_error *error = NULL;
    dunlin_client_options options = {.struct_size = sizeof options, .deadline_us = SECONDS(30)};
    if (count != 2)
        return 2;
    int fd = -1, answered = 0;
    uint64_t tag = 0;
    dunlin_code code = dunlin_client_connect(arguments[1], &options, &client, &error);
    if (code != DUNLIN_CODE_OK)
        fail("connect", code, error);
    if ((code = dunlin_client_fd(client, &fd, &error)) != DUNLIN_CODE_OK ||
        (code = dunlin_call_start(client, LATER, TIME, 6, 0, 1, &error)) != DUNLIN_CODE_OK ||
        (code = dunlin_pipeline_new(client, 1, &pipeline, &error)) != DUNLIN_CODE_OK ||
        (code = dunlin_pipeline_submit(pipeline, LATER, TIME, 6, 2, &error)) != DUNLIN_CODE_OK ||
        (code = dunlin_pipeline_poll(pipeline, answer, &answered, NULL, &error)) != DUNLIN_CODE_OK)
        fail("start", code, error);

    code = dunlin_call(client, LATER, TIME, 6, 0, &reply, &error);
    if (!is_lost(code) || reply != NULL || dunlin_error_code(error) != code ||
        dunlin_error_executed(error) != DUNLIN_EXECUTED_UNKNOWN)
        fail("the call", code, error);
    dunlin_error_free(error);

    for (;;) {
        dunlin_code status = DUNLIN_CODE_OK;
        code = dunlin_client_next(client, &tag, &status, &reply, &error);
        if (code == DUNLIN_CODE_OK) {
            if (tag != 1 || !is_lost(status) || reply != NULL || dunlin_error_code(error) != status)
                fail("the asynchronous call", status, error);
            dunlin_error_free(error);
            break;
        }
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        if (code != DUNLIN_CODE_EMPTY || poll(&ready, 1, 60 * 1000) <= 0)
            fail("next", code, error);
    }

    /* It says so of its call, and of itself. */
    code = dunlin_pipeline_wait(pipeline, answer, &answered, NULL, &error);
    if (answered != 1 && !is_lost(code))
        fail("the pipeline", code, error);
    dunlin_error_free(error);

    /* Nobody listens any more. */
    code = dunlin_call(client, ECHO, "x", 1, SECONDS(5), &reply, &error);
    if (code != DUNLIN_CODE_CONNECT && !is_lost(code))
        fail("the call after", code, error);
    dunlin_error_free(error);
    dunlin_pipeline_free(pipeline);
    dunlin_client_free(client);
    printf("all calls have ended with an error of their kind\n");
    return 0;
}
