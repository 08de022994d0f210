#include "os/host_root.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/text.h"

namespace bedplate::os {
namespace {

constexpr std::size_t kMostBytes = 64u << 20;
constexpr int kMostLinks = 40;  // as the kernel's own limit

std::optional<std::string> read_all(int fd) {
  std::string text;
  char block[16384];
  while (text.size() < kMostBytes) {
    const ssize_t n = ::read(fd, block, sizeof block);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    if (n == 0) break;
    text.append(block, static_cast<std::size_t>(n));
  }
  return text;
}

}  // namespace

HostRoot::HostRoot(std::filesystem::path root) : root_(std::move(root)), live_(root_ == "/") {}

std::filesystem::path HostRoot::resolve(std::string_view absolute) const {
  if (live_) return std::filesystem::path(absolute);
  namespace fs = std::filesystem;
  // Walks component by component, so that an absolute link of the recorded machine stays inside it.
  fs::path inside;  // relative to root_
  std::vector<std::string> todo;
  const auto push = [&todo](const fs::path& path) {
    std::vector<std::string> parts;
    for (const auto& part : path.relative_path()) parts.push_back(part.string());
    todo.insert(todo.end(), parts.rbegin(), parts.rend());
  };
  push(fs::path(absolute));
  for (int links = 0; !todo.empty();) {
    const std::string part = todo.back();
    todo.pop_back();
    if (part.empty() || part == ".") continue;
    if (part == "..") {
      inside = inside.parent_path();
      continue;
    }
    std::error_code error;
    const fs::path target = fs::read_symlink(root_ / inside / part, error);
    if (error || ++links > kMostLinks) {
      inside /= part;
      continue;
    }
    if (target.is_absolute()) inside.clear();
    push(target);
  }
  return root_ / inside;
}

std::optional<std::string> HostRoot::read(std::string_view absolute) const {
  const UniqueFd fd = open(absolute);
  if (!fd) return std::nullopt;
  return read_all(fd.get());
}

std::optional<std::string> HostRoot::read_line(std::string_view absolute) const {
  const auto text = read(absolute);
  if (!text) return std::nullopt;
  return std::string(trim(*text));
}

std::optional<std::int64_t> HostRoot::read_int(std::string_view absolute) const {
  const auto text = read(absolute);
  if (!text) return std::nullopt;
  return to_int(trim(*text));
}

bool HostRoot::exists(std::string_view absolute) const {
  std::error_code error;
  return std::filesystem::exists(resolve(absolute), error);
}

bool HostRoot::readable(std::string_view absolute) const {
  return ::access(resolve(absolute).c_str(), R_OK) == 0;
}

std::vector<std::string> HostRoot::list(std::string_view absolute) const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator it(resolve(absolute), error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string> HostRoot::link(std::string_view absolute) const {
  const std::filesystem::path path(absolute);
  std::error_code error;
  const auto target =
      std::filesystem::read_symlink(resolve(path.parent_path().string()) / path.filename(), error);
  if (error) return std::nullopt;
  return target.string();
}

std::optional<std::string> HostRoot::link_name(std::string_view absolute) const {
  const auto target = link(absolute);
  if (!target) return std::nullopt;
  return std::filesystem::path(*target).filename().string();
}

UniqueFd HostRoot::open(std::string_view absolute) const {
  return UniqueFd(::open(resolve(absolute).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

std::optional<std::string_view> reread(int fd, std::string& buffer) {
  if (buffer.size() < 4096) buffer.resize(4096);
  std::size_t used = 0;
  for (;;) {
    const ssize_t n =
        ::pread(fd, buffer.data() + used, buffer.size() - used, static_cast<off_t>(used));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return std::nullopt;
    used += static_cast<std::size_t>(n);
    // Only 0 is the end: the kernel hands out whole records and may stop short of a full buffer
    // before it.
    if (n == 0 || used >= kMostBytes) return std::string_view(buffer.data(), used);
    if (used == buffer.size()) buffer.resize(buffer.size() * 4);
  }
}

}  // namespace bedplate::os
