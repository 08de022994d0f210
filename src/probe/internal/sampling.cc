#include "probe/internal/sampling.h"

#include <unistd.h>

#include <charconv>
#include <limits>

#include "base/error.h"

namespace bedplate::probe {
namespace {

constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

std::int64_t added(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::int64_t>::max() : sum;
}

}  // namespace

std::optional<std::int64_t> natural(std::string_view word) {
  std::int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [at, error] = std::from_chars(word.data(), end, value);
  if (word.empty() || error != std::errc() || at != end || value < 0) return std::nullopt;
  return value;
}

std::optional<std::int64_t> times(std::optional<std::int64_t> value, std::int64_t factor) {
  std::int64_t product = 0;
  if (!value || __builtin_mul_overflow(*value, factor, &product)) return std::nullopt;
  return product;
}

std::optional<std::int64_t> sum(std::optional<std::int64_t> a, std::optional<std::int64_t> b) {
  std::int64_t total = 0;
  if (!a || !b || __builtin_add_overflow(*a, *b, &total)) return std::nullopt;
  return total;
}

Nanos clock_tick() {
  static const Nanos tick = kSecond / ::sysconf(_SC_CLK_TCK);
  return tick;
}

std::int64_t page_size() {
  static const std::int64_t size = ::sysconf(_SC_PAGESIZE);
  return size;
}

std::string_view Words::next() {
  std::size_t from = 0;
  while (from < rest_.size() && is_blank(rest_[from])) ++from;
  std::size_t to = from;
  while (to < rest_.size() && !is_blank(rest_[to])) ++to;
  const std::string_view word = rest_.substr(from, to - from);
  rest_.remove_prefix(to);
  return word;
}

std::optional<std::string_view> Lines::next() {
  if (rest_.empty()) return std::nullopt;
  const std::size_t end = rest_.find('\n');
  const std::string_view line = rest_.substr(0, end);
  rest_.remove_prefix(end == std::string_view::npos ? rest_.size() : end + 1);
  return line;
}

std::optional<std::int64_t> keyed(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    if (at != 0 && text[at - 1] != '\n') continue;
    std::string_view rest = text.substr(at + key.size());
    if (!rest.empty() && rest.front() == ':') rest.remove_prefix(1);
    if (rest.empty() || !is_blank(rest.front())) continue;
    return natural(Words(rest.substr(0, rest.find('\n'))).next());
  }
  return std::nullopt;
}

std::int64_t Rising::update(std::int64_t raw, Fall fall) {
  constexpr std::int64_t kWrap = std::int64_t{1} << 32;
  if (!started_) {
    total_ = raw;  // the first value is kept as the kernel has it
    started_ = true;
  } else if (based_) {
    if (raw >= last_) {
      total_ = added(total_, raw - last_);
    } else if (fall == Fall::kNoise) {
      return total_;
    } else if (fall == Fall::kWraps32 && last_ < kWrap && last_ >= kWrap / 4 * 3 &&
               raw < kWrap / 4) {
      total_ = added(total_, raw + kWrap - last_);
    }
  }
  last_ = raw;
  based_ = true;
  return total_;
}

TickFile required(const os::HostRoot& host, std::string path, std::string_view absent) {
  TickFile file(host, std::move(path));
  if (file.read()) return file;
  if (!host.exists(file.path())) throw Error(Code::kUnsupported, "{}", absent);
  if (!host.readable(file.path())) {
    throw Error(Code::kPermission, "not permitted: {} needs root", file.path());
  }
  throw Error(Code::kUnsupported, "{} cannot be read ({})", file.path(), absent);
}

}  // namespace bedplate::probe
