#include "data/loader.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "data/internal/batch_maker.h"
#include "data/internal/next_use.h"

namespace bedplate::data {
namespace {

constexpr Nanos kForever = INT64_MAX / 4;
constexpr Nanos kTogether = kMillisecond;  // that a batch lies there at most for others to come

LoaderOptions checked(LoaderOptions options) {
  const auto refuse = [](std::string_view what, std::int64_t value, std::string_view must) {
    throw Error(Code::kInvalid, "{} is {}; it must be {}", what, value, must);
  };
  if (options.threads < 1 || options.threads > 256) refuse("threads", options.threads, "1 to 256");
  if (options.prefetch_bytes < 0) refuse("prefetch_bytes", options.prefetch_bytes, "0 or more");
  if (options.most_skipped < 0) refuse("most_skipped", options.most_skipped, "0 or more");
  if (options.refetches < 0) refuse("refetches", options.refetches, "0 or more");
  return options;
}

}  // namespace

class Loader::Engine {
 public:
  Engine(std::shared_ptr<const Source> source, LoaderOptions options);
  ~Engine();

  void begin(const LoaderState& state);
  void begin_with(std::vector<std::int64_t> samples, const LoaderState& state);
  std::optional<std::shared_ptr<const Batch>> next_within(Nanos wait);
  LoaderState state() const;
  std::int64_t steps_left() const;
  LoaderStats stats() const;
  std::int64_t ahead() const { return ahead_; }
  std::int64_t slabs() const { return pool_->made(); }
  const WindowMemory* window() const { return shared_.window(); }
  bool of_this_process() const { return process_ == ::getpid(); }
  bool stop(Nanos patience);
  bool in_own_thread() const;
  void abandon() {
    for (std::thread& thread : threads_) thread.detach();
  }

 private:
  // An epoch from some position on. Threads hold on to theirs until their batch is done.
  struct Run {
    Source::Epoch epoch;
    std::int64_t number = 0;
    std::int64_t begin = 0;  // positions consumed before it
    std::int64_t steps = 0;
    std::int64_t taken = 0;      // steps that threads have begun
    std::int64_t delivered = 0;  // steps that the consumer has
    struct Made {
      std::shared_ptr<const Batch> batch;
      std::exception_ptr failure;
    };
    std::map<std::int64_t, Made> made;
    bool failed = false;
    bool wanted = false;  // somebody has asked for a batch: until then begin() may be called again
  };

  void check(const LoaderState& state) const;
  void start(std::shared_ptr<Run> run);
  ShareOptions share_options(std::int64_t samples, std::int64_t consumed) const;
  Share share_of_step(const Run& run, std::int64_t step) const;
  std::int64_t consumed(const Run& run) const;
  bool worth_waking(const Run& run, Nanos of_a_batch) const;
  void add_thread();
  void work();

