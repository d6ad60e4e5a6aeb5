// Server and client in C++17, in one process.
//
//     c++ -std=c++17 both.cpp $(pkg-config --cflags --libs dunlin) -o both

#include <dunlin.hpp>
#include <iostream>
#include <poll.h>

namespace {

constexpr std::uint16_t ECHO = 1;
constexpr std::uint16_t REFUSE = 2;

void run() {
    dunlin::Server server("dunlin://127.0.0.1:0");
    server.handle(ECHO, [](const dunlin::Request &request, dunlin::Responder &reply) { reply.write(request.view()); })
        .handle_on_workers(REFUSE,
                           [](const dunlin::Request &request, dunlin::Responder &) {
                               throw dunlin::HandlerError(7, "not " + std::string(request.view()));
                           })
        .region("table", 4096, DUNLIN_REGION_WRITABLE | DUNLIN_REGION_ATOMIC);
    server.start();

    dunlin::ClientOptions options;
    options.deadline_us = 30 * 1000 * 1000;
    dunlin::Client client(server.address(), options);
    std::cout << "echo: " << client.call(ECHO, "hello").view() << '\n';

    try {
        client.call(REFUSE, "today");
    } catch (const dunlin::Error &error) {
        std::cout << "refused: " << error.what() << " (" << error.handler_code() << ")\n";
    }

    // Asynchronous, with a descriptor to poll.
    client.start(ECHO, "one", 1);
    client.start(REFUSE, "two", 2);
    int failed = 0;
    for (int taken = 0; taken < 2;) {
        pollfd ready = {client.fd(), POLLIN, 0};
        if (poll(&ready, 1, 60 * 1000) <= 0)
            throw std::runtime_error("nothing has come for a minute");
        while (auto answer = client.next()) {
            failed += answer->error.has_value();
            taken++;
        }
    }
    std::cout << "asynchronous: " << failed << " of 2 refused\n";

    dunlin::Pipeline pipeline = client.pipeline(16);
    std::size_t right = 0;
    for (std::uint64_t tag = 0; tag < 100;) {
        if (pipeline.submit(ECHO, std::to_string(tag), tag)) {
            tag++;
            continue;
        }
        pipeline.wait([&](std::uint64_t of, std::string_view bytes, const dunlin::Error *error) {
            right += error == nullptr && bytes == std::to_string(of);
        });
    }
    while (pipeline.outstanding() > 0)
        pipeline.wait([&](std::uint64_t of, std::string_view bytes, const dunlin::Error *error) {
            right += error == nullptr && bytes == std::to_string(of);
        });
    std::cout << "pipeline: " << right << " of 100\n";

    dunlin::Region table = client.attach("table");
    table.write(64, "a row");
    std::cout << "region: " << table.read(64, 5) << ", " << table.fetch_add(0, 1) << ", " << table.fetch_add(0, 1)
              << '\n';

    dunlin::Client moved = std::move(client);
    std::cout << "moved: " << moved.call(ECHO, "still here").view() << '\n';
    std::cout << "stopped: " << (server.stop() ? "all answered" : "cut off") << '\n';
}

} // namespace

int main() {
    try {
        run();
    } catch (const std::exception &error) {
        std::cerr << "failed: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
