#include "store/cache/internal/tiers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace bedplate::store::cache {
namespace {

constexpr Nanos kTellEach = 20 * kMillisecond;
constexpr Nanos kSaveEach = kSecond;

CacheOptions alone(const CacheOptions& options, std::filesystem::path folder, std::int64_t cap) {
  CacheOptions one = options;
  one.folder = std::move(folder);
  one.cap_bytes = cap;
  return one;
}

// /dev/shm is open to all: a folder that a stranger made there under our name is not used.
void check_memory_folder(const std::filesystem::path& folder, const std::filesystem::path& disk) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) return;
  struct stat of_disk {};
  const bool has_disk = !disk.empty() && ::stat(disk.c_str(), &of_disk) == 0;
  const bool trusted = status.st_uid == ::geteuid() || status.st_uid == 0 ||
                       (has_disk && status.st_uid == of_disk.st_uid);
  if (!S_ISDIR(status.st_mode) || !trusted)
    throw Error(Code::kPermission, "{} was made by another user; it is not used as memory",
                folder.string());
}

SharedWith sharing_of(const std::filesystem::path& folder, SharedWith otherwise) {
  struct stat status {};
  if (folder.empty() || ::stat(folder.c_str(), &status) != 0) return otherwise;
  if (status.st_mode & S_IWOTH) return SharedWith::kEveryone;
  return status.st_mode & S_IWGRP ? SharedWith::kGroup : SharedWith::kNobody;
}

}  // namespace

std::filesystem::path memory_folder(const CacheOptions& options) {
  struct stat status {};
  if (!options.folder.empty() && ::stat(options.folder.c_str(), &status) == 0)
    return fmt::format("/dev/shm/bedplate-cache-{:x}-{:x}", status.st_dev, status.st_ino);
  return fmt::format("/dev/shm/bedplate-cache-u{}", ::geteuid());
}

Tiers::Tiers(const CacheOptions& options) : options_(options) {
  if (!options.folder.empty())
    tiers_.push_back({alone(options, options.folder, options.cap_bytes), {}});
  // Its folder's name needs the other folder to be there.
  if (options.memory_bytes > 0) tiers_.push_back({alone(options, {}, options.memory_bytes), {}});
}

Tiers::~Tiers() { flush(Deadline::after(100 * kMillisecond)); }

std::shared_ptr<BlockFile> Tiers::open_tier(Tier& tier, std::int64_t block_bytes) {
  const Nanos now = real_clock().now();
  if (tier.file || now < tier.try_again) return tier.file;
  try {
    CacheOptions options = tier.options;
    const bool memory = options.folder.empty();
    if (memory && block_bytes > 0) options.block_bytes = block_bytes;
    if (memory && options.memory_name.empty()) {
      options.folder = memory_folder(options_);
      check_memory_folder(options.folder, options_.folder);
      options.shared_with = sharing_of(options_.folder, options_.shared_with);
    }
    auto bytes = options.folder.empty() ? CacheFile::in_memory(options.memory_name, options)
                                        : CacheFile::open(options.folder, options);
    auto file = std::make_shared<BlockFile>(
        std::move(bytes), options, memory ? BlockFile::Kind::kMemory : BlockFile::Kind::kDisk);
    if (block_bytes > 0 && file->block_bytes() != block_bytes)
      throw Error(Code::kInvalid,
                  "{} holds blocks of {}, and the folder behind it of {}; remove it",
                  options.folder.string(), file->block_bytes(), block_bytes);
    tier.file = std::move(file);
  } catch (const Error& error) {
    tier.try_again = now + options_.pause_after_failure;
    ++total_.counters.fill_failures;
    ++unsaved_.fill_failures;
    warn(error);
  }
  return tier.file;
}

std::vector<std::shared_ptr<BlockFile>> Tiers::open() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<BlockFile>> open;
  std::int64_t block_bytes = 0;
  for (Tier& tier : tiers_) {
    auto file = open_tier(tier, block_bytes);
    if (!file) continue;
    block_bytes = file->block_bytes();
    open.push_back(std::move(file));
  }
  std::ranges::reverse(open);
  return open;
}

bool Tiers::may_fill() const {
  return options_.read_type != ReadType::kNoCache && real_clock().now() >= fill_again_.load();
}

void Tiers::failed(const Error& error) {
  fill_again_ = real_clock().now() + options_.pause_after_failure;
  const std::lock_guard lock(mutex_);
  ++total_.counters.fill_failures;
  ++unsaved_.fill_failures;
  warn(error);
}

void Tiers::warn(const Error& error) {
  total_.trouble = error.what();
  bool& warned = warned_[static_cast<std::size_t>(error.code()) % warned_.size()];
  if (std::exchange(warned, true)) return;
  const std::string text = fmt::format(
      "the cache is passed by for now: {}; reads go to where the data came from", error.what());
  if (options_.warn) return options_.warn(text);
  std::fprintf(stderr, "bedplate: %s\n", text.c_str());
}

void Tiers::follow(std::shared_ptr<const NextUse> order) {
  const std::lock_guard lock(mutex_);
  std::erase_if(orders_, [](const auto& one) { return one.expired(); });
  orders_.push_back(order);
}

std::vector<std::shared_ptr<const NextUse>> Tiers::orders() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<const NextUse>> alive;
  for (const auto& one : orders_) {
    if (auto order = one.lock()) alive.push_back(std::move(order));
  }
  return alive;
}

void Tiers::tell_positions(const std::vector<std::shared_ptr<const NextUse>>& orders) {
  const Nanos now = real_clock().now();
  Nanos before = told_.load();
  if (orders.empty() || (before != 0 && now < before + kTellEach) ||
      !told_.compare_exchange_strong(before, now))
    return;
  for (const auto& tier : open()) {
    for (const auto& order : orders) {
      try {
        tier->note_order(order->order(), order->position());
      } catch (const Error& error) {
        failed(error);
      }
    }
  }
}

void Tiers::count(const CacheCounters& more, std::int64_t memory_bytes) {
  {
    const std::lock_guard lock(mutex_);
    total_.counters += more;
    total_.memory_bytes += memory_bytes;
    unsaved_ += more;
  }
  const Nanos now = real_clock().now();
  Nanos before = saved_.load();
  if (now >= before + kSaveEach && saved_.compare_exchange_strong(before, now))
    flush(Deadline::after(10 * kMillisecond));
}

CacheActivity Tiers::activity() const {
  const std::lock_guard lock(mutex_);
  return total_;
}

// Into the slowest tier's file; statistics wait for nobody.
void Tiers::flush(Deadline deadline) {
  CacheCounters some;
  std::shared_ptr<BlockFile> file;
  {
    const std::lock_guard lock(mutex_);
    for (const Tier& tier : tiers_) {
      if (tier.file && !file) file = tier.file;
    }
    if (!file || unsaved_ == CacheCounters{}) return;
    std::swap(some, unsaved_);
  }
  try {
    file->add(some, deadline);
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    unsaved_ += some;
  }
}

}  // namespace bedplate::store::cache
