/* Connects and calls: a short request, an error of the handler, and a message of many MiB.
 *
 *     cc call.c $(pkg-config --cflags --libs dunlin) -o call
 *     ./call dunlin://127.0.0.1:7400
 */

#include <dunlin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "services.h"

#define BULK (8u << 20)

static int failed(const char *what, dunlin_error *error) {
    fprintf(stderr, "%s: %s\n", what, dunlin_error_message(error));
    dunlin_error_free(error);
    return 1;
}

/* Sends a message of many MiB to and fro. It is a call like any other. */
static int bulk(dunlin_client *client) {
    dunlin_reply *reply = NULL;
    dunlin_error *error = NULL;
    unsigned char *message = malloc(BULK);
    if (message == NULL)
        return 1;
    for (size_t i = 0; i < BULK; i++)
        message[i] = (unsigned char)(i * 31);
    int result = 0;
    if (dunlin_call(client, ECHO, message, BULK, 0, &reply, &error) != DUNLIN_CODE_OK) {
        result = failed("bulk", error);
    } else {
        size_t length = dunlin_reply_length(reply);
        int same = length == BULK && memcmp(dunlin_reply_data(reply), message, BULK) == 0;
        printf("bulk: %zu bytes came back, %s\n", length, same ? "the same" : "others");
        result = !same;
    }
    dunlin_reply_free(reply);
    free(message);
    return result;
}

int main(int count, char **arguments) {
    const char *address = count > 1 ? arguments[1] : "dunlin://127.0.0.1:7400";
    dunlin_client *client = NULL;
    dunlin_reply *reply = NULL;
    dunlin_error *error = NULL;

    if (dunlin_abi_version() != DUNLIN_ABI_VERSION) {
        fprintf(stderr, "this was compiled for another libdunlin than %s\n", dunlin_version());
        return 1;
    }
    /* No call takes longer than half a minute, unless it says so itself. */
    dunlin_client_options options = {.struct_size = sizeof options, .deadline_us = 30 * 1000 * 1000};
    if (dunlin_client_connect(address, &options, &client, &error) != DUNLIN_CODE_OK)
        return failed("connect", error);
    printf("connected over %s\n", dunlin_client_device(client));

    if (dunlin_call(client, ECHO, "hello", 5, 0, &reply, &error) != DUNLIN_CODE_OK)
        return failed("echo", error);
    printf("echo: %.*s\n", (int)dunlin_reply_length(reply), (const char *)dunlin_reply_data(reply));
    dunlin_reply_free(reply);

    const unsigned char eight_by_two[] = {8, 2}, eight_by_zero[] = {8, 0};
    if (dunlin_call(client, DIVIDE, eight_by_two, 2, 0, &reply, &error) != DUNLIN_CODE_OK)
        return failed("divide", error);
    printf("8 / 2: %d\n", *(const unsigned char *)dunlin_reply_data(reply));
    dunlin_reply_free(reply);

    /* A handler's error has its own number; whether the call was executed is said of every error. */
    if (dunlin_call(client, DIVIDE, eight_by_zero, 2, 0, &reply, &error) == DUNLIN_CODE_HANDLER &&
        dunlin_error_executed(error) == DUNLIN_EXECUTED_YES)
        printf("8 / 0: %s (%u)\n", dunlin_error_message(error), dunlin_error_handler_code(error));
    dunlin_error_free(error);
    dunlin_reply_free(reply);

    int result = bulk(client);
    dunlin_client_free(client);
    return result;
}
