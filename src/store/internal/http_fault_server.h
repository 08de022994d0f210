// For tests: a web server on loopback that holds objects and fails as it is told.
//
//   HttpFaultServer server;
//   server.put("/a", "0123456789");
//   server.fail("/a", {Fault::status(503), Fault::reset_after(4)});   // the next two requests
//   … read server.url() + "/a" …
//   EXPECT_EQ(server.requests("/a"), 3);
//
// Objects have an ETag, ranges and If-Match, connections are kept alive. handle() answers what is
// no object: a whole fake service. Thread-safe. The destructor ends all connections and threads.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "os/unique_fd.h"
#include "store/internal/http_text.h"

namespace bedplate::store {

// What one request meets in place of a proper answer. Built by the functions; `times` repeats it.
struct Fault {
  int status_code = 0;         // answers so, without the object
  HttpHeaders headers = {};    // with these
  std::string body = {};       // and this
  std::int64_t reset_at = -1;  // the connection is reset after so many bytes of the body
  std::int64_t close_at = -1;  // … closed in order
  std::int64_t stall_at = -1;  // … nothing more comes
  std::int64_t shift = 0;      // sends the range that begins so many bytes later
  bool no_answer = false;      // is served, but the connection is reset in place of the answer
  bool no_ranges = false;      // sends all, with 200
  int slow_milliseconds = 0;   // between pieces of a quarter
  int times = 1;

  static Fault status(int code, HttpHeaders headers = {}, std::string body = "the server's words") {
    return {.status_code = code, .headers = std::move(headers), .body = std::move(body)};
  }
  static Fault redirect(std::string to, int code = 302) {
    return status(code, {{"Location", std::move(to)}});
  }
  static Fault reset_after(std::int64_t bytes) { return {.reset_at = bytes}; }
  static Fault close_after(std::int64_t bytes) { return {.close_at = bytes}; }  // short body
  static Fault stall_after(std::int64_t bytes) { return {.stall_at = bytes}; }
  static Fault lose_answer() { return {.no_answer = true}; }
  static Fault wrong_range() { return {.shift = 1}; }
  static Fault ignore_range() { return {.no_ranges = true}; }
  static Fault slow(int milliseconds) { return {.slow_milliseconds = milliseconds}; }
  Fault repeated(int n) const {
    Fault fault = *this;
    fault.times = n;
    return fault;
  }
};

class HttpFaultServer {
 public:
  struct Request {
    std::string method;
    std::string path;     // without the query, as it was sent
    std::string query;    // behind the "?"
    HttpHeaders headers;  // names in lower case
    std::string body;
  };
  struct Reply {
    int status = 200;
    HttpHeaders headers = {};
    std::string body = {};
    std::int64_t length = -1;  // what Content-Length says; -1: the body's
  };
  using Handler = std::function<Reply(const Request&)>;

  HttpFaultServer() {
    ::setenv("no_proxy", "127.0.0.1,localhost", 1);  // the machine's proxy is not for loopback
    listener_.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    stop_.reset(::eventfd(0, EFD_CLOEXEC));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    BEDPLATE_CHECK(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
    BEDPLATE_CHECK(::listen(listener_.get(), 128) == 0);
    ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { accept_all(); });
  }
  HttpFaultServer(const HttpFaultServer&) = delete;
  HttpFaultServer& operator=(const HttpFaultServer&) = delete;
  ~HttpFaultServer() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto n = ::write(stop_.get(), &one, sizeof one);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }

  std::string host() const { return fmt::format("127.0.0.1:{}", port_); }
  std::string url() const { return "http://" + host(); }

  // An empty ETag: none is sent.
  void put(const std::string& path, std::string bytes, std::string etag = "\"v1\"") {
    const std::lock_guard lock(mutex_);
    objects_[path] = {std::move(bytes), std::move(etag)};
  }
  // The next requests for `path` meet these, in order.
  void fail(const std::string& path, const std::vector<Fault>& faults) {
    const std::lock_guard lock(mutex_);
    for (const Fault& fault : faults) {
      for (int i = 0; i < fault.times; ++i) faults_[path].push_back(fault);
    }
  }
  // HEAD requests are answered so, whatever they ask for.
  void refuse_head(int status) { refuse_head_ = status; }
  // Answers what is no object; called by one thread at a time.
  void handle(Handler handler) {
    const std::lock_guard lock(mutex_);
    handler_ = std::move(handler);
  }

  std::vector<Request> seen() const {
    const std::lock_guard lock(mutex_);
    return seen_;
  }
  int requests(std::string_view path) const {
    const auto all = seen();
    return static_cast<int>(std::ranges::count(all, path, &Request::path));
  }
  int connections() const { return connections_; }

 private:
  struct Object {
    std::string bytes;
    std::string etag;
  };

