/* What is called wrongly is told so, with the name of what is wrong, and nothing else happens. */

#include <dunlin.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

#define ECHO 1
#define KEEP 2
#define UNANSWERED 3
#define REFUSE 4
#define REFUSE_LATER 5
#define FILL 6

/* An error with this code, whose words have `words`. */
static void expect(int line, dunlin_code code, dunlin_code expected, dunlin_error *error, const char *words) {
    if (code != expected || dunlin_error_code(error) != expected ||
        strstr(dunlin_error_message(error), words) == NULL) {
        printf("line %d: %d (expected %d), '%s' (expected '%s')\n", line, code, expected,
               dunlin_error_message(error), words);
        exit(1);
    }
    dunlin_error_free(error);
}

#define IS_NULL(call, name)                                                                                            \
    do {                                                                                                               \
        dunlin_error *error = NULL;                                                                                    \
        dunlin_code code = call;                                                                                       \
        expect(__LINE__, code, DUNLIN_CODE_NULL_ARGUMENT, error, "`" name "` is NULL");                                \
    } while (0)

#define FAILS(call, expected, words)                                                                                   \
    do {                                                                                                               \
        dunlin_error *error = NULL;                                                                                    \
        dunlin_code code = call;                                                                                       \
        expect(__LINE__, code, expected, error, words);                                                                \
    } while (0)

#define WORKS(call) EXPECT((call) == DUNLIN_CODE_OK)

static void echo(const dunlin_request *request, dunlin_responder *responder, void *user) {
    EXPECT(dunlin_request_handler(request) == ECHO);
    EXPECT(dunlin_request_connection(request) > 0 || user == NULL);
    EXPECT(!dunlin_request_is_cancelled(request));
    EXPECT(dunlin_request_remaining_us(request) > 0);
    size_t length = dunlin_request_length(request);
    void *data = NULL;
    IS_NULL(dunlin_respond(responder, NULL, 1, &error), "data");
    IS_NULL(dunlin_respond_in_place(responder, 1, NULL, &error), "data");
    WORKS(dunlin_respond_in_place(responder, length, &data, NULL));
    if (length > 0)
        memcpy(data, dunlin_request_data(request), length);
}

/* What is no text as the words of an error: by the request, bytes that are not UTF-8, or NULL. */
static const char *no_text(const dunlin_request *request) {
    return *(const char *)dunlin_request_data(request) == 'n' ? NULL : "no \xff";
}

static void refuse(const dunlin_request *request, dunlin_responder *responder, void *user) {
    (void)user;
    const char *words = no_text(request);
    WORKS(dunlin_respond(responder, "done", 4, NULL));
    if (words == NULL)
        IS_NULL(dunlin_respond_error(responder, 7, words, &error), "message");
    else
        FAILS(dunlin_respond_error(responder, 7, words, &error), DUNLIN_CODE_INVALID_ARGUMENT, "not valid UTF-8");
}

static void refuse_later(dunlin_deferred *deferred, void *user) {
    (void)user;
    const char *words = no_text(dunlin_deferred_request(deferred));
    if (words == NULL)
        IS_NULL(dunlin_deferred_fail(deferred, 7, words, &error), "message");
    else
        FAILS(dunlin_deferred_fail(deferred, 7, words, &error), DUNLIN_CODE_INVALID_ARGUMENT, "not valid UTF-8");
}

/* Bytes in place are filled before the next call: what follows is appended, and another answer replaces it. */
static void fill(const dunlin_request *request, dunlin_responder *responder, void *user) {
    (void)request, (void)user;
    void *data = NULL;
    WORKS(dunlin_respond_in_place(responder, 100000, &data, NULL));
    memset(data, 'a', 100000);
    WORKS(dunlin_respond_in_place(responder, 70000, &data, NULL));
    memset(data, 'b', 70000);
    for (int part = 0; part < 100; part++)
        WORKS(dunlin_respond(responder, "cc", 2, NULL));
}

