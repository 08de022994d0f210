// A format in which samples lie: how it is recognised and opened.
//
// A format is one file under formats/ that ends in a Format, and one line in CMakeLists.txt;
// format_conformance_test.cc runs over all of them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "data/packed_index.h"
#include "data/shard_index.h"
#include "store/store.h"

namespace bedplate::data {

struct ShardOptions {
  CutOff cut_off = CutOff::kRefuse;
  Nanos timeout = 600 * kSecond;  // for one shard; a tar without a sidecar is read whole
};

class ScannedIndex;

struct Format {
  std::string_view name;     // "webdataset"
  std::string_view summary;  // one line for --help
  // Whether an object is a shard of this format, by its name alone.
  bool (*is_shard)(std::string_view key);
  // Errors as those of open_packed().
  std::shared_ptr<const ShardIndex> (*open)(const std::shared_ptr<store::Store>& store,
                                            const store::ObjectInfo& shard,
                                            const ShardOptions& options);
  // Whether samples lie in the shard or in objects that it names, which are not of its size.
  enum class Samples { kInShard, kElsewhere } samples = Samples::kInShard;
  // The name of an object that stands for all of the folder it lies in, others of its kind below
  // included; empty for formats that have none.
  std::string_view folder_object = {};
  // Makes a shard of a folder that has no such object; nullptr where that cannot be. `prefix` is
  // empty or ends in a slash.
  std::shared_ptr<const ShardIndex> (*open_folder)(const std::shared_ptr<store::Store>& store,
                                                   const std::string& prefix,
                                                   const ShardOptions& options) = nullptr;
  // For formats whose shards have no index of their own: makes one by reading a shard through. It
  // may be kept beside the shard (scanned_index.h), in a sidecar that begins with this magic.
  std::shared_ptr<const ScannedIndex> (*scan)(const std::shared_ptr<store::Store>& store,
                                              const store::ObjectInfo& shard,
                                              const ShardOptions& options) = nullptr;
  std::string_view sidecar_magic = {};
  // Where the checksums of the samples come from: what a scan has made itself proves nothing.
  enum class Checksums { kOfShard, kOfScan } checksums = Checksums::kOfShard;
};
std::span<const Format* const> all_formats();

// Error{kInvalid}, naming the nearest, when there is none of this name.
const Format& format_of_name(std::string_view name);
// nullptr when no format claims the object.
const Format* format_of_shard(std::string_view key);

}  // namespace bedplate::data