  // Waits until `fd` can be read; false: the server ends.
  bool wait_for(int fd) const {
    pollfd fds[] = {{fd, POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    while (::poll(fds, 2, -1) < 0) {
    }
    return fds[1].revents == 0;
  }

  void accept_all() {
    while (wait_for(listener_.get())) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      ++connections_;
      threads_.emplace_back([this, fd] { serve(os::UniqueFd(fd)); });
    }
  }

  void serve(os::UniqueFd fd) {
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    std::string buffer;
    while (auto request = read_request(fd.get(), buffer)) {
      Fault fault;
      Reply reply;
      {
        const std::lock_guard lock(mutex_);
        seen_.push_back(*request);
        auto& planned = faults_[request->path];
        if (!planned.empty()) {
          fault = planned.front();
          planned.pop_front();
        }
        reply = answer(*request, fault);
      }
      if (!send_reply(fd, *request, reply, fault)) return;
    }
  }

  bool fill(int fd, std::string& buffer) const {
    if (!wait_for(fd)) return false;
    char piece[64 * 1024];
    const ssize_t n = ::recv(fd, piece, sizeof piece, 0);
    if (n > 0) buffer.append(piece, static_cast<std::size_t>(n));
    return n > 0;
  }

  std::optional<Request> read_request(int fd, std::string& buffer) const {
    std::size_t end = 0;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!fill(fd, buffer)) return std::nullopt;
    }
    Request request;
    const std::string head = buffer.substr(0, end);
    buffer.erase(0, end + 4);
    for (const auto line : split(head, '\n')) {
      const auto colon = line.find(':');
      if (request.method.empty()) {
        const auto parts = words(line);
        request.method = parts.at(0);
        const auto question = std::min(parts.at(1).find('?'), parts.at(1).size());
        request.path = parts[1].substr(0, question);
        if (question < parts[1].size()) request.query = parts[1].substr(question + 1);
      } else if (colon != std::string_view::npos) {
        request.headers.push_back(
            {ascii_lower(trim(line.substr(0, colon))), std::string(trim(line.substr(colon + 1)))});
      }
    }
    const auto length =
        static_cast<std::size_t>(to_int(header(request.headers, "content-length")).value_or(0));
    while (buffer.size() < length) {
      if (!fill(fd, buffer)) return std::nullopt;
    }
    request.body = buffer.substr(0, length);
    buffer.erase(0, length);
    return request;
  }

  Reply answer(const Request& request, const Fault& fault) const {
    if (fault.status_code != 0) return {fault.status_code, fault.headers, fault.body};
    if (request.method == "HEAD" && refuse_head_ != 0) return {refuse_head_};
    const auto found = objects_.find(request.path);
    if (found == objects_.end()) return handler_ ? handler_(request) : Reply{404, {}, "not here"};
    return answer_object(request, found->second, fault);
  }

  static Reply answer_object(const Request& request, const Object& object, const Fault& fault) {
    Reply reply;
    const auto size = std::ssize(object.bytes);
    if (!object.etag.empty()) reply.headers.push_back({"ETag", object.etag});
    const auto wanted = header(request.headers, "if-match");
    if (!wanted.empty() && wanted != object.etag) return {412, {}, "another version"};
    const auto range = header(request.headers, "range");
    if (!range.starts_with("bytes=") || fault.no_ranges) {
      reply.body = object.bytes;
      return reply;
    }
    const auto ends = split(range.substr(6), '-');
    const std::int64_t first = to_int(ends.at(0)).value_or(0) + fault.shift;
    if (first >= size) return {416, {{"Content-Range", fmt::format("bytes */{}", size)}}};
    const std::int64_t last = std::min(to_int(ends.at(1)).value_or(size - 1), size - 1);
    reply.status = 206;
    reply.headers.push_back({"Content-Range", fmt::format("bytes {}-{}/{}", first, last, size)});
    reply.body = object.bytes.substr(static_cast<std::size_t>(first),
                                     static_cast<std::size_t>(last - first + 1));
    return reply;
  }

  static bool send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  static void reset_on_close(int fd) {
    const linger hard{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
  }

  // false: the connection is over.
  bool send_reply(os::UniqueFd& fd, const Request& request, const Reply& reply,
                  const Fault& fault) const {
    if (fault.no_answer) {
      reset_on_close(fd.get());
      return false;
    }
    const std::int64_t length = reply.length >= 0 ? reply.length : std::ssize(reply.body);
    std::string head = fmt::format("HTTP/1.1 {} Told\r\n", reply.status);
    for (const auto& [key, value] : reply.headers) head += fmt::format("{}: {}\r\n", key, value);
    if (reply.status != 204) head += fmt::format("Content-Length: {}\r\n", length);
    if (!send_all(fd.get(), head + "\r\n")) return false;
    if (request.method == "HEAD") return true;
    const std::int64_t cut = std::max({fault.reset_at, fault.close_at, fault.stall_at});
    const std::string_view body =
        std::string_view(reply.body)
            .substr(0, cut < 0 ? std::string::npos : static_cast<std::size_t>(cut));
    const std::size_t piece = fault.slow_milliseconds > 0 ? body.size() / 4 + 1 : body.size();
    for (std::size_t at = 0; at < body.size(); at += piece) {
      if (!send_all(fd.get(), body.substr(at, piece))) return false;
      if (fault.slow_milliseconds > 0 && !pause(fault.slow_milliseconds)) return false;
    }
    if (fault.stall_at >= 0) wait_for(fd.get());  // until the client leaves
    if (fault.reset_at >= 0) reset_on_close(fd.get());
    return cut < 0 && length == std::ssize(reply.body);
  }

  bool pause(int milliseconds) const {
    pollfd stop{stop_.get(), POLLIN, 0};
    return ::poll(&stop, 1, milliseconds) == 0;
  }

  os::UniqueFd listener_;
  os::UniqueFd stop_;
  int port_ = 0;
  std::thread acceptor_;
  std::list<std::thread> threads_;  // of connections; the acceptor's until it is joined
  std::atomic<int> connections_{0};
  std::atomic<int> refuse_head_{0};

  mutable std::mutex mutex_;
  std::map<std::string, Object, std::less<>> objects_;
  std::map<std::string, std::deque<Fault>, std::less<>> faults_;
  Handler handler_;
  std::vector<Request> seen_;
};

}  // namespace bedplate::store