/* A call that is kept until somebody answers it. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t came = PTHREAD_COND_INITIALIZER;
static dunlin_deferred *kept = NULL;

static void keep(dunlin_deferred *deferred, void *user) {
    (void)user;
    pthread_mutex_lock(&lock);
    kept = deferred;
    pthread_cond_signal(&came);
    pthread_mutex_unlock(&lock);
}

static void unanswered(dunlin_deferred *deferred, void *user) {
    (void)user;
    IS_NULL(dunlin_deferred_reply(deferred, NULL, 1, &error), "data");
}

struct loop {
    dunlin_pipeline *pipeline;
    int answers;
};

/* Uses the pipeline that calls it, and frees it. */
static void reenter(uint64_t tag, dunlin_code code, const void *data, size_t length, const dunlin_error *error,
                    void *user) {
    struct loop *loop = user;
    EXPECT(code == DUNLIN_CODE_OK && error == NULL && tag == 5 && length == 1 && *(const char *)data == 'x');
    loop->answers++;
    FAILS(dunlin_pipeline_submit(loop->pipeline, ECHO, "y", 1, 6, &error), DUNLIN_CODE_BUSY, "in use");
    FAILS(dunlin_pipeline_wait(loop->pipeline, reenter, loop, NULL, &error), DUNLIN_CODE_BUSY, "in use");
    EXPECT(dunlin_pipeline_outstanding(loop->pipeline) == 0);
    dunlin_pipeline_free(loop->pipeline);
}

static void nothing_is_null(void) {
    dunlin_client *client = NULL;
    dunlin_server *server = NULL;
    dunlin_pipeline *pipeline = NULL;
    dunlin_region *region = NULL;
    dunlin_reply *reply = NULL;
    dunlin_code status;
    uint64_t tag;
    size_t bytes;
    void *data;
    int fd;

    IS_NULL(dunlin_client_connect(NULL, NULL, &client, &error), "address");
    IS_NULL(dunlin_client_connect("dunlin://127.0.0.1:1", NULL, NULL, &error), "client");
    IS_NULL(dunlin_call(NULL, ECHO, "x", 1, 0, &reply, &error), "client");
    IS_NULL(dunlin_call_start(NULL, ECHO, "x", 1, 0, 0, &error), "client");
    IS_NULL(dunlin_client_fd(NULL, &fd, &error), "client");
    IS_NULL(dunlin_client_next(NULL, &tag, &status, &reply, &error), "client");
    IS_NULL(dunlin_client_max_message_bytes(NULL, &bytes, &error), "client");
    IS_NULL(dunlin_pipeline_new(NULL, 0, &pipeline, &error), "client");
    IS_NULL(dunlin_pipeline_submit(NULL, ECHO, "x", 1, 0, &error), "pipeline");
    IS_NULL(dunlin_pipeline_poll(NULL, reenter, NULL, NULL, &error), "pipeline");
    IS_NULL(dunlin_pipeline_wait(NULL, reenter, NULL, NULL, &error), "pipeline");
    IS_NULL(dunlin_region_attach(NULL, "table", &region, &error), "client");
    IS_NULL(dunlin_region_read(NULL, 0, &tag, 8, 0, &error), "region");
    IS_NULL(dunlin_region_write(NULL, 0, "x", 1, 0, &error), "region");
    IS_NULL(dunlin_region_fetch_add(NULL, 0, 1, 0, &tag, &error), "region");
    IS_NULL(dunlin_region_compare_swap(NULL, 0, 1, 2, 0, &tag, &error), "region");
    IS_NULL(dunlin_server_new(NULL, NULL, &server, &error), "address");
    IS_NULL(dunlin_server_new("dunlin://127.0.0.1:0", NULL, NULL, &error), "server");
    IS_NULL(dunlin_server_handle(NULL, ECHO, echo, NULL, &error), "server");
    IS_NULL(dunlin_server_handle_on_workers(NULL, ECHO, echo, NULL, &error), "server");
    IS_NULL(dunlin_server_handle_deferred(NULL, ECHO, keep, NULL, &error), "server");
    IS_NULL(dunlin_server_region(NULL, "table", 8, 0, &error), "server");
    IS_NULL(dunlin_server_region_read(NULL, "table", 0, &tag, 8, &error), "server");
    IS_NULL(dunlin_server_region_write(NULL, "table", 0, "x", 1, &error), "server");
    IS_NULL(dunlin_server_start(NULL, &error), "server");
    IS_NULL(dunlin_server_stop(NULL, 0, NULL, &error), "server");
    IS_NULL(dunlin_respond(NULL, "x", 1, &error), "responder");
    IS_NULL(dunlin_respond_in_place(NULL, 1, &data, &error), "responder");
    IS_NULL(dunlin_respond_error(NULL, 1, "x", &error), "responder");
    IS_NULL(dunlin_deferred_reply(NULL, "x", 1, &error), "deferred");
    IS_NULL(dunlin_deferred_fail(NULL, 1, "x", &error), "deferred");
    EXPECT(client == NULL && server == NULL && pipeline == NULL && region == NULL && reply == NULL);

    /* Those that cannot fail have an answer for NULL. */
    EXPECT(dunlin_client_device(NULL) == NULL && dunlin_client_outstanding(NULL) == 0);
    EXPECT(dunlin_reply_data(NULL) == NULL && dunlin_reply_length(NULL) == 0);
    EXPECT(dunlin_pipeline_outstanding(NULL) == 0 && dunlin_region_length(NULL) == 0);
    EXPECT(dunlin_server_address(NULL) == NULL && dunlin_deferred_request(NULL) == NULL);
    EXPECT(dunlin_request_data(NULL) == NULL && dunlin_request_length(NULL) == 0);
    EXPECT(dunlin_request_handler(NULL) == 0 && dunlin_request_connection(NULL) == 0);
    EXPECT(dunlin_request_remaining_us(NULL) == UINT64_MAX && dunlin_request_is_cancelled(NULL));
    EXPECT(dunlin_error_code(NULL) == DUNLIN_CODE_OK && strcmp(dunlin_error_message(NULL), "no error") == 0);
    EXPECT(dunlin_error_executed(NULL) == DUNLIN_EXECUTED_NO && dunlin_error_handler_code(NULL) == 0);
    EXPECT(!dunlin_error_is_retryable(NULL));
    dunlin_client_free(NULL);
    dunlin_reply_free(NULL);
    dunlin_pipeline_free(NULL);
    dunlin_region_free(NULL);
    dunlin_server_free(NULL);
    dunlin_error_free(NULL);
    EXPECT(dunlin_abi_version() == DUNLIN_ABI_VERSION && strlen(dunlin_version()) > 0);

    /* An error need not be asked for. */
    EXPECT(dunlin_call(NULL, ECHO, "x", 1, 0, &reply, NULL) == DUNLIN_CODE_NULL_ARGUMENT);
}

