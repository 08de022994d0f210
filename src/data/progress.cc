#include "data/progress.h"

#include "base/error.h"

namespace bedplate::data {
namespace {

constexpr Nanos kBetween = 100 * kMillisecond;

}  // namespace

Progress::Progress(const Watch& watch, std::string_view phase, std::string_view unit,
                   std::int64_t of)
    : watch_(watch), phase_(phase), unit_(unit), of_(of), begin_(real_clock().now()) {}

void Progress::add(std::int64_t done, std::int64_t bytes) {
  done_ += done;
  bytes_ += bytes;
  if (watch_.stopped()) throw Error(Code::kUnavailable, "{} was stopped", phase_);
  if (!watch_.show) return;
  const Nanos now = real_clock().now();
  Nanos shown = shown_.load();
  if (now - shown >= kBetween && shown_.compare_exchange_strong(shown, now)) show();
}

void Progress::show() {
  if (!watch_.show) return;
  const std::lock_guard lock(mutex_);
  watch_.show({phase_, done_.load(), of_, unit_, bytes_.load(), real_clock().now() - begin_});
}

}  // namespace bedplate::data
