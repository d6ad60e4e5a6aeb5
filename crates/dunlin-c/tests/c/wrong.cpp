// The C++ classes when things go wrong: what is thrown, by whom, and what can be used afterwards.

#include <dunlin.hpp>
#include <type_traits>

#include "../tests/c/expect.h"

static_assert(!std::is_copy_constructible_v<dunlin::Client> && std::is_nothrow_move_constructible_v<dunlin::Client>);
static_assert(!std::is_copy_constructible_v<dunlin::Reply> && std::is_nothrow_move_constructible_v<dunlin::Reply>);
static_assert(!std::is_copy_constructible_v<dunlin::Pipeline> && std::is_move_assignable_v<dunlin::Pipeline>);
static_assert(!std::is_copy_constructible_v<dunlin::Region> && std::is_move_assignable_v<dunlin::Region>);
static_assert(!std::is_copy_constructible_v<dunlin::Server> && std::is_move_assignable_v<dunlin::Server>);

template <typename F> static dunlin_code thrown(F &&what) {
    try {
        what();
    } catch (const dunlin::Error &error) {
        return error.code();
    }
    return DUNLIN_CODE_OK;
}

int main() {
    EXPECT(thrown([] { dunlin::Client("nonsense://"); }) == DUNLIN_CODE_ADDRESS);
    dunlin::Server server("dunlin://127.0.0.1:0");
    server.handle(1, [](const dunlin::Request &request, dunlin::Responder &reply) { reply.write(request.view()); })
        .handle(2, [](const dunlin::Request &, dunlin::Responder &) { throw std::runtime_error("some words"); })
        .handle(3, [](const dunlin::Request &, dunlin::Responder &) { throw 3; })
        .handle(4, [](const dunlin::Request &, dunlin::Responder &reply) { reply.in_place(std::size_t(1) << 40); })
        .handle(5, [](const dunlin::Request &, dunlin::Responder &reply) {
            reply.write("done");
            throw dunlin::HandlerError(7, "no \xff");
        });
    EXPECT(server.address().empty());
    server.start();
    EXPECT(thrown([&] { server.start(); }) == DUNLIN_CODE_WRONG_STATE);

    dunlin::Client client(server.address());
    try {
        client.call(2, "x");
        EXPECT(!"it throws");
    } catch (const dunlin::Error &error) {
        EXPECT(error.code() == DUNLIN_CODE_HANDLER && error.handler_code() == 0 && !error.is_retryable());
        EXPECT(error.executed() == DUNLIN_EXECUTED_YES);
        EXPECT(std::string(error.what()).find("some words") != std::string::npos);
    }
    EXPECT(thrown([&] { client.call(3, "x"); }) == DUNLIN_CODE_HANDLER);
    // What the handler could not answer is its caller's error, whatever the handler throws then.
    EXPECT(thrown([&] { client.call(4, "x"); }) == DUNLIN_CODE_TOO_LONG);
    // What is thrown is an error also when its words are not UTF-8.
    try {
        client.call(5, "x");
        EXPECT(!"it throws");
    } catch (const dunlin::Error &error) {
        EXPECT(error.code() == DUNLIN_CODE_HANDLER && error.handler_code() == 7);
    }
    EXPECT(thrown([&] { client.attach("none"); }) == DUNLIN_CODE_UNKNOWN_REGION);
    EXPECT(client.call(1, "").size() == 0);

    // An exception in the callback of a pipeline comes out of `wait`.
    dunlin::Pipeline pipeline = client.pipeline();
    EXPECT(pipeline.submit(1, "a", 1));
    bool caught = false;
    try {
        pipeline.wait([](std::uint64_t, std::string_view, const dunlin::Error *) { throw std::logic_error("mine"); });
    } catch (const std::logic_error &) {
        caught = true;
    }
    EXPECT(caught);
    EXPECT(pipeline.submit(9, "a", 2));
    EXPECT(pipeline.wait([](std::uint64_t tag, std::string_view, const dunlin::Error *error) {
        EXPECT(tag == 2 && error != nullptr && error->code() == DUNLIN_CODE_UNKNOWN_HANDLER);
    }) == 1);

    // A reply outlives its client.
    dunlin::Reply reply = client.call(1, std::string(100000, 'x'));
    {
        dunlin::Client gone = std::move(client);
    }
    EXPECT(reply.view() == std::string(100000, 'x'));

    // Another server in its place: the first ends with all that it has.
    dunlin::Server other("dunlin://127.0.0.1:0");
    auto words = std::make_shared<std::string>("other");
    other.handle(1, [words](const dunlin::Request &, dunlin::Responder &reply) { reply.write(*words); });
    other.start();
    const std::string former = server.address();
    server = std::move(other);
    EXPECT(server.address() != former);
    EXPECT(dunlin::Client(server.address()).call(1, "x").view() == "other");
    EXPECT(thrown([&] { dunlin::Client gone(former); }) == DUNLIN_CODE_CONNECT);
    server.stop();
    std::printf("all as it should be\n");
    return 0;
}