static void settings_are_checked(const char *address) {
    struct {
        dunlin_client_options options;
        uint64_t newer;
    } longer;
    dunlin_client *client = NULL;
    dunlin_client_options options;
    memset(&options, 0, sizeof options);
    FAILS(dunlin_client_connect(address, &options, &client, &error), DUNLIN_CODE_INVALID_ARGUMENT, "struct_size");
    options.struct_size = sizeof options;
    options.preset = "no such preset";
    FAILS(dunlin_client_connect(address, &options, &client, &error), DUNLIN_CODE_INVALID_ARGUMENT, "preset");
    options.preset = "\xff";
    FAILS(dunlin_client_connect(address, &options, &client, &error), DUNLIN_CODE_INVALID_ARGUMENT, "UTF-8");
    options.preset = NULL;
    options.device = "no-such-device";
    FAILS(dunlin_client_connect(address, &options, &client, &error), DUNLIN_CODE_NO_DEVICE, "no-such-device");
    options.device = NULL;
    options.secret_length = 1;
    IS_NULL(dunlin_client_connect(address, &options, &client, &error), "options->secret");
    FAILS(dunlin_client_connect("nonsense://", NULL, &client, &error), DUNLIN_CODE_ADDRESS, "");

    /* A newer header, of which nothing is used that this library does not know; and then something. */
    memset(&longer, 0, sizeof longer);
    longer.options.struct_size = sizeof longer;
    WORKS(dunlin_client_connect(address, &longer.options, &client, NULL));
    dunlin_client_free(client);
    longer.newer = 1;
    FAILS(dunlin_client_connect(address, &longer.options, &client, &error), DUNLIN_CODE_INVALID_ARGUMENT, "newer");
    EXPECT(client == NULL);

    /* An older header, which knows the first two fields. */
    memset(&options, 0xff, sizeof options);
    options.struct_size = 2 * sizeof(size_t);
    options.preset = "plain";
    WORKS(dunlin_client_connect(address, &options, &client, NULL));
    dunlin_client_free(client);
}

