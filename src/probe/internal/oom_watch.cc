#include "probe/internal/oom_watch.h"

#include <sys/wait.h>

#include <algorithm>
#include <csignal>

namespace bedplate::probe {
namespace {

constexpr Nanos kTogether = 3 * kSecond;  // from the kill to the counter's sample, or the reverse
constexpr std::size_t kMostCandidates = 256;

bool died_of_sigkill(const Process& process) {
  return process.wait_status && WIFSIGNALED(*process.wait_status) &&
         WTERMSIG(*process.wait_status) == SIGKILL;
}

bool ended_otherwise(const Process& process) {
  return process.wait_status && !died_of_sigkill(process);
}

// A process without a sample yet has no rise.
std::int64_t rise(std::optional<std::int64_t>& last, std::optional<std::int64_t> now) {
  if (!now) return 0;
  const std::int64_t by = last ? std::max<std::int64_t>(0, *now - *last) : 0;
  last = now;
  return by;
}

}  // namespace

void OomWatch::ended(const Process& process) {
  std::erase_if(candidates_, [&](const Process& known) {
    return known.pid == process.pid && known.start == process.start;
  });
  if (ended_otherwise(process) || process.oom_killed) return;
  candidates_.push_back(process);
  if (candidates_.size() > kMostCandidates) candidates_.pop_front();
}

std::vector<Process> OomWatch::look(std::optional<std::int64_t> group,
                                    std::optional<std::int64_t> host, Nanos now) {
  const std::int64_t in_group = rise(last_group_, group);
  const std::int64_t on_host = rise(last_host_, host);
  const std::int64_t more = group ? in_group : on_host;
  if (more > 0) {
    kills_ += more;
    own_group_ = group.has_value();
    rose_ = now;
  }
  std::erase_if(candidates_, [now](const Process& process) {
    return now - process.end.value_or(now) > kTogether;
  });
  std::vector<Process> killed;
  if (kills_ == 0) return killed;
  if (now - rose_ > kTogether) {
    kills_ = 0;
    return killed;
  }
  const auto take = [&](std::deque<Process>::iterator process) {
    process->oom_killed = true;
    killed.push_back(*process);
    candidates_.erase(process);
    --kills_;
  };
  while (kills_ > 0) {
    const auto certain = std::find_if(candidates_.begin(), candidates_.end(), died_of_sigkill);
    if (certain == candidates_.end()) break;
    take(certain);
  }
  // Near the end of its window, so that a wait status may still come.
  if (kills_ > 0 && own_group_ && candidates_.size() == 1 &&
      now - candidates_.front().end.value_or(now) > kTogether / 2) {
    take(candidates_.begin());
  }
  return killed;
}

}  // namespace bedplate::probe
