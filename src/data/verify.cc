#include "data/verify.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "data/internal/sidecar_state.h"
#include "data/manifest.h"
#include "data/parallel.h"

namespace bedplate::data {
namespace {

constexpr std::size_t kMostNamed = 10'000;
constexpr std::int64_t kTaskBytes = 64 * kMiB;

// Samples [first, last) of a shard.
struct Task {
  std::size_t shard;
  std::int64_t first;
  std::int64_t last;
};

class Verifying {
 public:
  Verifying(std::vector<FoundShard> found, const VerifyOptions& options, const Watch& watch)
      : found_(std::move(found)),
        options_(options),
        watch_(watch),
        indices_(found_.size()),
        samples_(found_.size()) {}

  VerifyReport run() {
    {
      Progress progress(watch_, "opening", "shards", std::ssize(found_));
      for_each_of(found_.size(), options_.threads, [&](std::size_t i) {
        open(i);
        progress.add(1, 0);
      });
    }
    check_manifests();
    std::int64_t samples = 0;
    for (const auto& index : indices_) samples += index ? index->samples() : 0;
    const std::vector<Task> tasks = make_tasks();
    Progress progress(watch_, "verifying", "samples", samples);
    for_each_of(tasks.size(), options_.threads, [&](std::size_t i) { check(tasks[i], progress); });

    std::ranges::sort(bad_, [](const Found& a, const Found& b) {
      return std::pair(a.shard, a.bad.sample) < std::pair(b.shard, b.bad.sample);
    });
    report_.shards = std::ssize(found_);
    report_.bad_samples = std::ssize(bad_);
    for (std::size_t i = 0; i < std::min(bad_.size(), kMostNamed); ++i)
      report_.bad.push_back(std::move(bad_[i].bad));
    std::ranges::sort(report_.notes);
    return std::move(report_);
  }

 private:
  struct Found {
    std::size_t shard;
    DamagedSample bad;
  };

  std::string url_of(std::size_t shard) const {
    return shard_url(*found_[shard].store, found_[shard].object);
  }

  void add_bad(std::size_t shard, std::int64_t sample, std::int64_t offset, std::string what) {
    const std::lock_guard lock(mutex_);
    bad_.push_back({shard, {url_of(shard), sample, offset, std::move(what)}});
  }

  void open(std::size_t i) {
    const FoundShard& one = found_[i];
    const std::string url = url_of(i);
    try {
      const SidecarState sidecar = state_of_sidecar(one, options_.dataset.shard.timeout);
      indices_[i] = open_found(one, options_.dataset.shard);
      const std::int64_t samples = indices_[i]->samples();
      samples_[i] = samples;
      const std::lock_guard lock(mutex_);
      if (sidecar == SidecarState::kOfAnother)
        report_.notes.push_back(url +
                                ": its index is of another version of it; bedplate data index "
                                "makes it anew");
      const bool guarded =
          one.format->checksums == Format::Checksums::kOfShard || sidecar == SidecarState::kFresh;
      if (guarded) return;
      // The scan has read it all; checksums that it made itself prove nothing.
      report_.samples += samples;
      report_.unchecked += samples;
      report_.bytes += one.object.size;
      indices_[i].reset();
    } catch (const Error& error) {
      add_bad(i, -1, 0, error.what());
    }
  }

  // A manifest is believed by whoever opens the folder: it must be right.
  void check_manifests() {
    KnownCounts known;
    std::map<std::pair<store::Store*, std::string>, std::size_t> whole_folders;
    for (std::size_t i = 0; i < found_.size(); ++i) {
      const FoundShard& one = found_[i];
      if (!one.folder) continue;
      if (one.of_whole_folder) whole_folders.try_emplace({one.store.get(), *one.folder}, i);
      const auto count = known.samples_of(*one.store, *one.folder, one.object, one.format->name,
                                          Deadline::after(options_.dataset.shard.timeout));
      if (!count || !samples_[i] || *count == *samples_[i]) continue;
      add_bad(i, -1, 0,
              fmt::format("it has {} samples, where the manifest of its folder says {}; bedplate "
                          "data index writes it again",
                          *samples_[i], *count));
    }
    for (const auto& [place, first] : whole_folders) {
      try {
        known.check_whole(*place.first, place.second);
      } catch (const Error& error) {
        const std::string folder = shard_url(*place.first, {.key = place.second});
        bad_.push_back({first, {folder, -1, 0, error.what()}});
      }
    }
    for (std::string& note : known.notes()) report_.notes.push_back(std::move(note));
  }

  std::vector<Task> make_tasks() const {
    std::vector<Task> tasks;
    for (std::size_t i = 0; i < indices_.size(); ++i) {
      const std::int64_t samples = indices_[i] ? indices_[i]->samples() : 0;
      std::int64_t first = 0;
      std::int64_t bytes = 0;
      for (std::int64_t s = 0; s < samples; ++s) {
        bytes += indices_[i]->extent(s).bytes;
        if (bytes < kTaskBytes && s + 1 < samples) continue;
        tasks.push_back({i, first, s + 1});
        first = s + 1;
        bytes = 0;
      }
    }
    return tasks;
  }

  void check(const Task& task, Progress& progress) {
    const ShardIndex& index = *indices_[task.shard];
    store::Store& store = *found_[task.shard].store;
    PieceReader reader(options_.dataset.shard.timeout);
    std::vector<Piece> pieces;
    Sample sample;
    std::int64_t unchecked = 0;
    std::int64_t all_bytes = 0;
    for (std::int64_t at = task.first; at < task.last;) {
      const std::int64_t begin = at;
      std::int64_t bytes = 0;
      pieces.clear();
      for (; at < task.last && bytes < kWindowBytes && at - begin < kWindowSamples; ++at) {
        pieces.push_back(piece_of(store, index, at));
        bytes += pieces.back().bytes;
      }
      reader.read(pieces);
      for (std::int64_t i = begin; i < at; ++i) {
        const Piece& piece = pieces[static_cast<std::size_t>(i - begin)];
        unchecked += index.extent(i).crc ? 0 : 1;
        try {
          if (piece.error) throw *piece.error;
          unpack_checked(index, i, piece.got, sample);
        } catch (const Error& error) {
          add_bad(task.shard, i, piece.offset, error.what());
        }
      }
      all_bytes += bytes;
      progress.add(at - begin, bytes);
    }
    const std::lock_guard lock(mutex_);
    report_.samples += task.last - task.first;
    report_.bytes += all_bytes;
    report_.unchecked += unchecked;
  }

  const std::vector<FoundShard> found_;
  const VerifyOptions& options_;
  const Watch& watch_;
  // nullptr: not to be read.
  std::vector<std::shared_ptr<const ShardIndex>> indices_;
  std::vector<std::optional<std::int64_t>> samples_;  // of the shards that could be opened
  std::mutex mutex_;                                  // of what follows
  std::vector<Found> bad_;
  VerifyReport report_;
};

}  // namespace

VerifyReport verify(std::span<const std::string> urls, const VerifyOptions& options,
                    const Watch& watch) {
  if (urls.empty()) throw Error(Code::kInvalid, "no shards were named");
  return Verifying(find_shards(urls, options.dataset), options, watch).run();
}

}  // namespace bedplate::data