static void calls_are_checked(const char *address) {
    dunlin_client *client = NULL;
    dunlin_reply *reply = NULL;
    dunlin_region *region = NULL;
    dunlin_code status;
    uint64_t tag = 0;
    size_t longest = 0;
    char byte = 'b';
    dunlin_client_options options = {.struct_size = sizeof options, .max_outstanding = 2};
    WORKS(dunlin_client_connect(address, &options, &client, NULL));
    IS_NULL(dunlin_call(client, ECHO, NULL, 1, 0, &reply, &error), "request");
    IS_NULL(dunlin_call(client, ECHO, "x", 1, 0, NULL, &error), "reply");
    IS_NULL(dunlin_call_start(client, ECHO, NULL, 1, 0, 0, &error), "request");
    IS_NULL(dunlin_client_fd(client, NULL, &error), "fd");
    IS_NULL(dunlin_client_next(client, NULL, &status, &reply, &error), "tag");
    IS_NULL(dunlin_client_next(client, &tag, NULL, &reply, &error), "status");
    IS_NULL(dunlin_client_next(client, &tag, &status, NULL, &error), "reply");
    IS_NULL(dunlin_client_max_message_bytes(client, NULL, &error), "bytes");
    IS_NULL(dunlin_pipeline_new(client, 0, NULL, &error), "pipeline");
    IS_NULL(dunlin_region_attach(client, NULL, &region, &error), "name");
    IS_NULL(dunlin_region_attach(client, "table", NULL, &error), "region");
    FAILS(dunlin_call(client, ECHO, "x", SIZE_MAX, 0, &reply, &error), DUNLIN_CODE_INVALID_ARGUMENT, "request");
    FAILS(dunlin_call(client, 77, "x", 1, 0, &reply, &error), DUNLIN_CODE_UNKNOWN_HANDLER, "77");
    FAILS(dunlin_region_attach(client, "none", &region, &error), DUNLIN_CODE_UNKNOWN_REGION, "none");
    EXPECT(dunlin_client_next(client, &tag, &status, &reply, NULL) == DUNLIN_CODE_EMPTY);

    /* No bytes are bytes, too. */
    WORKS(dunlin_call(client, ECHO, NULL, 0, 0, &reply, NULL));
    EXPECT(reply != NULL && dunlin_reply_length(reply) == 0);
    dunlin_reply_free(reply);

    WORKS(dunlin_client_max_message_bytes(client, &longest, NULL));
    char *message = calloc(1, longest + 1);
    EXPECT(message != NULL);
    FAILS(dunlin_call(client, ECHO, message, longest + 1, 0, &reply, &error), DUNLIN_CODE_TOO_LONG, "limit");
    free(message);

    /* A responder that is forgotten. */
    FAILS(dunlin_call(client, UNANSWERED, "x", 1, 0, &reply, &error), DUNLIN_CODE_HANDLER, "");

    /* The region may be read, and no more. */
    WORKS(dunlin_region_attach(client, "table", &region, NULL));
    IS_NULL(dunlin_region_read(region, 0, NULL, 1, 0, &error), "buffer");
    IS_NULL(dunlin_region_write(region, 0, NULL, 1, 0, &error), "data");
    FAILS(dunlin_region_write(region, 0, "x", 1, 0, &error), DUNLIN_CODE_REGION_RIGHT, "writing");
    FAILS(dunlin_region_fetch_add(region, 0, 1, 0, NULL, &error), DUNLIN_CODE_REGION_RIGHT, "atomics");
    FAILS(dunlin_region_compare_swap(region, 0, 0, 1, 0, NULL, &error), DUNLIN_CODE_REGION_RIGHT, "atomics");
    FAILS(dunlin_region_read(region, 64, &byte, 1, 0, &error), DUNLIN_CODE_REGION_BOUNDS, "64");
    EXPECT(byte == 'b');
    WORKS(dunlin_region_read(region, 1, &byte, 1, 0, NULL));
    EXPECT(byte == 'r');

    /* A region outlives its client. */
    dunlin_client_free(client);
    WORKS(dunlin_region_read(region, 0, &byte, 1, 0, NULL));
    EXPECT(byte == 'g');
    dunlin_region_free(region);
}

