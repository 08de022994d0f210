#include "data/dataset.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "data/permutation.h"

namespace bedplate::data {
namespace {

constexpr std::size_t kMostNames = 10'000'000;

// --- braces ---------------------------------------------------------------------------------

// "3..11" or "08..11" → its numbers; nullopt when the text is no range.
std::optional<std::vector<std::string>> range_of(std::string_view inside) {
  const std::size_t dots = inside.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const std::string_view low = inside.substr(0, dots);
  const std::string_view high = inside.substr(dots + 2);
  std::int64_t from = 0;
  std::int64_t to = 0;
  const auto number = [](std::string_view text, std::int64_t& into) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
    return error == std::errc() && end == text.data() + text.size() && into >= 0;
  };
  if (!number(low, from) || !number(high, to)) return std::nullopt;
  if (to < from) throw Error(Code::kInvalid, "the range {{{}}} runs backwards", to_utf8(inside));
  if (static_cast<std::uint64_t>(to - from) >= kMostNames)
    throw Error(Code::kInvalid, "the range {{{}}} makes more than {} names", to_utf8(inside),
                kMostNames);
  const bool padded = low.size() > 1 && low.front() == '0';
  std::vector<std::string> out;
  for (std::int64_t n = from; n <= to; ++n)
    out.push_back(padded ? fmt::format("{:0{}}", n, low.size()) : fmt::format("{}", n));
  return out;
}

struct Choice {
  std::vector<std::string> texts;  // one of them comes here
};

std::vector<Choice> choices_of(std::string_view pattern) {
  std::vector<Choice> out;
  std::string plain;
  const auto end_plain = [&] {
    if (!plain.empty()) out.push_back({{plain}});
    plain.clear();
  };
  for (std::size_t at = 0; at < pattern.size(); ++at) {
    const char c = pattern[at];
    if (c == '\\' && at + 1 < pattern.size() &&
        (pattern[at + 1] == '{' || pattern[at + 1] == '}')) {
      plain += pattern[++at];
      continue;
    }
    if (c != '{') {
      plain += c;
      continue;
    }
    const std::size_t end = pattern.find('}', at);
    if (end == std::string_view::npos)
      throw Error(Code::kInvalid, "{}: a {{ without its }}; a brace in a name is written \\{{",
                  to_utf8(pattern));
    const std::string_view inside = pattern.substr(at + 1, end - at - 1);
    if (inside.find('{') != std::string_view::npos)
      throw Error(Code::kInvalid, "{}: braces within braces are not known", to_utf8(pattern));
    end_plain();
    if (auto numbers = range_of(inside)) {
      out.push_back({std::move(*numbers)});
    } else {
      Choice choice;
      for (const std::string_view one : split(inside, ',')) choice.texts.emplace_back(one);
      out.push_back(std::move(choice));
    }
    at = end;
  }
  end_plain();
  return out;
}

// --- opening --------------------------------------------------------------------------------

struct Found {
  std::shared_ptr<store::Store> store;  // shared by the shards of one URL
  store::ObjectInfo object;
  const Format* format = nullptr;
};

class Finding {
 public:
  explicit Finding(const DatasetOptions& options)
      : options_(options),
        format_(options.format.empty() ? nullptr : &format_of_name(options.format)) {}

  void add(const std::string& pattern) {
    for (const std::string& url : expand_braces(pattern)) {
      if (url.ends_with('/')) {
        add_folder(url);
      } else {
        add_one(url);
      }
    }
  }
  std::vector<Found> take() { return std::move(found_); }

 private:
  void add_one(const std::string& url) {
    const auto place = open(url);
    const auto info = place.store->find(place.key, Deadline::after(options_.shard.timeout));
    if (!info) {
      throw Error(Code::kNotFound, "{} is not there{}", to_utf8(url),
                  url.find("://") == std::string::npos ? "; a folder's name ends in /" : "");
    }
    const Format* format = format_ ? format_ : format_of_shard(place.key);
    if (format == nullptr)
      throw Error(Code::kInvalid,
                  "{}: no format has shards of such a name; name one with format=", to_utf8(url));
    found_.push_back({place.store, *info, format});
  }

  void add_folder(const std::string& url) {
    const auto place = open(url);
    const std::size_t before = found_.size();
    const auto visit = [&](const store::ObjectInfo& info) {
      const Format* format = format_of_shard(info.key);
      if (format && (!format_ || format == format_)) found_.push_back({place.store, info, format});
    };
    place.store->list(place.key, visit, Deadline::after(options_.shard.timeout));
    if (found_.size() == before)
      throw Error(Code::kNotFound, "{} holds no shards of {}", to_utf8(url),
                  format_ ? fmt::format("format {}", format_->name) : "a format that is known");
  }

  // One store for all URLs that share everything up to the last slash.
  store::Place open(const std::string& url) {
    auto place = store::locate(url, options_.store);
    auto [at, fresh] = stores_.try_emplace(place.store->url(), place.store);
    if (fresh && options_.wrap) at->second = options_.wrap(place.store);
    place.store = at->second;
    return place;
  }

