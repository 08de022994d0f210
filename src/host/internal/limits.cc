#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

std::optional<std::int64_t> bound(std::string_view text) {
  if (text == "unlimited") return kUnlimited;
  return to_amount(text);
}

// "000001ffffffffff"
std::optional<std::uint64_t> capabilities(std::string_view text) {
  if (text.size() != 16) return std::nullopt;
  const auto high = to_int(text.substr(0, 8), 16), low = to_int(text.substr(8), 16);
  if (!high || !low || *high < 0 || *low < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*high) << 32 | static_cast<std::uint64_t>(*low);
}

// A line of /proc/self/limits: "Max open files            20000                20000 files".
std::optional<Limit> limit(std::string_view table, std::string_view name) {
  while (const auto line = next_line(table)) {
    if (!line->starts_with(name)) continue;
    const auto columns = words(line->substr(name.size()).substr(0, 256));
    if (columns.size() < 2) continue;
    const auto soft = bound(columns[0]);
    const auto hard = bound(columns[1]);
    if (soft && hard) return Limit{.soft = *soft, .hard = *hard};
  }
  return std::nullopt;
}

}  // namespace

void describe_limits(const os::HostRoot& root, Host& host) {
  Limits& limits = host.limits;
  const std::string table = root.read("/proc/self/limits").value_or("");
  limits.open_files = limit(table, "Max open files");
  limits.locked_memory_bytes = limit(table, "Max locked memory");
  limits.processes = limit(table, "Max processes");
  limits.stack_bytes = limit(table, "Max stack size");
  constexpr int kIpcLock = 14;  // linux/capability.h
  const std::string status = root.read("/proc/self/status").value_or("");
  if (const auto effective = capabilities(field(status, "CapEff"))) {
    limits.may_lock_memory = (*effective >> kIpcLock & 1) != 0;
  }
  limits.system_open_files = amount(root, "/proc/sys/fs/file-max");
  limits.system_threads = amount(root, "/proc/sys/kernel/threads-max");
  limits.system_pids = amount(root, "/proc/sys/kernel/pid_max");
}

}  // namespace bedplate::host