/* A handler that refuses with words that are no text has refused. */
static void refusals_arrive(const char *address) {
    dunlin_client *client = NULL;
    WORKS(dunlin_client_connect(address, NULL, &client, NULL));
    for (uint16_t handler = REFUSE; handler <= REFUSE_LATER; handler++)
        for (int null = 0; null < 2; null++) {
            dunlin_reply *reply = NULL;
            dunlin_error *error = NULL;
            EXPECT(dunlin_call(client, handler, null ? "n" : "x", 1, 0, &reply, &error) == DUNLIN_CODE_HANDLER);
            EXPECT(reply == NULL && dunlin_error_handler_code(error) == 7);
            EXPECT(null || strstr(dunlin_error_message(error), "no \xef\xbf\xbd") != NULL);
            dunlin_error_free(error);
        }
    dunlin_client_free(client);
}

static void answers_in_place_grow(const char *address) {
    dunlin_client *client = NULL;
    dunlin_reply *reply = NULL;
    WORKS(dunlin_client_connect(address, NULL, &client, NULL));
    WORKS(dunlin_call(client, FILL, "x", 1, 0, &reply, NULL));
    EXPECT(dunlin_reply_length(reply) == 70200);
    const char *data = dunlin_reply_data(reply);
    for (int at = 0; at < 70200; at++)
        EXPECT(data[at] == (at < 70000 ? 'b' : 'c'));
    dunlin_reply_free(reply);
    dunlin_client_free(client);
}

static void too_many_are_refused(const char *address) {
    dunlin_client *client = NULL;
    dunlin_client_options options = {.struct_size = sizeof options, .max_outstanding = 2};
    WORKS(dunlin_client_connect(address, &options, &client, NULL));
    WORKS(dunlin_call_start(client, ECHO, "x", 1, 0, 1, NULL));
    WORKS(dunlin_call_start(client, ECHO, "x", 1, 0, 2, NULL));
    FAILS(dunlin_call_start(client, ECHO, "x", 1, 0, 3, &error), DUNLIN_CODE_TOO_MANY_OUTSTANDING, "2 ");
    EXPECT(dunlin_client_outstanding(client) == 2);
    /* Those that are out are given up. */
    dunlin_client_free(client);
}

static void pipelines_are_not_reentered(const char *address) {
    dunlin_client *client = NULL;
    struct loop loop = {NULL, 0};
    size_t answered = 0;
    WORKS(dunlin_client_connect(address, NULL, &client, NULL));
    WORKS(dunlin_pipeline_new(client, 0, &loop.pipeline, NULL));
    IS_NULL(dunlin_pipeline_submit(loop.pipeline, ECHO, NULL, 1, 0, &error), "request");
    IS_NULL(dunlin_pipeline_wait(loop.pipeline, NULL, NULL, NULL, &error), "callback");
    WORKS(dunlin_pipeline_submit(loop.pipeline, ECHO, "x", 1, 5, NULL));
    WORKS(dunlin_pipeline_wait(loop.pipeline, reenter, &loop, &answered, NULL));
    EXPECT(loop.answers == 1 && answered == 1);
    dunlin_client_free(client);
}

static void children_are_told(const dunlin_server *server, const char *address) {
    dunlin_client *client = NULL;
    dunlin_reply *reply = NULL;
    int status = 0;
    WORKS(dunlin_client_connect(address, NULL, &client, NULL));
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        char byte = 0;
        EXPECT(dunlin_call(client, ECHO, "x", 1, 0, &reply, NULL) == DUNLIN_CODE_FORKED);
        FAILS(dunlin_server_region_read(server, "table", 0, &byte, 1, &error), DUNLIN_CODE_FORKED, "fork");
        FAILS(dunlin_server_region_write(server, "table", 0, "b", 1, &error), DUNLIN_CODE_FORKED, "fork");
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    WORKS(dunlin_call(client, ECHO, "x", 1, 0, &reply, NULL));
    dunlin_reply_free(reply);
    char first = 0;
    WORKS(dunlin_server_region_read(server, "table", 0, &first, 1, NULL));
    EXPECT(first == 'g');
    dunlin_client_free(client);
}

