// What the samplers say, on its way into the run file: gives each series its number, and keeps the
// few values that the live line and the resource table need.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "probe/run_file.h"
#include "probe/sampler.h"

namespace bedplate::probe {

class SampleWriter final : public SampleSink {
 public:
  explicit SampleWriter(RunWriter& writer) : writer_(writer) {}

  void set_now(Nanos now) { now_ = now; }
  Nanos now() const override { return now_; }
  void counter(std::string_view subject, std::string_view metric, std::int64_t value,
               std::string_view source) override;
  void gauge(std::string_view subject, std::string_view metric, std::int64_t value,
             std::string_view source) override;
  void note(int pid, std::string_view key, std::string_view value) override;

  // A process ended: its series get no more values.
  void forget(int pid);

  // The last value of a series in this tick or before; nullopt when it has none.
  std::optional<std::int64_t> last(std::string_view subject, std::string_view metric) const;

  // By pid, as the samplers have seen it so far; nullptr when they have not.
  ResourceUse* resource(int pid);

  // How a process ended by its "exit" note (from BPF), as a wait status; told once.
  std::optional<int> take_exit_status(int pid);

  // The same for all of `wanted`.
  std::map<int, int> take_exit_statuses(const std::map<int, Process>& wanted);

 private:
  struct Entry {
    RunWriter::SeriesId id;
    std::int64_t value;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const {
      return std::hash<std::string_view>{}(text);
    }
  };

  void put(std::string_view subject, std::string_view metric, SeriesKind kind, std::int64_t value,
           std::string_view source);
  void tally(std::string_view subject, std::string_view metric, std::int64_t value);

  RunWriter& writer_;
  Nanos now_ = 0;
  std::string key_;
  std::unordered_map<std::string, Entry, Hash, std::equal_to<>> series_;
  std::map<int, ResourceUse> resources_;
  std::map<int, int> exits_;
};

}  // namespace bedplate::probe
