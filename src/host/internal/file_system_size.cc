#include "host/internal/file_system_size.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.h"
#include "host/internal/read.h"
#include "os/unique_fd.h"

namespace bedplate::host {
namespace {

struct Reply {  // what a child sends
  int error;
  struct statfs numbers;
};

SizeAnswer answer(const Reply& reply) {
  if (reply.error != 0) return {.size = std::nullopt, .why = std::strerror(reply.error)};
  const auto& fs = reply.numbers;
  const auto block = static_cast<std::int64_t>(fs.f_frsize > 0 ? fs.f_frsize : fs.f_bsize);
  const auto bytes = [&](std::uint64_t blocks) -> std::optional<std::int64_t> {
    if (block <= 0) return std::nullopt;
    return times(static_cast<std::int64_t>(blocks),
                 block);  // times() refuses what was beyond int64
  };
  FileSystemSize size{.bytes = bytes(fs.f_blocks), .available_bytes = bytes(fs.f_bavail)};
  if (fs.f_files > 0 && fs.f_ffree <= fs.f_files && static_cast<std::int64_t>(fs.f_files) > 0) {
    size.inodes = static_cast<std::int64_t>(fs.f_files);
    size.available_inodes = static_cast<std::int64_t>(fs.f_ffree);
  }
  return {.size = size, .why = {}};
}

Reply ask(const char* path) {
  Reply reply{};
  if (::statfs(path, &reply.numbers) != 0) reply.error = errno;
  return reply;
}

// The grandchild. Only async-signal-safe calls: the parent may have threads.
[[noreturn]] void ask_and_exit(const char* path, int out, unsigned alarm_seconds) {
  if (::dup2(out, 0) < 0) ::_exit(1);
  if (::close_range(1, ~0u, 0) != 0) {  // a kernel before 5.9
    for (int fd = 1; fd < 4096; ++fd) ::close(fd);
  }
  ::signal(SIGALRM, SIG_DFL);
  sigset_t alarm_only;
  ::sigemptyset(&alarm_only);
  ::sigaddset(&alarm_only, SIGALRM);
  ::sigprocmask(SIG_UNBLOCK, &alarm_only, nullptr);
  ::alarm(alarm_seconds);
  const Reply reply = ask(path);
  const ssize_t written =
      ::write(0, &reply, sizeof reply);  // less than PIPE_BUF: whole or not at all
  ::_exit(written == sizeof reply ? 0 : 1);
}

// Starts the asking process as a grandchild, so that nobody has to wait for one that hangs.
os::UniqueFd start(const std::string& path, unsigned alarm_seconds) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  os::UniqueFd in(ends[0]), out(ends[1]);
  const pid_t child = ::fork();
  if (child == 0) {
    const pid_t grandchild = ::fork();
    if (grandchild == 0) ask_and_exit(path.c_str(), out.get(), alarm_seconds);
    ::_exit(0);
  }
  if (child < 0) return {};
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return in;
}

}  // namespace

SizeAnswer size_of(const std::string& path) { return answer(ask(path.c_str())); }

std::vector<SizeAnswer> sizes_with_deadline(std::span<const std::string> paths, Nanos deadline) {
  static_assert(sizeof(Reply) < 512);  // POSIX's smallest PIPE_BUF
  const Nanos end = real_clock().now() + deadline;
  const auto alarm_seconds = static_cast<unsigned>(deadline / kSecond + 2);
  std::vector<SizeAnswer> answers(paths.size());
  std::vector<os::UniqueFd> children;
  std::vector<pollfd> waiting;
  for (const auto& path : paths) {
    children.push_back(start(path, alarm_seconds));
    answers[children.size() - 1].why = "cannot start a process to ask";
    if (children.back()) {
      answers[children.size() - 1].why =
          fmt::format("no answer within {}", human_duration(deadline));
    }
    waiting.push_back(
        {.fd = children.back().get(), .events = POLLIN, .revents = 0});  // -1 is passed over
  }
  for (std::size_t open = paths.size(); open > 0;) {
    const Nanos left = end - real_clock().now();
    const int ready =
        ::poll(waiting.data(), waiting.size(),
               left <= 0 ? 0 : static_cast<int>((left + kMillisecond - 1) / kMillisecond));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;
    open = 0;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) {
        Reply reply{};
        const ssize_t n = ::read(waiting[i].fd, &reply, sizeof reply);
        if (n == sizeof reply)
          answers[i] = answer(reply);
        else
          answers[i].why = "the asking process ended without an answer";
        waiting[i].fd = -1;
      }
      if (waiting[i].fd >= 0) ++open;
    }
  }
  return answers;
}

}  // namespace bedplate::host
