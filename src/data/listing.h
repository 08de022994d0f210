// Loose files below a folder, each one sample, as they were when somebody looked.
//
//   write_listing(*place.store, "photos/");        // photos/bedplate.files
//   const auto index = open_listing(store, info);  // info: of that object
//
// A sample is one file: its key is the file's path below the folder; it has one field, named by the
// file's extension in lower case ("file" when it has none), and, when the file lies in a folder of
// its own, a field "class" with that folder's name. A file whose version is another one since is
// Error{kCorrupt} when it is read. Files and folders whose names begin with a dot are no samples,
// nor are Bedplate's own.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/shard_index.h"
#include "store/store.h"

namespace bedplate::data {

constexpr std::string_view kListingName = "bedplate.files";
constexpr std::string_view kListingMagic = "BPFILES1";

struct ListingMade {
  store::ObjectInfo object;
  // What lay there before. The same is not written again.
  enum class Before { kNothing, kTheSame, kAnother } before = Before::kNothing;
  std::int64_t files = 0;
  std::int64_t bytes = 0;
};
// Replaces a listing that is there and is of other files. `prefix` is empty or ends in a slash.
// Error{kNotFound} when no file is below it, kUnsupported when one has 4 GiB or more.
ListingMade write_listing(store::Store& store, const std::string& prefix,
                          Deadline deadline = Deadline::after(3600 * kSecond));

// Error{kCorrupt} for what is no listing or a damaged one.
std::shared_ptr<const ShardIndex> open_listing(store::Store& store,
                                               const store::ObjectInfo& listing, Deadline deadline);
// The same without a file: lists now, and keeps that in memory.
std::shared_ptr<const ShardIndex> freeze_listing(store::Store& store, const std::string& prefix,
                                                 Deadline deadline);

}  // namespace bedplate::data
