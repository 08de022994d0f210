// How a URL becomes a store. A driver is one file under drivers/ that ends in a Driver, and one
// line in CMakeLists.txt; conformance_test.cc runs over all of them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/units.h"
#include "store/store.h"

namespace bedplate::store {

// What can be chosen for a store. Each driver uses what concerns it.
struct StoreOptions {
  int queue_depth = 32;                  // reads in flight at once, of one call
  Nanos attempt_timeout = 30 * kSecond;  // remote: for one attempt without progress
  int retries = 5;                       // remote: further attempts after a failure that may pass
  Nanos first_pause =
      100 * kMillisecond;              // remote: before the second attempt; doubles, with jitter
  Nanos longest_pause = 20 * kSecond;  // remote: a longer Retry-After ends the operation

  // S3; empty: from the environment and ~/.aws (AWS_ENDPOINT_URL_S3, AWS_REGION, …).
  std::string endpoint = {};  // "http://127.0.0.1:8333"; empty: Amazon's
  std::string region = {};
  enum class Addressing { kAuto, kPath, kVirtualHost } addressing = Addressing::kAuto;
  bool anonymous = false;         // unsigned requests
  bool instance_profile = false;  // ask 169.254.169.254 for credentials

  enum class Direct { kNo, kYes } direct = Direct::kNo;  // files: O_DIRECT, past the page cache
};

// A URL taken apart: s3://bucket/a/b → {"s3", "bucket", "a/b"}. A plain path is {"file", "", path}.
struct Url {
  std::string scheme;
  std::string authority;  // host and port, bucket; no user information is accepted
  std::string path;       // as it stands, without the slash after the authority

  std::string text() const;
};
// Throws Error{kInvalid} for user names and passwords in a URL, and for an unknown scheme (naming
// the nearest).
Url parse_url(std::string_view text);

struct Driver {
  std::string_view name;
  std::span<const std::string_view> schemes;
  std::string_view summary;
  // The store that holds `url`, and the key of what the URL names (empty: the store itself).
  struct Opened {
    std::shared_ptr<Store> store;  // shared by all who read from it
    std::string key;
  };
  Opened (*open)(const Url& url, const StoreOptions& options);
};
std::span<const Driver* const> all_drivers();

using Place = Driver::Opened;
Place locate(std::string_view url, const StoreOptions& options = {});

}  // namespace bedplate::store
