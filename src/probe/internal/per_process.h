// What a sampler remembers of each process of the job between ticks.
//
//   struct State { ProcessFile stat; Rising user; };
//   PerProcess<State> table;
//   table.visit(processes, [&](const JobProcess& process, const std::string& subject, State& state)
//   { … });
//
// A process that is no longer listed is forgotten; one whose number is used again starts afresh.
// Not thread-safe.
#pragma once

#include <fmt/format.h>

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "os/host_root.h"
#include "probe/sampler.h"

namespace bedplate::probe {

// One file of one process. An open descriptor speaks of that process alone and fails once it has
// ended, never of a later process with the same number. Of jobs with more than kKept processes only
// the first keep theirs open: descriptors are scarce, and such jobs are rare.
class ProcessFile {
 public:
  static constexpr std::size_t kKept = 64;

  // The text lies in `buffer`; nullopt when the process has ended or the file may not be read (then
  // errno says why).
  std::optional<std::string_view> read(const os::HostRoot& host, std::string_view path, bool keep,
                                       std::string& buffer) {
    if (fd_) return os::reread(fd_.get(), buffer);
    os::UniqueFd fd = host.open(path);
    if (!fd) return std::nullopt;
    const auto text = os::reread(fd.get(), buffer);
    if (keep && text) fd_ = std::move(fd);
    return text;
  }

 private:
  os::UniqueFd fd_;
};

template <typename State>
class PerProcess {
 public:
  template <typename Visit>
  void visit(std::span<const JobProcess> processes, Visit&& visit) {
    ++generation_;
    for (const JobProcess& process : processes) {
      auto [it, fresh] = entries_.try_emplace(process.pid);
      Entry& entry = it->second;
      if (fresh || entry.start != process.start) {
        entry = Entry{};
        entry.start = process.start;
        entry.subject = fmt::format("proc/{}", process.pid);
      }
      entry.generation = generation_;
      visit(process, entry.subject, entry.state);
    }
    if (entries_.size() > processes.size()) {
      std::erase_if(entries_,
                    [this](const auto& item) { return item.second.generation != generation_; });
    }
  }

  bool few() const { return entries_.size() <= ProcessFile::kKept; }
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    Nanos start = 0;
    std::uint64_t generation = 0;
    std::string subject;
    State state;
  };
  std::unordered_map<int, Entry> entries_;
  std::uint64_t generation_ = 0;
};

}  // namespace bedplate::probe
