// How fast a disk reads and writes: in sequence and at random, at a depth, past the page cache.
//
//   const DiskResult result = measure_disk({.folder = "/data", .block = 128 * kKiB});
//   result.phases[1].figures.calls_per_second();     // random reads
//
// The test file is full of bytes that no disk can compress, has no name (so that nothing of it is
// left, whatever happens to this process), and is read back correctly or the measurement fails.
// fio does the work where it is installed, else threads of our own, as many as the depth says.
//
// A read that the kernel has accepted is waited for however long it takes (a network file system
// whose server is gone): what ends then is fio, or the process.
//
// One thread. Throws Error: kInvalid for options that make no sense, kNotFound, kPermission,
// kNoSpace, kIo, kTimeout; kUnavailable when the watch said stop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "bench/figures.h"

namespace bedplate::bench {

enum class DiskEngine { kBest, kFio, kThreads };
enum class PageCache {
  kPast,     // O_DIRECT where the file system takes it; else as kThrough
  kThrough,  // from a cache that was emptied; reads end when each block was read once
};
enum class Writes { kNone, kMeasured };

struct DiskOptions {
  std::filesystem::path folder = ".";
  std::int64_t block = 128 * kKiB;  // a multiple of 4 KiB
  int depth = 32;                   // reads in flight
  Nanos length = 5 * kSecond;       // of each phase
  std::int64_t size = kGiB;         // of the test file
  std::int64_t reserve = kGiB;      // that must stay free
  DiskEngine engine = DiskEngine::kBest;
  PageCache page_cache = PageCache::kPast;
  Writes writes = Writes::kNone;
  Watch watch = {};
};

struct DiskPhase {
  std::string_view name;  // "random read"
  Figures figures;        // amount: bytes
};

struct DiskResult {
  std::filesystem::path folder;
  std::string engine;                       // "fio-3.33, io_uring" or "32 threads"
  PageCache page_cache = PageCache::kPast;  // how it really was
  std::int64_t block = 0;
  int depth = 0;
  std::int64_t size = 0;
  Figures filling;                 // making the file, in sequence
  std::vector<DiskPhase> phases;   // sequential read, random read; with writes those as well
  std::vector<std::string> notes;  // what a reader of the figures must know

  const Figures& sequential_read() const { return phases[0].figures; }
  const Figures& random_read() const { return phases[1].figures; }
};

DiskResult measure_disk(const DiskOptions& options);

}  // namespace bedplate::bench
