// Reads every sample of shards and checks it.
//
//   const VerifyReport report = verify(urls, options, watch);
//   for (const DamagedSample& bad : report.bad) …
//
// Goes on after what is bad, to the end; throws only when a URL names nothing, or when it is
// stopped (Watch::stop).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/dataset.h"
#include "data/progress.h"

namespace bedplate::data {

struct DamagedSample {
  std::string shard;         // URL
  std::int64_t sample = -1;  // of the shard; -1: the shard as a whole
  std::int64_t offset = 0;   // bytes, in the shard
  std::string what;
};

struct VerifyOptions {
  DatasetOptions dataset = {};
  int threads = 1;
};

struct VerifyReport {
  std::int64_t shards = 0;
  std::int64_t samples = 0;    // that were read, the bad ones too
  std::int64_t bytes = 0;      // of them
  std::int64_t unchecked = 0;  // samples among them that no checksum guards
  std::int64_t bad_samples = 0;
  std::vector<DamagedSample> bad;  // in the order of the shards; the first ten thousand
  std::vector<std::string> notes;  // what is worth knowing and not bad
};

VerifyReport verify(std::span<const std::string> urls, const VerifyOptions& options,
                    const Watch& watch);

}  // namespace bedplate::data
