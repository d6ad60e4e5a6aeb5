// Dunlin for C++17: the objects of dunlin.h as classes that free what they hold.
//
// All classes can be moved and not copied; one that was moved from can be destroyed and assigned to, and no more. What
// fails throws `dunlin::Error`; that there is no answer or no room now is no failure, and is returned. Requests and
// answers are bytes as std::string_view. What dunlin.h says of threads, ownership and deadlines holds here, too.
//
//     dunlin::Client client("dunlin://127.0.0.1:7400");
//     std::cout << client.call(1, "hello").view() << '\n';

#ifndef DUNLIN_HPP
#define DUNLIN_HPP

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dunlin.h"

namespace dunlin {

using microseconds = std::chrono::microseconds;

/// What went wrong, in words and numbers.
class Error : public std::runtime_error {
public:
    explicit Error(const dunlin_error *error)
        : std::runtime_error(dunlin_error_message(error)), code_(dunlin_error_code(error)),
          executed_(dunlin_error_executed(error)), handler_code_(dunlin_error_handler_code(error)),
          is_retryable_(dunlin_error_is_retryable(error)) {}

    dunlin_code code() const noexcept { return code_; }
    /// Whether the server executed the call.
    dunlin_executed executed() const noexcept { return executed_; }
    /// The number that the handler gave, if it is the handler's error.
    std::uint32_t handler_code() const noexcept { return handler_code_; }
    bool is_retryable() const noexcept { return is_retryable_; }

private:
    dunlin_code code_;
    dunlin_executed executed_;
    std::uint32_t handler_code_;
    bool is_retryable_;
};

/// For handlers to throw: the caller gets DUNLIN_CODE_HANDLER, this number and these words. Another exception that
/// leaves a handler is number 0 and its own words.
class HandlerError : public std::runtime_error {
public:
    HandlerError(std::uint32_t code, const std::string &message)
        : std::runtime_error(message), code_(code) {}
    std::uint32_t code() const noexcept { return code_; }

private:
    std::uint32_t code_;
};

namespace detail {

template <typename T, void (*release)(T *)> struct Release {
    void operator()(T *object) const noexcept { release(object); }
};
template <typename T, void (*release)(T *)>
using Handle = std::unique_ptr<T, Release<T, release>>;

/// The place for an error of one call of the library.
class Failure {
public:
    Failure() = default;
    Failure(const Failure &) = delete;
    Failure &operator=(const Failure &) = delete;
    ~Failure() { dunlin_error_free(error_); }

    dunlin_error **place() noexcept { return &error_; }
    const dunlin_error *get() const noexcept { return error_; }
    void check(dunlin_code code) const {
        if (code != DUNLIN_CODE_OK)
            throw Error(error_);
    }

private:
    dunlin_error *error_ = nullptr;
};

inline std::string_view bytes(const void *data, std::size_t length) noexcept {
    return length == 0 ? std::string_view() : std::string_view(static_cast<const char *>(data), length);
}

inline std::uint64_t count(microseconds time) noexcept {
    return time.count() < 0 ? 1 : static_cast<std::uint64_t>(time.count());
}

} // namespace detail

/// Settings of a client: assign to the fields of dunlin_client_options that are to be other than the default.
struct ClientOptions : dunlin_client_options {
    ClientOptions() noexcept : dunlin_client_options() { struct_size = sizeof(dunlin_client_options); }
};

/// Settings of a server.
struct ServerOptions : dunlin_server_options {
    ServerOptions() noexcept : dunlin_server_options() { struct_size = sizeof(dunlin_server_options); }
};

/// An answer.
class Reply {
public:
    Reply() = default;
    explicit Reply(dunlin_reply *reply) noexcept : reply_(reply) {}