  LoaderShared shared_;
  const std::int64_t whole_step_;  // positions that a full step of all ranks takes
  std::int64_t ahead_ = 1;
  std::unique_ptr<SlabPool> pool_;
  std::shared_ptr<LoaderNextUse> next_use_;  // shared with the cache; nullptr without one
  const pid_t process_ = ::getpid();

  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::condition_variable ready_;
  std::shared_ptr<Run> run_;  // shared with the threads that make its batches
  bool stopping_ = false;
  std::int64_t batches_ = 0;
  std::int64_t wait_ns_ = 0;
  std::int64_t idle_ns_ = 0;
  std::condition_variable ended_;
  int alive_ = 0;  // threads
  // Batches that are made ahead now: more, up to ahead_, each time the consumer had to wait. Few
  // that are used again and again stay in the processor's caches.
  std::int64_t reach_ = 1;
  bool wake_for_each_ = false;  // the consumer waits for longer than several batches are worth
  std::vector<std::thread> threads_;
};

Loader::Engine::Engine(std::shared_ptr<const Source> source, LoaderOptions options)
    : shared_(std::move(source), checked(std::move(options))),
      whole_step_(shared_.options().world_size * shared_.options().batch_size) {
  const LoaderOptions& chosen = shared_.options();
  share_of(share_options(shared_.source().epoch_samples(), 0));  // refuses what contradicts itself
  const std::size_t slab = shared_.collator().slab_bytes(chosen.batch_size);
  // Columns of variable length, and what a caller decodes, are taken to be as large as they lie in
  // shards.
  const auto batch_bytes =
      std::max<std::int64_t>({1, static_cast<std::int64_t>(slab),
                              static_cast<std::int64_t>(shared_.source().mean_sample_bytes() *
                                                        static_cast<double>(chosen.batch_size))});
  ahead_ = std::max<std::int64_t>(1, chosen.prefetch_bytes / batch_bytes);
  const auto threads = std::min<std::int64_t>(chosen.threads, ahead_);
  reach_ = std::min(ahead_, threads + 1);
  pool_ = std::make_unique<SlabPool>(slab, static_cast<std::size_t>(ahead_ + 2));
  const auto& cache =
      shared_.window() ? shared_.window()->cache() : shared_.source().dataset(0).cache();
  if (cache && !shared_.source().mixed()) {
    next_use_ = std::make_shared<LoaderNextUse>(shared_.shared_source());
    cache->follow(next_use_);
  }
  begin({.fingerprint = shared_.source().fingerprint()});
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  // Signals are the caller's threads', but for those that a thread raises by what it does.
  for (const int own : {SIGBUS, SIGSEGV, SIGFPE, SIGILL}) ::sigdelset(&all, own);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    for (std::int64_t i = 0; i < threads; ++i) add_thread();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    stop(kForever);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Loader::Engine::add_thread() {
  threads_.emplace_back([this] {
    work();
    const std::lock_guard lock(mutex_);
    --alive_;
    ended_.notify_all();
  });
  const std::lock_guard lock(mutex_);
  ++alive_;
  ::pthread_setname_np(threads_.back().native_handle(), "bedplate-load");
}

Loader::Engine::~Engine() { stop(kForever); }

// Afterwards no thread uses this any more; or it returned false, and this must live on.
bool Loader::Engine::stop(Nanos patience) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  room_.notify_all();
  if (!ended_.wait_for(lock, std::chrono::nanoseconds(patience), [&] { return alive_ == 0; }))
    return false;
  lock.unlock();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return true;
}

bool Loader::Engine::in_own_thread() const {
  return std::ranges::any_of(threads_, [](const std::thread& thread) {
    return thread.get_id() == std::this_thread::get_id();
  });
}

ShareOptions Loader::Engine::share_options(std::int64_t samples, std::int64_t consumed) const {
  const LoaderOptions& options = shared_.options();
  return {.samples = samples,
          .consumed = consumed,
          .world_size = options.world_size,
          .rank = options.rank,
          .batch_size = options.batch_size,
          .tail = options.tail};
}

Share Loader::Engine::share_of_step(const Run& run, std::int64_t step) const {
  return share_of(share_options(run.epoch.samples(), run.begin + step * whole_step_));
}

void Loader::Engine::check(const LoaderState& state) const {
  if (state.fingerprint == shared_.source().fingerprint()) return;
  throw Error(
      Code::kInvalid,
      "the state is of other data, or of another seed, shuffle or mix, than this loader has: "
      "it would go on in another order");
}

void Loader::Engine::begin(const LoaderState& state) {
  check(state);
  auto run = std::make_shared<Run>();
  run->number = state.epoch;
  run->begin = state.consumed;
  if (state.consumed >= shared_.source().epoch_samples()) {
    run->number += 1;
    run->begin = 0;
  }
  run->epoch = shared_.source().epoch(run->number);
  start(std::move(run));
}

void Loader::Engine::begin_with(std::vector<std::int64_t> samples, const LoaderState& state) {
  check(state);
  auto run = std::make_shared<Run>();
  run->number = state.epoch;
  run->epoch = shared_.source().in_order(std::move(samples));
  run->begin = std::min(state.consumed, run->epoch.samples());
  start(std::move(run));
}

void Loader::Engine::start(std::shared_ptr<Run> run) {
  run->steps = steps_of_epoch(share_options(run->epoch.samples() - run->begin, 0));
  {
    const std::lock_guard lock(mutex_);
    run_.swap(run);  // the old one dies outside of the lock
  }
  room_.notify_all();
}

void Loader::Engine::work() {
  BatchMaker maker(shared_);
  std::unique_lock lock(mutex_);
  for (;;) {
    const Nanos began = real_clock().now();
    room_.wait(lock, [&] {
      return stopping_ || (run_->wanted && !run_->failed && run_->taken < run_->steps &&
                           run_->taken < run_->delivered + reach_);
    });
    idle_ns_ += real_clock().now() - began;
    if (stopping_) return;
    std::shared_ptr<Run> run = run_;
    const std::int64_t step = run->taken++;
    // To the cache a batch is behind us once it is being read.
    if (next_use_) next_use_->at(run->number, run->begin + (step + 1) * whole_step_ - 1);
    lock.unlock();
    const Nanos started = real_clock().now();
    Run::Made made;
    try {
      made.batch = maker.make(run->epoch, run->number, share_of_step(*run, step), pool_->take());
    } catch (...) {
      made.failure = std::current_exception();
    }
    lock.lock();
    if (made.failure) run->failed = true;  // what comes after it will not be asked for
    run->made.emplace(step, std::move(made));
    const bool awaited = run == run_ && worth_waking(*run, real_clock().now() - started);
    // A run that was given up may die here with batches that a caller's decode function made: what
    // those hold may wait for locks of the caller's, so not under ours.
    lock.unlock();
    if (awaited) ready_.notify_one();
    run.reset();
    lock.lock();
  }
}

// Waking somebody costs as much as copying a few samples: where batches are made in no time, the
// consumer sleeps until several are there, or all that can come.
bool Loader::Engine::worth_waking(const Run& run, Nanos of_a_batch) const {
  if (run.failed || wake_for_each_) return true;
  const bool no_time = of_a_batch < 250 * kMicrosecond;
  const std::int64_t wanted = no_time ? std::min<std::int64_t>(4, reach_) : 1;
  const auto made = std::ssize(run.made);
  return made >= wanted || made == run.steps - run.delivered;
}

std::optional<std::shared_ptr<const Batch>> Loader::Engine::next_within(Nanos wait) {
  const Nanos began = real_clock().now();
  std::shared_ptr<Run> held;
  std::unique_lock lock(mutex_);
  held = run_;
  Run& run = *held;
  if (run.delivered == run.steps) return nullptr;
  if (!run.wanted) {
    run.wanted = true;
    room_.notify_all();
  }
  if (!run.made.contains(run.delivered) && reach_ < ahead_) {
    reach_ = std::min(ahead_, 2 * reach_);
    room_.notify_all();
  }
  const auto is_made = [&] { return run.made.contains(run.delivered); };
  bool there = ready_.wait_for(lock, std::chrono::nanoseconds(std::min(wait, kTogether)), is_made);
  if (!there && wait > kTogether) {
    wake_for_each_ = true;  // what was made in no time may be followed by what is not
    there = ready_.wait_for(lock, std::chrono::nanoseconds(wait - kTogether), is_made);
    wake_for_each_ = false;
  }
  wait_ns_ += real_clock().now() - began;
  if (!there) return std::nullopt;
  const Run::Made made = run.made.at(run.delivered);
  if (made.failure) std::rethrow_exception(made.failure);
  run.made.erase(run.delivered);
  ++run.delivered;
  ++batches_;
  // Where the consumer is the slower one, threads sleep until there is room for several batches:
  // else each batch would wake one of them.
  const bool room = run.taken - run.delivered <= reach_ - std::max<std::int64_t>(1, reach_ / 4);
  lock.unlock();
  if (room) room_.notify_one();
  return made.batch;
}

std::int64_t Loader::Engine::consumed(const Run& run) const {
  if (run.delivered == 0) return run.begin;
  if (run.delivered == run.steps) return run.epoch.samples();
  return run.begin + run.delivered * whole_step_;
}

LoaderState Loader::Engine::state() const {
  const std::lock_guard lock(mutex_);
  return {run_->number, consumed(*run_), shared_.source().fingerprint()};
}

std::int64_t Loader::Engine::steps_left() const {
  const std::lock_guard lock(mutex_);
  return run_->steps - run_->delivered;
}

LoaderStats Loader::Engine::stats() const {
  LoaderStats out;
  {
    const std::lock_guard lock(mutex_);
    out.batches = batches_;
    out.wait_ns = wait_ns_;
    out.idle_ns = idle_ns_;
  }
  out.samples = shared_.samples;
  out.bytes = shared_.bytes;
  out.make_ns = shared_.make_ns;
  out.read_ns = shared_.read_ns;
  out.check_ns = shared_.check_ns;
  out.decode_ns = shared_.decode_ns;
  out.skipped = shared_.skipped();
  out.refetched = shared_.refetched;
  out.bad = shared_.bad();
  return out;
}

Loader::Loader(std::shared_ptr<const Source> source, LoaderOptions options)
    : engine_(std::make_unique<Engine>(std::move(source), std::move(options))) {}

Loader::~Loader() { close(kForever); }

bool Loader::close(Nanos patience) {
  if (engine_ == nullptr) return true;
  // In a child its threads do not exist and its locks may be held by them.
  if (!engine_->of_this_process()) {
    static_cast<void>(engine_.release());
    return true;
  }
  if (engine_->in_own_thread()) {  // which cannot wait for itself
    std::thread([engine = std::move(engine_)]() mutable { engine.reset(); }).detach();
    return true;
  }
  if (engine_->stop(patience)) {
    engine_.reset();
    return true;
  }
  engine_->abandon();
  static_cast<void>(engine_.release());
  return false;
}

void Loader::begin(const LoaderState& state) { engine_->begin(state); }

void Loader::begin_with(std::vector<std::int64_t> samples, const LoaderState& state) {
  engine_->begin_with(std::move(samples), state);
}

std::optional<std::shared_ptr<const Batch>> Loader::next_within(Nanos wait) {
  return engine_->next_within(wait);
}

std::shared_ptr<const Batch> Loader::next() {
  for (;;) {
    if (auto batch = next_within(3600 * kSecond)) return std::move(*batch);
  }
}

LoaderState Loader::state() const { return engine_->state(); }
std::int64_t Loader::steps_left() const { return engine_->steps_left(); }
LoaderStats Loader::stats() const { return engine_->stats(); }
std::int64_t Loader::ahead() const { return engine_->ahead(); }
std::int64_t Loader::slabs() const { return engine_->slabs(); }
std::shared_ptr<const store::Cache> Loader::window() const {
  return engine_->window() == nullptr ? nullptr : engine_->window()->cache();
}

}  // namespace bedplate::data
