// What each process of the job read and wrote, from /proc/PID/io: rchar and wchar by system calls,
// read_bytes and write_bytes at storage. The file answers only to the process's own user and to
// root.
#include <array>
#include <cerrno>
#include <string>

#include "base/error.h"
#include "probe/internal/per_process.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

struct Field {
  std::string_view key;
  std::string_view metric;
};
constexpr std::array<Field, 6> kFields = {{{"rchar", "io.rchar"},
                                           {"wchar", "io.wchar"},
                                           {"syscr", "io.syscr"},
                                           {"syscw", "io.syscw"},
                                           {"read_bytes", "io.read_bytes"},
                                           {"write_bytes", "io.write_bytes"}}};

class ProcIo final : public Sampler {
 public:
  explicit ProcIo(const SampleContext& context) : host_(context.host) {
    if (host_.live() && !host_.exists("/proc/self/io")) {
      throw Error(Code::kUnsupported,
                  "this kernel does not count the IO of processes (CONFIG_TASK_IO_ACCOUNTING)");
    }
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    table_.visit(
        processes, [&](const JobProcess& process, const std::string& subject, State& state) {
          if (state.refused && ++state.ticks_since_refused % kAskAgain != 0) return;
          if (state.path.empty()) state.path = fmt::format("/proc/{}/io", process.pid);
          errno = 0;
          const auto text = state.file.read(host_, state.path, table_.few(), buffer_);
          if (!text) {
            // Permission comes back only when the process runs another program or changes its user:
            // seldom worth asking.
            if (errno == EACCES || errno == EPERM) {
              if (!state.refused) ++refused_;
              state.refused = true;
            }
            return;
          }
          for (std::size_t i = 0; i < kFields.size(); ++i) {
            const auto value = keyed(*text, kFields[i].key);
            if (!value) continue;
            sink.counter(subject, kFields[i].metric,
                         state.counters[i].update(*value, Rising::Fall::kNoise), state.path);
          }
        });
  }

  std::string remark() const override {
    if (refused_ == 0) return {};
    return fmt::format("not permitted for {} processes of other users: run as root to see them",
                       refused_);
  }

 private:
  static constexpr int kAskAgain = 20;

  struct State {
    std::string path;
    ProcessFile file;
    bool refused = false;
    int ticks_since_refused = 0;
    std::array<Rising, kFields.size()> counters;
  };

  const os::HostRoot& host_;
  PerProcess<State> table_;
  std::string buffer_;
  std::int64_t refused_ = 0;
};

}  // namespace

extern const SamplerPart kProcIo = {
    .name = "proc.io",
    .what = "bytes and calls that each process read and wrote, and what of it reached storage",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<ProcIo>(context);
    },
};

}  // namespace bedplate::probe