    /// The bytes, as long as the reply lives.
    std::string_view view() const noexcept {
        return detail::bytes(dunlin_reply_data(reply_.get()), dunlin_reply_length(reply_.get()));
    }
    std::string str() const { return std::string(view()); }
    std::size_t size() const noexcept { return dunlin_reply_length(reply_.get()); }

private:
    detail::Handle<dunlin_reply, dunlin_reply_free> reply_;
};

/// What became of an asynchronous call.
struct Answer {
    std::uint64_t tag = 0;
    Reply reply;
    /// There is none when the call was answered.
    std::optional<Error> error;
};

/// Memory of a server's that was attached.
class Region {
public:
    explicit Region(dunlin_region *region) noexcept : region_(region) {}

    std::uint64_t length() const noexcept { return dunlin_region_length(region_.get()); }

    void read(std::uint64_t offset, void *buffer, std::size_t length, microseconds deadline = microseconds(0)) const {
        detail::Failure failure;
        failure.check(dunlin_region_read(region_.get(), offset, buffer, length, detail::count(deadline),
                                         failure.place()));
    }
    std::string read(std::uint64_t offset, std::size_t length, microseconds deadline = microseconds(0)) const {
        std::string bytes(length, '\0');
        read(offset, bytes.data(), length, deadline);
        return bytes;
    }
    void write(std::uint64_t offset, std::string_view bytes, microseconds deadline = microseconds(0)) const {
        detail::Failure failure;
        failure.check(dunlin_region_write(region_.get(), offset, bytes.data(), bytes.size(), detail::count(deadline),
                                          failure.place()));
    }
    /// Says what was there before.
    std::uint64_t fetch_add(std::uint64_t offset, std::uint64_t add, microseconds deadline = microseconds(0)) const {
        detail::Failure failure;
        std::uint64_t before = 0;
        failure.check(dunlin_region_fetch_add(region_.get(), offset, add, detail::count(deadline), &before,
                                              failure.place()));
        return before;
    }
    /// Says what was there before: it was replaced if that is `compare`.
    std::uint64_t compare_swap(std::uint64_t offset, std::uint64_t compare, std::uint64_t swap,
                               microseconds deadline = microseconds(0)) const {
        detail::Failure failure;
        std::uint64_t before = 0;
        failure.check(dunlin_region_compare_swap(region_.get(), offset, compare, swap, detail::count(deadline),
                                                 &before, failure.place()));
        return before;
    }

private:
    detail::Handle<dunlin_region, dunlin_region_free> region_;
};

/// A connection for one loop that keeps many calls out. One thread at a time.
class Pipeline {
public:
    explicit Pipeline(dunlin_pipeline *pipeline) noexcept : pipeline_(pipeline) {}

    /// False: there is no room, take answers first.
    bool submit(std::uint16_t handler, std::string_view request, std::uint64_t tag) {
        detail::Failure failure;
        dunlin_code code = dunlin_pipeline_submit(pipeline_.get(), handler, request.data(), request.size(), tag,
                                                  failure.place());
        if (code == DUNLIN_CODE_FULL)
            return false;
        failure.check(code);
        return true;
    }

    /// Takes the answers that have come, without waiting; says how many. `answer` is called as
    /// answer(tag, bytes, error), with a null pointer for no error. An exception that leaves it ends up at the caller,
    /// when the answers of this round were taken; those after it were not given to `answer`.
    template <typename F> std::size_t poll(F &&answer) { return take(dunlin_pipeline_poll, answer); }
    /// As poll, but waits until at least one answer has come or nothing is out.
    template <typename F> std::size_t wait(F &&answer) { return take(dunlin_pipeline_wait, answer); }

    std::size_t outstanding() const noexcept { return dunlin_pipeline_outstanding(pipeline_.get()); }

private:
    template <typename F> struct Taker {
        F &answer;
        std::exception_ptr thrown;

        static void take(std::uint64_t tag, dunlin_code, const void *data, std::size_t length,
                         const dunlin_error *error, void *user) {
            auto *self = static_cast<Taker *>(user);
            if (self->thrown)
                return;
            try {
                if (error == nullptr) {
                    self->answer(tag, detail::bytes(data, length), static_cast<const Error *>(nullptr));
                } else {
                    const Error failed(error);
                    self->answer(tag, std::string_view(), &failed);
                }
            } catch (...) {
                self->thrown = std::current_exception();
            }
        }
    };

