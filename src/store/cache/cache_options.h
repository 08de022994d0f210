// Where a cache lies, how large it may become, who shares it.
//
//   parse_cache("/nvme/cache:200GB")             // a folder, never more than 200·10⁹ bytes on disk
//   parse_cache("/nvme/cache")                   // 80 % of what is free there
//   parse_cache("memory:4GB,/nvme/cache:200GB")  // in front of it 4 GB that all processes share
//   parse_cache("/nvme/cache:200GB,NO_CACHE")    // read what is there, add nothing
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/units.h"

namespace bedplate::store {

// As Alluxio calls them.
enum class ReadType {
  kCachePromote,  // what is read is cached, and moves to the fastest tier when it is read again
  kCache,         // what is read is cached, and stays in the tier where it is
  kNoCache,       // what is cached is read, nothing is added
};

// Who may use a folder that is made; a folder that is there is shared by whoever may write into it.
enum class SharedWith { kNobody, kGroup, kEveryone };

struct CacheOptions {
  std::filesystem::path folder = {};  // empty: memory only
  std::int64_t cap_bytes = 0;  // on disk; 0: what the folder had before, else 80 % of what is free
  std::int64_t memory_bytes = 0;  // shared by the node's processes; 0: none
  // Not empty: that memory lives only as long as a process has it open, and is shared by those of
  // this user that give the same name. Empty: it lies in /dev/shm, and stays.
  std::string memory_name = {};
  std::int64_t block_bytes = kMiB;  // a power of two, 64 KiB to 64 MiB; a folder keeps its first
  ReadType read_type = ReadType::kCachePromote;
  SharedWith shared_with = SharedWith::kNobody;
  std::int64_t fetch_bytes = 8 * kMiB;  // at most, by one read of the origin
  // When writing failed (the disk is full, or closed to us) it is tried again after this.
  Nanos pause_after_failure = 5 * kSecond;
  // Is told of what the cache cannot do, once each kind; default: a line on stderr.
  std::function<void(const std::string&)> warn = {};
};

// Error{kInvalid} that says what was meant.
CacheOptions parse_cache(std::string_view text);

std::string_view name(ReadType type);  // "CACHE_PROMOTE"

}  // namespace bedplate::store
