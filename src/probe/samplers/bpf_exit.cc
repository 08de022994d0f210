// How the job's processes ended, as notes "exit": {"pid", "comm", "code", "signal"}. It sees what
// no parent waited for, and processes that lived shorter than a tick, where the job has a v2 group
// of its own.
#include <fmt/format.h>
#include <sys/wait.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "probe/bpf/shared.h"
#include "probe/internal/bpf_signal.h"

namespace bedplate::probe {
namespace {

// Notes of one run. A shell script ends thousands of processes well, and some jobs end thousands
// badly on purpose.
constexpr int kMostGood = 256;
constexpr int kMostBad = 2'000;

class BpfExit final : public Sampler {
 public:
  explicit BpfExit(const SampleContext& context) : bpf_(context, "exit") {}

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    // Before the processes of this tick are told, since those that ended are not among them any
    // more.
    bpf_.drain("exit_records", [&](std::span<const std::byte> bytes) {
      bpf_exit record;
      if (bytes.size() < sizeof record) return;
      std::memcpy(&record, bytes.data(), sizeof record);
      write(record, sink);
    });
    bpf_.follow(processes);
  }

  std::string remark() const override {
    if (dropped_ == 0) return {};
    return fmt::format("{} ends of processes beyond the first {} good and {} bad ones are not kept",
                       dropped_, kMostGood, kMostBad);
  }

 private:
  void write(const bpf_exit& record, SampleSink& sink) {
    int& count = record.code == 0 ? good_ : bad_;
    if (count >= (record.code == 0 ? kMostGood : kMostBad)) {
      ++dropped_;
      return;
    }
    ++count;
    const std::string_view comm(record.comm, ::strnlen(record.comm, sizeof record.comm));
    const nlohmann::json note = {{"pid", record.pid},
                                 {"comm", to_utf8(comm)},
                                 {"code", WIFEXITED(record.code) ? WEXITSTATUS(record.code) : 0},
                                 {"signal", WIFSIGNALED(record.code) ? WTERMSIG(record.code) : 0}};
    sink.note(static_cast<int>(record.pid), "exit", note.dump());
  }

  BpfSignal bpf_;
  int good_ = 0;
  int bad_ = 0;
  std::int64_t dropped_ = 0;
};

}  // namespace

extern const SamplerPart kBpfExit = {
    .name = "bpf.exit",
    .what = "exit codes and signals of the job's processes (BPF)",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<BpfExit>(context);
    },
};

}  // namespace bedplate::probe
