// What every sampler needs to turn the kernel's text into numbers that never wrap and never go
// backward.
//
//   for (Lines lines(text); auto line = lines.next();) {
//     Words words(*line);
//     const std::string_view name = words.next();
//     const auto ticks = natural(words.next());     // nullopt for words, negative numbers and 2^64
//     …
//   }
//
// Nothing here allocates: a tick walks some hundred files. All views lie in the text that was
// given. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/units.h"
#include "os/host_root.h"
#include "probe/sampler.h"

namespace bedplate::probe {

// The whole of `word` as a number of at least 0; nullopt for anything else: words, signs, what does
// not fit into int64.
std::optional<std::int64_t> natural(std::string_view word);

// value × factor; nullopt when there is no value or the product does not fit.
std::optional<std::int64_t> times(std::optional<std::int64_t> value, std::int64_t factor);

// a + b; nullopt when one is missing or the sum does not fit.
std::optional<std::int64_t> sum(std::optional<std::int64_t> a, std::optional<std::int64_t> b);

Nanos clock_tick();        // the length of USER_HZ's tick, in which /proc counts processor time
std::int64_t page_size();  // bytes

// The words between blanks; an empty view after the last one.
class Words {
 public:
  explicit Words(std::string_view line) : rest_(line) {}
  std::string_view next();
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

class Lines {
 public:
  explicit Lines(std::string_view text) : rest_(text) {}
  std::optional<std::string_view> next();

 private:
  std::string_view rest_;
};

// The number after `key` in lines "key 42" or "key: 42 kB"; nullopt when the key or a number is not
// there.
std::optional<std::int64_t> keyed(std::string_view text, std::string_view key);

// A kernel counter as one that only grows.
class Rising {
 public:
  // What it means when the kernel's value falls.
  enum class Fall {
    kNoise,     // it wobbles (idle time, sums taken while threads end): the highest value holds
    kReplaced,  // another device or group answers now: counting goes on from its value
    kWraps32,   // the kernel prints 32 bits of it: a fall from the top quarter to the bottom one is
                // a wrap, else kReplaced
  };

  std::int64_t update(std::int64_t raw, Fall fall);
  std::int64_t value() const { return total_; }
  void rebase() {
    based_ = false;
  }  // the next value is of another source: it only sets the new base

 private:
  std::int64_t total_ = 0;
  std::int64_t last_ = 0;
  bool started_ = false;
  bool based_ = false;
};

// A system-wide file that is read each tick through one descriptor. Throws at construction, when
// `needed` and it is absent, Error{kUnsupported | kPermission} with `absent` as the reason.
class TickFile {
 public:
  TickFile() = default;
  TickFile(const os::HostRoot& host, std::string path)
      : path_(std::move(path)), fd_(host.open(path_)) {}

  explicit operator bool() const { return static_cast<bool>(fd_); }
  const std::string& path() const { return path_; }
  std::optional<std::string_view> read() {
    return fd_ ? os::reread(fd_.get(), buffer_) : std::nullopt;
  }

 private:
  std::string path_;
  os::UniqueFd fd_;
  std::string buffer_;
};

// A TickFile that must be readable now; otherwise throws Error{kPermission} when it exists,
// Error{kUnsupported} with the reason `absent` when it does not.
TickFile required(const os::HostRoot& host, std::string path, std::string_view absent);

}  // namespace bedplate::probe
