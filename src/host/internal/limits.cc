#include "base/text.h"
#include "host/internal/describers.h"
#include "host/internal/read.h"

namespace bedplate::host {
namespace {

std::optional<std::int64_t> bound(std::string_view text) {
  if (text == "unlimited") return kUnlimited;
  return to_amount(text);
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
  limits.system_open_files = amount(root, "/proc/sys/fs/file-max");
  limits.system_threads = amount(root, "/proc/sys/kernel/threads-max");
  limits.system_pids = amount(root, "/proc/sys/kernel/pid_max");
}

}  // namespace bedplate::host
