// How many small files a file system makes, finds, opens and removes in a second, as mdtest of the
// IOR suite measures it.
//
//   const MetaResult result = measure_meta({.folder = "/data", .files = 10'000});
//   result.of("open and read").figures.amount_per_second();
//
// Files of `bytes` each, in a folder a thread or in one that all share: create (and write), stat,
// open and read, list, rename, remove; each phase begins when all threads have ended the one
// before. What is read and listed is compared with what was written. Nothing is flushed to the
// disk, and the second look at a file comes from this machine's caches.
//
// All is removed, also after a throw; a killed process's leftovers by the next measurement in the
// same folder. One thread. Throws Error: kInvalid, kNotFound, kPermission, kNoSpace, kIo, kTimeout;
// kUnavailable when the watch said stop.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "bench/figures.h"

namespace bedplate::bench {

enum class Folders { kOwn, kShared };

struct MetaOptions {
  std::filesystem::path folder = ".";
  std::int64_t files = 10'000;  // of all threads together
  std::int64_t bytes = 4096;    // of each file
  int threads = 0;              // 0: as many as this process has processors, at most 16
  std::int64_t reserve = kGiB;  // that must stay free
  Folders folders = Folders::kOwn;
  Watch watch = {};
};

struct MetaPhase {
  std::string_view name;
  Figures figures;  // amount: files, or entries of a listing; a call: one file, or one listing
};

struct MetaResult {
  std::filesystem::path folder;
  std::int64_t files = 0;
  std::int64_t bytes = 0;
  int threads = 0;
  Folders folders = Folders::kOwn;
  std::vector<MetaPhase> phases;
  std::vector<std::string> notes;

  const MetaPhase& of(std::string_view name) const;  // that is there
};

inline constexpr std::string_view kOpenAndRead = "open and read";

MetaResult measure_meta(const MetaOptions& options);

}  // namespace bedplate::bench