    template <typename Call, typename F> std::size_t take(Call call, F &answer) {
        detail::Failure failure;
        Taker<F> taker{answer, nullptr};
        std::size_t answered = 0;
        dunlin_code code = call(pipeline_.get(), Taker<F>::take, &taker, &answered, failure.place());
        if (taker.thrown)
            std::rethrow_exception(taker.thrown);
        failure.check(code);
        return answered;
    }

    detail::Handle<dunlin_pipeline, dunlin_pipeline_free> pipeline_;
};

/// A connection to a server. Any thread may call through it.
class Client {
public:
    explicit Client(const std::string &address, const ClientOptions &options = ClientOptions()) {
        detail::Failure failure;
        dunlin_client *client = nullptr;
        failure.check(dunlin_client_connect(address.c_str(), &options, &client, failure.place()));
        client_.reset(client);
    }

    /// The device that the connection uses.
    std::string_view device() const { return dunlin_client_device(client_.get()); }

    /// Calls and waits for the answer. A deadline of zero is the client's own, here and everywhere.
    Reply call(std::uint16_t handler, std::string_view request, microseconds deadline = microseconds(0)) const {
        detail::Failure failure;
        dunlin_reply *reply = nullptr;
        failure.check(dunlin_call(client_.get(), handler, request.data(), request.size(), detail::count(deadline),
                                  &reply, failure.place()));
        return Reply(reply);
    }

    /// Begins a call; `next` brings its answer.
    void start(std::uint16_t handler, std::string_view request, std::uint64_t tag,
               microseconds deadline = microseconds(0)) const {
        detail::Failure failure;
        failure.check(dunlin_call_start(client_.get(), handler, request.data(), request.size(),
                                        detail::count(deadline), tag, failure.place()));
    }
    /// Readable when there is something for `next`; it belongs to the client.
    int fd() const {
        detail::Failure failure;
        int fd = -1;
        failure.check(dunlin_client_fd(client_.get(), &fd, failure.place()));
        return fd;
    }
    /// One answer of an asynchronous call, if there is one now.
    std::optional<Answer> next() const {
        detail::Failure failure;
        dunlin_reply *reply = nullptr;
        dunlin_code status = DUNLIN_CODE_OK;
        Answer answer;
        dunlin_code code = dunlin_client_next(client_.get(), &answer.tag, &status, &reply, failure.place());
        if (code == DUNLIN_CODE_EMPTY)
            return std::nullopt;
        failure.check(code);
        answer.reply = Reply(reply);
        if (status != DUNLIN_CODE_OK)
            answer.error.emplace(failure.get());
        return answer;
    }
    /// Asynchronous calls that are out, with those whose answers were not taken.
    std::size_t outstanding() const noexcept { return dunlin_client_outstanding(client_.get()); }

    Pipeline pipeline(std::size_t window = 0) const {
        detail::Failure failure;
        dunlin_pipeline *pipeline = nullptr;
        failure.check(dunlin_pipeline_new(client_.get(), window, &pipeline, failure.place()));
        return Pipeline(pipeline);
    }

    Region attach(const std::string &name) const {
        detail::Failure failure;
        dunlin_region *region = nullptr;
        failure.check(dunlin_region_attach(client_.get(), name.c_str(), &region, failure.place()));
        return Region(region);
    }

private:
    detail::Handle<dunlin_client, dunlin_client_free> client_;
};

/// A request, in a handler.
class Request {
public:
    explicit Request(const dunlin_request *request) noexcept : request_(request) {}

