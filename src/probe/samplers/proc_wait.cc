// What the main thread of each process is blocked on, by samples: the kernel function that it
// sleeps in (/proc/PID/wchan).
//
// A sample a tick is coarse: these counts say what a process waits for, not for how long. poll,
// pipes and timers are "other": from outside nobody can tell what they wait for.
#include <array>
#include <string>

#include "base/error.h"
#include "probe/internal/per_process.h"
#include "probe/internal/sampling.h"

namespace bedplate::probe {
namespace {

enum Wait { kDisk, kNet, kFutex, kOther, kWaits };
constexpr std::array<std::string_view, kWaits> kMetrics = {
    "waits.disk_samples", "waits.net_samples", "waits.futex_samples", "waits.other_samples"};

struct Prefix {
  std::string_view text;
  Wait wait;
};
// Kernel functions by how their names begin. "disk" is everything behind a file system: block
// devices, journals, NFS, FUSE.
constexpr Prefix kPrefixes[] = {
    {"io_schedule", kDisk},
    {"folio_wait", kDisk},
    {"wait_on_page", kDisk},
    {"__wait_on_buffer", kDisk},
    {"wait_on_buffer", kDisk},
    {"blk_", kDisk},
    {"bio_", kDisk},
    {"__bio", kDisk},
    {"submit_bio_wait", kDisk},
    {"jbd2_", kDisk},
    {"ext4_", kDisk},
    {"xfs_", kDisk},
    {"xlog_", kDisk},
    {"btrfs_", kDisk},
    {"f2fs_", kDisk},
    {"iomap_", kDisk},
    {"dio_", kDisk},
    {"__iomap_dio", kDisk},
    {"balance_dirty", kDisk},
    {"filemap_", kDisk},
    {"wb_wait", kDisk},
    {"wbt_wait", kDisk},
    {"rq_qos_wait", kDisk},
    {"request_wait_answer", kDisk},
    {"fuse_", kDisk},
    {"nfs", kDisk},
    {"rpc_", kDisk},
    {"ceph_", kDisk},
    {"cl_sync_io_wait", kDisk},
    {"ll_", kDisk},
    {"wait_transaction_locked", kDisk},
    {"sk_", kNet},
    {"__sk_", kNet},
    {"tcp_", kNet},
    {"inet_", kNet},
    {"unix_stream", kNet},
    {"unix_wait", kNet},
    {"skb_", kNet},
    {"__skb_", kNet},
    {"udp_", kNet},
    {"wait_for_connect", kNet},
    {"futex", kFutex},
    {"__futex", kFutex},
};

Wait classify(std::string_view channel) {
  for (const Prefix& prefix : kPrefixes) {
    if (channel.starts_with(prefix.text)) return prefix.wait;
  }
  return kOther;
}

class ProcWait final : public Sampler {
 public:
  explicit ProcWait(const SampleContext& context) : host_(context.host) {
    if (host_.live() && !host_.exists("/proc/self/wchan")) {
      throw Error(Code::kUnsupported,
                  "this kernel does not name what a process sleeps in (no /proc/PID/wchan)");
    }
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    table_.visit(processes,
                 [&](const JobProcess& process, const std::string& subject, State& state) {
                   if (state.path.empty()) state.path = fmt::format("/proc/{}/wchan", process.pid);
                   const auto text = state.file.read(host_, state.path, table_.few(), buffer_);
                   if (!text) return;
                   const std::string_view channel = Words(*text).next();
                   // "0": it runs, or the kernel will not say to this user.
                   if (channel.empty() || channel == "0") {
                     ++unnamed_;
                   } else {
                     ++named_;
                     ++state.samples[classify(channel)];
                   }
                   if (named_ == 0) return;  // until one was named, 0 would claim what is not known
                   for (int i = 0; i < kWaits; ++i)
                     sink.counter(subject, kMetrics[i], state.samples[i], state.path);
                 });
  }

  std::string remark() const override {
    constexpr std::int64_t kEnough = 20;
    if (named_ > 0 || unnamed_ < kEnough) return {};
    return "no process was ever seen asleep: they ran all the time, or this user may not see where "
           "they sleep (run as root)";
  }

 private:
  struct State {
    std::string path;
    ProcessFile file;
    std::array<std::int64_t, kWaits> samples{};
  };

  const os::HostRoot& host_;
  PerProcess<State> table_;
  std::string buffer_;
  std::int64_t named_ = 0;
  std::int64_t unnamed_ = 0;
};

}  // namespace

extern const SamplerPart kProcWait = {
    .name = "proc.wait",
    .what =
        "what the main thread of each process sleeps in: storage, network, a lock, something else",
    .every = 1,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<ProcWait>(context);
    },
};

}  // namespace bedplate::probe
