// The busiest threads of the job one by one: time run and time waited for a processor, from
// /proc/PID/task/TID/schedstat.
//
// At most kTracked threads are written at a time: those that ran most since they were last read,
// with some favour for those already chosen, so that the choice does not flicker. A thread that
// runs less than 1 % of a processor is not written. The name of each written thread is a note
// ("thread_name": "TID NAME").
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "probe/internal/per_process.h"
#include "probe/internal/sampling.h"
#include "probe/internal/thread_folder.h"

namespace bedplate::probe {
namespace {

constexpr std::size_t kTracked = 64;
constexpr std::size_t kReadAtATime =
    256;  // threads read in one call; of a job with more, a part each time
constexpr std::size_t kEverWritten = 512;  // series of one run
constexpr double kLeastShare = 0.01;       // of a processor
constexpr double kFavour = 1.5;            // for a thread that is tracked already

class ThreadCpu final : public Sampler {
 public:
  explicit ThreadCpu(const SampleContext& context) : host_(context.host) {
    if (host_.live() && !host_.exists("/proc/self/schedstat")) {
      throw Error(Code::kUnsupported,
                  "this kernel keeps no /proc/PID/schedstat (CONFIG_SCHED_INFO)");
    }
  }

  void sample(std::span<const JobProcess> processes, SampleSink& sink) override {
    ++call_;
    std::size_t reads = 0;
    for (std::size_t i = 0; i < processes.size() && reads < kReadAtATime; ++i) {
      const JobProcess& process = processes[(next_ + i) % processes.size()];
      reads += scan(process.pid, kReadAtATime - reads, sink.now());
      scanned_ = i + 1;
    }
    next_ = processes.empty() ? 0 : (next_ + scanned_) % processes.size();
    for (const JobProcess& process : processes) alive_.push_back(process.pid);
    std::sort(alive_.begin(), alive_.end());
    std::erase_if(threads_, [this](const auto& item) {
      return item.second.gone ||
             !std::binary_search(alive_.begin(), alive_.end(), item.first.first);
    });
    alive_.clear();
    choose();
    write(sink);
  }

  std::string remark() const override {
    if (ever_ < kEverWritten) return {};
    return fmt::format("only the first {} busy threads of the run are kept one by one",
                       kEverWritten);
  }

 private:
  struct Thread {
    std::string subject, source;
    SchedStat last;
    Nanos read_at = 0;
    double share = 0;  // of a processor, over its last interval
    int read_in_call = 0;
    bool based = false;
    bool tracked = false;
    bool written = false;
    bool gone = false;
  };
  using Key = std::pair<int, int>;  // process, thread

  // Reads the threads of one process, `most` of them, the next ones in turn; returns how many.
  std::size_t scan(int pid, std::size_t most, Nanos now) {
    const ThreadFolder folder(host_, pid);
    const std::vector<int>& tids = folder.threads();
    for (auto it = threads_.lower_bound({pid, 0}); it != threads_.end() && it->first.first == pid;
         ++it) {
      it->second.gone = !std::binary_search(tids.begin(), tids.end(), it->first.second);
    }
    const std::size_t count = std::min(most, tids.size());
    for (std::size_t i = 0; i < count; ++i) {
      const int tid = tids[(static_cast<std::size_t>(call_) * most + i) % tids.size()];
      const auto text = folder.read(tid, "schedstat", buffer_);
      const auto stat = text ? parse_schedstat(*text) : std::nullopt;
      if (stat) update(threads_[{pid, tid}], *stat, now);
    }
    return count;
  }

  void update(Thread& thread, const SchedStat& stat, Nanos now) {
    // A thread seen for the first time has no interval yet.
    if (thread.based && now > thread.read_at) {
      thread.share = static_cast<double>(std::max<Nanos>(0, stat.run - thread.last.run)) /
                     static_cast<double>(now - thread.read_at);
    }
    thread.last.run = std::max(thread.last.run, stat.run);
    thread.last.run_delay = std::max(thread.last.run_delay, stat.run_delay);
    thread.read_at = now;
    thread.read_in_call = call_;
    thread.based = true;
  }

  void choose() {
    std::vector<std::pair<double, Thread*>> busy;
    for (auto& [key, thread] : threads_) {
      const double rank = thread.share * (thread.tracked ? kFavour : 1);
      if (rank >= kLeastShare) busy.emplace_back(rank, &thread);
      thread.tracked = false;
    }
    const std::size_t keep = std::min(kTracked, busy.size());
    std::partial_sort(busy.begin(), busy.begin() + static_cast<std::ptrdiff_t>(keep), busy.end(),
                      [](const auto& a, const auto& b) { return a.first > b.first; });
    for (std::size_t i = 0; i < keep; ++i) busy[i].second->tracked = true;
  }

  void write(SampleSink& sink) {
    for (auto& [key, thread] : threads_) {
      if (!thread.tracked) continue;
      if (!thread.written) {
        if (ever_ >= kEverWritten) continue;
        ++ever_;
        thread.written = true;
        thread.subject = fmt::format("thread/{}/{}", key.first, key.second);
        thread.source = fmt::format("/proc/{}/task/{}/schedstat", key.first, key.second);
        if (const auto name =
                host_.read(fmt::format("/proc/{}/task/{}/comm", key.first, key.second)))
          sink.note(key.first, "thread_name", fmt::format("{} {}", key.second, trim(*name)));
      }
      if (thread.read_in_call != call_) {
        const auto text = host_.read(thread.source);
        const auto stat = text ? parse_schedstat(*text) : std::nullopt;
        if (!stat) continue;
        update(thread, *stat, sink.now());
      }
      sink.counter(thread.subject, "cpu.run_ns", thread.last.run, thread.source);
      sink.counter(thread.subject, "cpu.run_delay_ns", thread.last.run_delay, thread.source);
    }
  }

  const os::HostRoot& host_;
  std::map<Key, Thread> threads_;
  std::vector<int> alive_;
  std::string buffer_;
  std::size_t next_ = 0;
  std::size_t scanned_ = 0;
  std::size_t ever_ = 0;
  int call_ = 0;
};

}  // namespace

extern const SamplerPart kThreadCpu = {
    .name = "thread.cpu",
    .what = "time that the busiest threads ran and waited for a processor, one by one",
    .every = 4,
    .open = [](const SampleContext& context) -> std::unique_ptr<Sampler> {
      return std::make_unique<ThreadCpu>(context);
    },
};

}  // namespace bedplate::probe