    /// The bytes, until the handler returns.
    std::string_view view() const noexcept {
        return detail::bytes(dunlin_request_data(request_), dunlin_request_length(request_));
    }
    std::uint64_t connection() const noexcept { return dunlin_request_connection(request_); }
    bool is_cancelled() const noexcept { return dunlin_request_is_cancelled(request_); }

private:
    const dunlin_request *request_;
};

/// Where a handler puts its answer.
class Responder {
public:
    explicit Responder(dunlin_responder *responder) noexcept : responder_(responder) {}

    /// Appends to the answer.
    void write(std::string_view bytes) {
        detail::Failure failure;
        failure.check(dunlin_respond(responder_, bytes.data(), bytes.size(), failure.place()));
    }
    /// An answer of exactly `length` bytes, to fill before the next call of this object or the handler's return.
    void *in_place(std::size_t length) {
        detail::Failure failure;
        void *data = nullptr;
        failure.check(dunlin_respond_in_place(responder_, length, &data, failure.place()));
        return data;
    }

private:
    dunlin_responder *responder_;
};

/// A server, and the functions that answer. They run on its threads, several at once. A handler that does not return
/// within a second of the server's end is left behind, and must not be: its function goes with the server.
class Server {
public:
    using Handler = std::function<void(const Request &, Responder &)>;

    explicit Server(const std::string &address, const ServerOptions &options = ServerOptions()) {
        detail::Failure failure;
        dunlin_server *server = nullptr;
        failure.check(dunlin_server_new(address.c_str(), &options, &server, failure.place()));
        server_.reset(server);
    }
    Server(Server &&) noexcept = default;
    /// The server that was here before ends first, and then its functions go.
    Server &operator=(Server &&other) noexcept {
        server_ = std::move(other.server_);
        handlers_ = std::move(other.handlers_);
        return *this;
    }
    ~Server() = default;

    /// On the polling thread, for a few microseconds of work.
    Server &handle(std::uint16_t id, Handler handler) {
        return add(dunlin_server_handle, id, std::move(handler));
    }
    /// On a pool of threads.
    Server &handle_on_workers(std::uint16_t id, Handler handler) {
        return add(dunlin_server_handle_on_workers, id, std::move(handler));
    }
    /// Grants memory; `rights` as for dunlin_server_region.
    Server &region(const std::string &name, std::size_t length, std::uint32_t rights = 0) {
        detail::Failure failure;
        failure.check(dunlin_server_region(server_.get(), name.c_str(), length, rights, failure.place()));
        return *this;
    }
    void start() {
        detail::Failure failure;
        failure.check(dunlin_server_start(server_.get(), failure.place()));
    }
    /// Empty before the start.
    std::string address() const {
        const char *address = dunlin_server_address(server_.get());
        return address == nullptr ? std::string() : std::string(address);
    }
    /// Stops within this time (zero: however long it takes), or throws; says whether everything was answered.
    bool stop(microseconds within = microseconds(0)) {
        detail::Failure failure;
        bool drained = false;
        failure.check(dunlin_server_stop(server_.get(), detail::count(within), &drained, failure.place()));
        return drained;
    }

private:
    template <typename Add> Server &add(Add add, std::uint16_t id, Handler handler) {
        detail::Failure failure;
        handlers_.push_back(std::make_unique<Handler>(std::move(handler)));
        failure.check(add(server_.get(), id, answer, handlers_.back().get(), failure.place()));
        return *this;
    }

    static void answer(const dunlin_request *request, dunlin_responder *responder, void *user) {
        try {
            Responder to(responder);
            (*static_cast<Handler *>(user))(Request(request), to);
        } catch (const HandlerError &error) {
            dunlin_respond_error(responder, error.code(), error.what(), nullptr);
        } catch (const std::exception &error) {
            dunlin_respond_error(responder, 0, error.what(), nullptr);
        } catch (...) {
            dunlin_respond_error(responder, 0, "the handler threw what is no std::exception", nullptr);
        }
    }

    // Handlers go after the server that calls them.
    std::vector<std::unique_ptr<Handler>> handlers_;
    detail::Handle<dunlin_server, dunlin_server_free> server_;
};

} // namespace dunlin

#endif // DUNLIN_HPP
