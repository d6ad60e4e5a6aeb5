/* A server with a handler of each kind, and memory that its clients may use. It ends by Ctrl-C or `kill`.
 *
 *     cc server.c $(pkg-config --cflags --libs dunlin) -pthread -o server
 *     ./server dunlin://127.0.0.1:7400
 */

#include <dunlin.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "services.h"

/* A few microseconds of work: it runs on the thread that polls. */
static void echo(const dunlin_request *request, dunlin_responder *responder, void *user) {
    (void)user;
    /* What cannot be answered is said to the caller by the library. */
    dunlin_respond(responder, dunlin_request_data(request), dunlin_request_length(request), NULL);
}

/* On a worker, where it may take its time. `user` is a counter that the handlers of all threads share. */
static void divide(const dunlin_request *request, dunlin_responder *responder, void *user) {
    const unsigned char *bytes = dunlin_request_data(request);
    if (dunlin_request_length(request) != 2) {
        dunlin_respond_error(responder, 2, "a request has two bytes", NULL);
        return;
    }
    if (bytes[1] == 0) {
        dunlin_respond_error(responder, 1, "division by zero", NULL);
        return;
    }
    unsigned char quotient = bytes[0] / bytes[1];
    __atomic_fetch_add((unsigned *)user, 1, __ATOMIC_RELAXED);
    dunlin_respond(responder, &quotient, 1, NULL);
}

/* The thread that answers one call of LATER. */
static void *answer_later(void *argument) {
    dunlin_deferred *deferred = argument;
    const dunlin_request *request = dunlin_deferred_request(deferred);
    char digits[16] = {0};
    size_t length = dunlin_request_length(request);
    if (length < sizeof digits)
        memcpy(digits, dunlin_request_data(request), length);
    long milliseconds = strtol(digits, NULL, 10);
    printf("later: %ld ms\n", milliseconds);
    fflush(stdout);
    struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&time, NULL);
    dunlin_deferred_reply(deferred, "later", 5, NULL);
    return NULL;
}

/* Keeps the call, and returns at once. */
static void later(dunlin_deferred *deferred, void *user) {
    (void)user;
    pthread_t thread;
    if (pthread_create(&thread, NULL, answer_later, deferred) != 0) {
        dunlin_deferred_fail(deferred, 1, "no thread", NULL);
        return;
    }
    pthread_detach(thread);
}

int main(int count, char **arguments) {
    const char *address = count > 1 ? arguments[1] : "dunlin://127.0.0.1:0";
    unsigned divisions = 0;
    dunlin_server *server = NULL;
    dunlin_error *error = NULL;
    dunlin_server_options options = {.struct_size = sizeof options, .workers = 2};

    /* Ctrl-C and `kill` are waited for below, and come to none of the library's threads. */
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);

    if (dunlin_server_new(address, &options, &server, &error) != DUNLIN_CODE_OK ||
        dunlin_server_handle(server, ECHO, echo, NULL, &error) != DUNLIN_CODE_OK ||
        dunlin_server_handle_on_workers(server, DIVIDE, divide, &divisions, &error) != DUNLIN_CODE_OK ||
        dunlin_server_handle_deferred(server, LATER, later, NULL, &error) != DUNLIN_CODE_OK ||
        dunlin_server_region(server, TABLE, TABLE_LENGTH, DUNLIN_REGION_WRITABLE | DUNLIN_REGION_ATOMIC,
                             &error) != DUNLIN_CODE_OK ||
        dunlin_server_start(server, &error) != DUNLIN_CODE_OK) {
        fprintf(stderr, "server: %s\n", dunlin_error_message(error));
        dunlin_error_free(error);
        dunlin_server_free(server);
        return 1;
    }
    printf("listening on %s\n", dunlin_server_address(server));
    fflush(stdout);

    int told;
    sigwait(&ends, &told);

    /* What a client has written stands here. */
    uint64_t hits = 0;
    bool drained = false;
    if (dunlin_server_region_read(server, TABLE, 0, &hits, sizeof hits, &error) != DUNLIN_CODE_OK ||
        dunlin_server_stop(server, 20 * 1000 * 1000, &drained, &error) != DUNLIN_CODE_OK) {
        fprintf(stderr, "server: %s\n", dunlin_error_message(error));
        dunlin_error_free(error);
    }
    printf("stopped: %s, %u divisions, %llu hits\n", drained ? "all answered" : "cut off", divisions,
           (unsigned long long)hits);
    dunlin_server_free(server);
    return drained ? 0 : 1;
}