/* Waits until there is something for dunlin_client_next. */
static void becomes_readable(const dunlin_client *client) {
    struct pollfd one = {.events = POLLIN};
    WORKS(dunlin_client_fd(client, &one.fd, NULL));
    EXPECT(poll(&one, 1, 60000) == 1);
}

/* A child that looks for answers leaves its parent's where they are, and what the parent sleeps by. */
static void children_take_no_answers(const char *address) {
    dunlin_client *client = NULL;
    dunlin_reply *reply = NULL;
    dunlin_code answered = DUNLIN_CODE_OTHER;
    uint64_t tag = 0;
    int status = 0, fd = 0;
    WORKS(dunlin_client_connect(address, NULL, &client, NULL));
    WORKS(dunlin_call_start(client, ECHO, "x", 1, 0, 1, NULL));
    becomes_readable(client);
    pid_t child = fork();
    EXPECT(child >= 0);
    if (child == 0) {
        EXPECT(dunlin_client_next(client, &tag, &answered, &reply, NULL) == DUNLIN_CODE_FORKED);
        EXPECT(dunlin_call_start(client, ECHO, "x", 1, 0, 2, NULL) == DUNLIN_CODE_FORKED);
        EXPECT(dunlin_client_fd(client, &fd, NULL) == DUNLIN_CODE_FORKED && fd == -1);
        EXPECT(dunlin_client_outstanding(client) == 0);
        dunlin_client_free(client);
        _exit(0);
    }
    EXPECT(waitpid(child, &status, 0) == child && status == 0);
    for (uint64_t number = 1; number < 4; number++) {
        dunlin_code code;
        do {
            becomes_readable(client);
            code = dunlin_client_next(client, &tag, &answered, &reply, NULL);
        } while (code == DUNLIN_CODE_EMPTY);
        EXPECT(code == DUNLIN_CODE_OK && answered == DUNLIN_CODE_OK && tag == number);
        dunlin_reply_free(reply);
        EXPECT(dunlin_client_next(client, &tag, &answered, &reply, NULL) == DUNLIN_CODE_EMPTY);
        WORKS(dunlin_call_start(client, ECHO, "x", 1, 0, number + 1, NULL));
    }
    dunlin_client_free(client);
}

/* Stops a server that has a call to answer still: not within a millisecond, and then when it is answered. */
static void stopping_has_a_bound(dunlin_server *server) {
    dunlin_client *client = NULL;
    bool drained = false;
    WORKS(dunlin_client_connect(dunlin_server_address(server), NULL, &client, NULL));
    WORKS(dunlin_call_start(client, KEEP, "x", 1, 0, 9, NULL));
    pthread_mutex_lock(&lock);
    while (kept == NULL)
        pthread_cond_wait(&came, &lock);
    pthread_mutex_unlock(&lock);
    FAILS(dunlin_server_stop(server, 1000, &drained, &error), DUNLIN_CODE_DEADLINE_EXCEEDED, "1000");
    const dunlin_request *request = dunlin_deferred_request(kept);
    EXPECT(dunlin_request_length(request) == 1 && *(const char *)dunlin_request_data(request) == 'x');
    WORKS(dunlin_deferred_fail(kept, 4, "too late", NULL));
    WORKS(dunlin_server_stop(server, 0, &drained, NULL));
    dunlin_client_free(client);
}

