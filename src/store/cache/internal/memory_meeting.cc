#include "store/cache/internal/memory_meeting.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/error.h"
#include "base/text.h"

namespace bedplate::store::cache {
namespace {

constexpr Nanos kPatience = kSecond;
constexpr Nanos kPause = kMillisecond;

}  // namespace

MemoryMeeting::MemoryMeeting(std::string_view name)
    : place_(fmt::format("/dev/shm/bedplate-memory1-u{}-{}", ::geteuid(), name)) {
  const Deadline deadline = Deadline::after(kPatience);
  while (!lock() && !deadline.passed())
    std::this_thread::sleep_for(std::chrono::nanoseconds(kPause));
}

// False: another has it now.
bool MemoryMeeting::lock() {
  os::UniqueFd fd(
      ::open(place_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) return true;
  if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) return true;  // a stranger's
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
  // Removed by who had it before us.
  if (::fstat(fd.get(), &status) != 0 || status.st_nlink == 0) return false;
  fd_ = std::move(fd);
  return true;
}

std::optional<std::filesystem::path> MemoryMeeting::offered() const {
  std::array<char, 128> text{};
  const ssize_t bytes = fd_ ? ::pread(fd_.get(), text.data(), text.size(), 0) : 0;
  const auto parts = words({text.data(), bytes > 0 ? static_cast<std::size_t>(bytes) : 0});
  if (parts.size() != 4) return std::nullopt;
  // A link of /proc, which open() follows to the file itself.
  std::filesystem::path path = fmt::format("/proc/{}/fd/{}", parts[0], parts[1]);
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid() || fmt::format("{}", status.st_dev) != parts[2] ||
      fmt::format("{}", status.st_ino) != parts[3])
    return std::nullopt;  // its process is gone, or the number is another's
  return path;
}

void MemoryMeeting::offer(int fd) {
  struct stat status {};
  if (!fd_ || ::fstat(fd, &status) != 0 || ::ftruncate(fd_.get(), 0) != 0) return;
  const std::string text =
      fmt::format("{} {} {} {}\n", ::getpid(), fd, status.st_dev, status.st_ino);
  if (::pwrite(fd_.get(), text.data(), text.size(), 0) != std::ssize(text)) [[maybe_unused]]
    const int emptied = ::ftruncate(fd_.get(), 0);
}

void MemoryMeeting::tidy() {
  if (fd_ && !offered()) ::unlink(place_.c_str());
}

}  // namespace bedplate::store::cache