  const DatasetOptions& options_;
  const Format* format_;
  std::map<std::string, std::shared_ptr<store::Store>> stores_;
  std::vector<Found> found_;
};

// Calls `work(i)` for 0 … count-1 from several threads; throws the error of the lowest i.
template <typename Work>
void for_each_of(std::size_t count, int threads, const Work& work) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::size_t failed_at = count;
  std::exception_ptr failure;
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (i < failed_at) failure = std::current_exception();
        failed_at = std::min(failed_at, i);
        next = count;
      }
    }
  };
  std::vector<std::jthread> others;
  const auto wanted = std::min<std::size_t>(count, static_cast<std::size_t>(std::max(1, threads)));
  for (std::size_t i = 1; i < wanted; ++i) others.emplace_back(run);
  run();
  others.clear();
  if (failure) std::rethrow_exception(failure);
}

std::uint64_t hash_of(std::string_view text) {
  // Two CRCs over different text make 64 bits that are the same on every machine.
  const std::uint64_t low = crc32c(text);
  return low | static_cast<std::uint64_t>(crc32c(text, 0x9E3779B9U)) << 32;
}

}  // namespace

std::vector<std::string> expand_braces(std::string_view pattern) {
  std::vector<std::string> out = {""};
  for (const Choice& choice : choices_of(pattern)) {
    if (out.size() * choice.texts.size() > kMostNames)
      throw Error(Code::kInvalid, "{} makes more than {} names", to_utf8(pattern), kMostNames);
    std::vector<std::string> longer;
    longer.reserve(out.size() * choice.texts.size());
    for (const std::string& head : out) {
      for (const std::string& tail : choice.texts) longer.push_back(head + tail);
    }
    out = std::move(longer);
  }
  return out;
}

std::shared_ptr<const Dataset> Dataset::open(std::span<const std::string> urls,
                                             const DatasetOptions& options) {
  if (urls.empty()) throw Error(Code::kInvalid, "a data set needs the URL of at least one shard");
  Finding finding(options);
  for (const std::string& url : urls) finding.add(url);
  const std::vector<Found> found = finding.take();
  std::vector<Shard> shards(found.size());
  for_each_of(found.size(), options.open_at_once, [&](std::size_t i) {
    const Found& one = found[i];
    shards[i] = {one.store, one.format->open(one.store, one.object, options.shard)};
  });
  return std::shared_ptr<const Dataset>(new Dataset(std::move(shards)));
}

Dataset::Dataset(std::vector<Shard> shards) : shards_(std::move(shards)) {
  fingerprint_ = key_of({shards_.size()});
  store::ObjectInfo scratch;
  for (Shard& shard : shards_) {
    shard.first = samples_;
    samples_ += shard.index->samples();
    const store::ObjectInfo& object = shard.index->object(0, scratch);
    const std::size_t name = object.key.rfind('/') + 1;  // a copy elsewhere is the same data
    fingerprint_ = key_of({fingerprint_, hash_of(std::string_view(object.key).substr(name)),
                           static_cast<std::uint64_t>(object.size),
                           static_cast<std::uint64_t>(shard.index->samples())});
  }
}

Dataset::Place Dataset::place(std::int64_t sample) const {
  if (sample < 0 || sample >= samples_)
    throw Error(Code::kInvalid, "there is no sample {}; the data set has {}", sample, samples_);
  const auto behind = std::ranges::upper_bound(shards_, sample, {}, &Shard::first);
  const auto shard = static_cast<std::size_t>(behind - shards_.begin()) - 1;
  return {shard, sample - shards_[shard].first};
}

Sample Dataset::get(std::int64_t sample, Deadline deadline) const {
  const Place at = place(sample);
  const Shard& shard = shards_[at.shard];
  store::ObjectInfo scratch;
  const store::ObjectInfo& object = shard.index->object(at.sample, scratch);
  const Extent extent = shard.index->extent(at.sample);
  // A deque's elements stay where they are when the deque is moved.
  std::deque<std::string> owned;
  owned.emplace_back(static_cast<std::size_t>(extent.bytes), '\0');
  const auto bytes = std::as_writable_bytes(std::span(owned.front()));
  try {
    store::read_exactly(
        *shard.store,
        {.key = object.key, .offset = extent.offset, .into = bytes, .version = object.version},
        deadline);
    if (extent.crc && crc32c(bytes) != *extent.crc)
      throw Error(Code::kCorrupt, "the checksum of its {} bytes is wrong", extent.bytes);
    Sample out;
    shard.index->unpack(at.sample, bytes, out);
    out.raw = std::move(owned);
    return out;
  } catch (const Error& error) {
    throw Error(error.code(), "sample {} ({} of {} in {}, from byte {} on): {}", sample, at.sample,
                to_utf8(object.key), shard.store->url(), extent.offset, error.what());
  }
}

std::int64_t Dataset::memory_bytes() const {
  std::int64_t bytes = 0;
  for (const Shard& shard : shards_) bytes += shard.index->memory_bytes();
  return bytes;
}

}  // namespace bedplate::data
