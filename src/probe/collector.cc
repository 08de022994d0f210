#include "probe/collector.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/patient_mutex.h"
#include "probe/internal/recorder.h"

namespace bedplate::probe {
namespace {

constexpr double kBusyRing = 0.25;  // fuller than this at a drain: drain more often
constexpr std::chrono::milliseconds kBusyDrain{100};
constexpr std::chrono::seconds kCallPatience{1};

// A write beyond the file size limit (ulimit -f) raises SIGXFSZ, which would end the program for a
// failure that is told as an error as well. The recorder's thread blocks all signals; this is for
// its callers.
class FileSizeSignalHeld {
 public:
  FileSizeSignalHeld() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  FileSizeSignalHeld(const FileSizeSignalHeld&) = delete;
  FileSizeSignalHeld& operator=(const FileSizeSignalHeld&) = delete;
  ~FileSizeSignalHeld() {
    constexpr timespec kNow{};
    while (sigtimedwait(&signal_, nullptr, &kNow) > 0) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_;
  sigset_t before_;
};

}  // namespace

// A step that is under way is not preempted when a sample is due: a sample may be a few
// milliseconds late, since each carries its own time. It needs no permission; where it fails the
// thread stays as it was.
void give_way() {
  constexpr sched_param kNone{};
  sched_setscheduler(0, SCHED_BATCH, &kNone);
}

// Shared by the caller and the recorder's thread. One mutex guards all of it and is held for a
// tick, which takes milliseconds; a tick that hangs in the kernel holds it for ever, so callers
// give up after kCallPatience.
class Collector::Impl {
 public:
  explicit Impl(CollectorOptions options)
      : options_(with_defaults(std::move(options))), recorder_(options_) {
    ring_path_ = recorder_.ring().path();
    started_ = recorder_.started();
    period_ =
        std::chrono::nanoseconds(static_cast<Nanos>(1e9 / std::clamp(options_.hz, 0.1, 20.0)));
  }

  void run(int root_pid) {
    pthread_setname_np(pthread_self(), "bedplate-record");
    give_way();
    guarded([&] { recorder_.begin(root_pid); });
    auto next = std::chrono::steady_clock::now() + period_;
    for (;;) {
      auto wake = next;
      {
        const std::lock_guard lock(mutex_);
        if (recording_ && recorder_.ring().fullness() > kBusyRing)
          wake = std::min(wake, std::chrono::steady_clock::now() + kBusyDrain);
      }
      {
        std::unique_lock lock(control_);
        if (wake_.wait_until(lock, wake, [this] { return stopping_; })) break;
      }
      if (std::chrono::steady_clock::now() < next) {
        guarded([&] { recorder_.drain(); });
        continue;
      }
      guarded([&] { recorder_.sample(); });
      // A tick that came late is not made up for: two samples at one time tell nothing.
      next = std::max(next + period_, std::chrono::steady_clock::now() + period_ / 2);
    }
    guarded([&] { recorder_.end(); });
    const std::lock_guard lock(control_);
    finished_ = true;
    wake_.notify_all();
  }

  // Runs `work` unless the recording has ended; what it throws ends the recording.
  template <typename Work>
  void guarded(Work&& work) {
    const FileSizeSignalHeld held;
    const std::unique_lock lock(mutex_, kCallPatience);
    if (!lock || !recording_) return;
    try {
      work();
      status_ = recorder_.status();
    } catch (const std::exception& error) {
      recording_ = false;
      const std::lock_guard control(control_);
      remarks_.push_back(
          fmt::format("the recording stopped after {:.1f} s of the run: {}; the job went on",
                      seconds(recorder_.status().elapsed), error.what()));
    }
    const std::lock_guard control(control_);
    shown_ = status_;
    shown_.recording = recording_;
  }

  void stop(Nanos within) {
    {
      std::unique_lock lock(control_);
      if (stopped_) return;
      stopped_ = true;
      stopping_ = true;
      wake_.notify_all();
      if (!thread_.joinable()) return;
      if (!wake_.wait_for(lock, std::chrono::nanoseconds(within), [this] { return finished_; })) {
        remarks_.push_back(
            "the recorder did not finish in time: a file of /proc or of the run folder does not "
            "answer; the last samples are missing");
        thread_.detach();
        return;
      }
    }
    thread_.join();
  }

  static CollectorOptions with_defaults(CollectorOptions options) {
    static const os::HostRoot live;
    static const os::CgroupTree tree{live};
    if (options.host == nullptr) options.host = &live;
    if (options.cgroups == nullptr) options.cgroups = &tree;
    if (options.clock == nullptr) options.clock = &real_clock();
    return options;
  }

  const CollectorOptions options_;
  PatientMutex mutex_;  // the recorder
  Recorder recorder_;
  bool recording_ = true;
  CollectorStatus status_;
  std::string ring_path_;
  Nanos started_ = 0;
  std::chrono::nanoseconds period_{};

  mutable std::mutex control_;  // what follows; never held while the recorder works
  std::condition_variable wake_;
  bool stopping_ = false;
  bool finished_ = false;
  bool stopped_ = false;
  CollectorStatus shown_;
  std::vector<std::string> remarks_;
  std::thread thread_;
};

Collector::Collector(CollectorOptions options) {
  const FileSizeSignalHeld held;
  impl_ = std::make_shared<Impl>(std::move(options));
}

Collector::~Collector() { stop(kSecond); }

std::string Collector::ring_path() const { return impl_->ring_path_; }

Nanos Collector::started() const { return impl_->started_; }

void Collector::start(pid_t root_pid) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  impl_->thread_ = std::thread([impl = impl_, root_pid] { impl->run(root_pid); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Collector::process_ended(pid_t pid, int wait_status) {
  impl_->guarded([&] { impl_->recorder_.process_ended(pid, wait_status); });
}

void Collector::meta(std::string_view key, std::string_view value) {
  impl_->guarded([&] { impl_->recorder_.meta(key, value); });
}

void Collector::note(int pid, std::string_view key, std::string_view value) {
  impl_->guarded([&] { impl_->recorder_.note(pid, key, value); });
}

CollectorStatus Collector::status() const {
  const std::lock_guard lock(impl_->control_);
  return impl_->shown_;
}

std::vector<Collector::Inside> Collector::inside() const {
  const std::unique_lock lock(impl_->mutex_, kCallPatience);
  if (!lock) return {};
  return impl_->recorder_.inside();
}

void Collector::stop(Nanos within) { impl_->stop(within); }

std::vector<std::string> Collector::remarks() const {
  const std::lock_guard lock(impl_->control_);
  return impl_->remarks_;
}

}  // namespace bedplate::probe
