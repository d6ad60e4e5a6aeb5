/* Four threads use one client: calls that wait, and asynchronous ones whose answers any of them takes. */

#include <dunlin.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "expect.h"
#include "services.h"

#define THREADS 4
#define CALLS 500

static dunlin_client *client = NULL;
/* How often each tag was answered. */
static unsigned seen[THREADS * CALLS];
static unsigned taken = 0;

static void take(void) {
    uint64_t tag = 0, answer = 0;
    dunlin_code status = DUNLIN_CODE_OTHER;
    dunlin_reply *reply = NULL;
    dunlin_code code = dunlin_client_next(client, &tag, &status, &reply, NULL);
    if (code == DUNLIN_CODE_EMPTY)
        return;
    EXPECT(code == DUNLIN_CODE_OK && status == DUNLIN_CODE_OK && tag < THREADS * CALLS);
    EXPECT(dunlin_reply_length(reply) == sizeof answer);
    memcpy(&answer, dunlin_reply_data(reply), sizeof answer);
    EXPECT(answer == tag);
    dunlin_reply_free(reply);
    __atomic_fetch_add(&seen[tag], 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
}

static void *run(void *argument) {
    uint64_t first = *(uint64_t *)argument * CALLS;
    int fd = -1;
    EXPECT(dunlin_client_fd(client, &fd, NULL) == DUNLIN_CODE_OK);
    for (uint64_t tag = first; tag < first + CALLS; tag++) {
        dunlin_reply *reply = NULL;
        uint64_t sent = ~tag;
        EXPECT(dunlin_call_start(client, ECHO, &tag, sizeof tag, 0, tag, NULL) == DUNLIN_CODE_OK);
        EXPECT(dunlin_call(client, ECHO, &sent, sizeof sent, 0, &reply, NULL) == DUNLIN_CODE_OK);
        EXPECT(dunlin_reply_length(reply) == sizeof sent && memcmp(dunlin_reply_data(reply), &sent, sizeof sent) == 0);
        dunlin_reply_free(reply);
        take();
    }
    while (__atomic_load_n(&taken, __ATOMIC_RELAXED) < THREADS * CALLS) {
        /* Another thread may take what woke this one, the last of all too: so the wait is short. */
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        EXPECT(poll(&ready, 1, 10) >= 0);
        take();
    }
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    uint64_t numbers[THREADS];
    dunlin_client_options options = {
        .struct_size = sizeof options, .deadline_us = 60 * 1000 * 1000, .max_outstanding = THREADS * CALLS};
    if (count != 2)
        return 2;
    EXPECT(dunlin_client_connect(arguments[1], &options, &client, NULL) == DUNLIN_CODE_OK);
    for (uint64_t i = 0; i < THREADS; i++) {
        numbers[i] = i;
        EXPECT(pthread_create(&threads[i], NULL, run, &numbers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        EXPECT(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < THREADS * CALLS; i++)
        EXPECT(seen[i] == 1);
    EXPECT(dunlin_client_outstanding(client) == 0);
    dunlin_client_free(client);
    printf("%u answers, each its own\n", taken + THREADS * CALLS);
    return 0;
}