/* With an argument there are no children: a memory checker sees all of their parent's as lost there. */
int main(int count, char **arguments) {
    (void)arguments;
    dunlin_server *server = NULL, *other = NULL;
    char byte = 0;
    nothing_is_null();

    FAILS(dunlin_server_new("nonsense://", NULL, &server, &error), DUNLIN_CODE_ADDRESS, "");
    dunlin_server_options options = {.struct_size = 1};
    FAILS(dunlin_server_new("dunlin://127.0.0.1:0", &options, &server, &error), DUNLIN_CODE_INVALID_ARGUMENT,
          "struct_size");
    WORKS(dunlin_server_new("dunlin://127.0.0.1:0", NULL, &server, NULL));
    IS_NULL(dunlin_server_handle(server, ECHO, NULL, NULL, &error), "callback");
    IS_NULL(dunlin_server_handle_on_workers(server, ECHO, NULL, NULL, &error), "callback");
    IS_NULL(dunlin_server_handle_deferred(server, KEEP, NULL, NULL, &error), "callback");
    IS_NULL(dunlin_server_region(server, NULL, 8, 0, &error), "name");
    FAILS(dunlin_server_region(server, "table", 8, 4, &error), DUNLIN_CODE_INVALID_ARGUMENT, "rights");
    WORKS(dunlin_server_handle(server, ECHO, echo, NULL, NULL));
    WORKS(dunlin_server_handle_deferred(server, KEEP, keep, NULL, NULL));
    WORKS(dunlin_server_handle_deferred(server, UNANSWERED, unanswered, NULL, NULL));
    WORKS(dunlin_server_handle(server, FILL, fill, NULL, NULL));
    WORKS(dunlin_server_handle(server, REFUSE, refuse, NULL, NULL));
    WORKS(dunlin_server_handle_deferred(server, REFUSE_LATER, refuse_later, NULL, NULL));
    WORKS(dunlin_server_region(server, "table", 64, 0, NULL));
    FAILS(dunlin_server_region_write(server, "table", 0, "x", 1, &error), DUNLIN_CODE_WRONG_STATE, "started");
    EXPECT(dunlin_server_address(server) == NULL);
    WORKS(dunlin_server_start(server, NULL));
    FAILS(dunlin_server_start(server, &error), DUNLIN_CODE_WRONG_STATE, "once");
    FAILS(dunlin_server_handle(server, 9, echo, NULL, &error), DUNLIN_CODE_WRONG_STATE, "before the server is started");
    FAILS(dunlin_server_region_write(server, "none", 0, "x", 1, &error), DUNLIN_CODE_UNKNOWN_REGION, "none");
    FAILS(dunlin_server_region_write(server, "table", 64, "x", 1, &error), DUNLIN_CODE_REGION_BOUNDS, "64");
    FAILS(dunlin_server_region_read(server, "table", UINT64_MAX, &byte, 1, &error), DUNLIN_CODE_REGION_BOUNDS, "64");
    WORKS(dunlin_server_region_write(server, "table", 0, "grow", 4, NULL));
    WORKS(dunlin_server_region_read(server, "table", 3, &byte, 1, NULL));
    EXPECT(byte == 'w');

    /* The same number twice, and a port that is taken. */
    WORKS(dunlin_server_new(dunlin_server_address(server), NULL, &other, NULL));
    WORKS(dunlin_server_handle(other, ECHO, echo, NULL, NULL));
    FAILS(dunlin_server_start(other, &error), DUNLIN_CODE_SERVE, "in use");
    dunlin_server_free(other);
    WORKS(dunlin_server_new("dunlin://127.0.0.1:0", NULL, &other, NULL));
    WORKS(dunlin_server_handle(other, ECHO, echo, NULL, NULL));
    WORKS(dunlin_server_handle(other, ECHO, echo, NULL, NULL));
    FAILS(dunlin_server_start(other, &error), DUNLIN_CODE_INVALID_ARGUMENT, "twice");
    dunlin_server_free(other);

    const char *address = dunlin_server_address(server);
    settings_are_checked(address);
    calls_are_checked(address);
    refusals_arrive(address);
    answers_in_place_grow(address);
    too_many_are_refused(address);
    pipelines_are_not_reentered(address);
    if (count == 1) {
        children_are_told(server, address);
        children_take_no_answers(address);
    }
    stopping_has_a_bound(server);
    FAILS(dunlin_server_start(server, &error), DUNLIN_CODE_WRONG_STATE, "once");
    dunlin_server_free(server);
    printf("all as it should be\n");
    return 0;
}
