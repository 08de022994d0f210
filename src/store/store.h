// Where bytes live: objects by key in a folder, a device, a bucket, behind a web server or in
// memory.
//
//   const auto place = locate("s3://corpus/train/000.tar");       // → a store and a key in it
//   const ObjectInfo info = place.store->info(place.key);
//   std::vector<std::byte> bytes(info.size);
//   read_exactly(*place.store, {.key = place.key, .into = bytes, .version = info.version});
//
// A key is UTF-8 or any other bytes but NUL, is not empty, has no empty, "." or ".." part and does
// not begin with "/"; drivers refuse others with Error{kInvalid}, so that no key leaves its store.
//
// Thread-safe: any number of threads may call any member. After fork() the child may go on using a
// store; what the parent had in flight stays the parent's.
//
// Every call ends by its deadline (Error{kTimeout}, naming what was waited for). Errors: kNotFound,
// kPermission, kNoSpace, kIo, kUnavailable (tried again as often as StoreOptions allows), kCorrupt
// (short bodies, wrong checksums, an object that is not the version that was asked for),
// kUnsupported (a driver that cannot list or write).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/error.h"

namespace bedplate::store {

struct ObjectInfo {
  std::string key;
  std::int64_t size = 0;  // bytes
  // Another one whenever the content is: an ETag, or inode, size and time of change. Opaque.
  std::string version;

  bool operator==(const ObjectInfo&) const = default;
};

enum class From {
  kAnywhere,
  kOrigin,  // not out of a cache, and what caches hold of these bytes is forgotten
};

// One range to read, and how that went.
struct Read {
  std::string key;
  std::int64_t offset = 0;          // bytes from the object's begin
  std::span<std::byte> into;        // filled whole, or `error` is set and its content is undefined
  std::string version;              // if not empty: of this version only, else kCorrupt
  std::optional<Error> error = {};  // out: an older one is forgotten
  From from = From::kAnywhere;
  // Of the whole object, where it is known with the version: a cache then asks nobody. -1: not.
  std::int64_t object_size = -1;
};

// An object in the making: it appears under its key whole, by commit(), or not at all. One thread.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;  // without commit(): nothing stays behind
  virtual void write(std::span<const std::byte> bytes) = 0;
  // Durable after it returns. The writer cannot be used after this or after any throw.
  virtual ObjectInfo commit() = 0;
};

// A folder that nobody else writes to, as long as this lives: see Store::claim().
class Claim {
 public:
  Claim() = default;
  Claim(const Claim&) = delete;
  Claim& operator=(const Claim&) = delete;
  virtual ~Claim() = default;
};

enum class IfExists {
  kRefuse,   // Error{kExists} by commit() at the latest
  kReplace,  // readers see the old object or the new one, whole
};

class Store {
 public:
  virtual ~Store() = default;

  // As it was given, without secrets: for messages.
  virtual std::string url() const = 0;

  // nullopt when there is no such object; a folder is none.
  virtual std::optional<ObjectInfo> find(std::string_view key, Deadline deadline) = 0;

  // Reads all of them, as many at once as the driver can. Throws nothing: each read has its own
  // `error`. A range beyond the object's end is kInvalid; an empty range is read at once.
  virtual void read(std::span<Read> reads, Deadline deadline) = 0;

  // Objects whose key begins with `prefix`, in the order of their keys' bytes.
  using Visit = std::function<void(const ObjectInfo&)>;
  virtual void list(std::string_view prefix, const Visit& visit, Deadline deadline) = 0;

  // `deadline` holds for each call of the writer anew.
  virtual std::unique_ptr<ObjectWriter> create(std::string_view key, IfExists if_exists,
                                               Nanos timeout) = 0;

  // Removing what is not there is no error.
  virtual void remove(std::string_view key, Deadline deadline) = 0;

  // Removes what writers that were killed left beside the objects of a folder, under names that
  // list() does not show, and gives its number; what a living writer holds stays. `folder`: empty,
  // or ends in a slash.
  virtual std::int64_t remove_abandoned(std::string_view /*folder*/, Deadline /*deadline*/) {
    return 0;
  }

  // Keeps a folder for those who claim it, one at a time: Error{kExists}, which names who has it,
  // when it is still another's at `deadline`. nullptr where nothing can be locked (object stores).
  // It ends with its process, however that ends. `folder`: as in remove_abandoned(); made when it
  // is missing, and removed again when it stays empty.
  virtual std::unique_ptr<Claim> claim(std::string_view /*folder*/, Deadline /*deadline*/) {
    return nullptr;
  }
};

constexpr Nanos kDefaultTimeout = 60 * kSecond;

// find(), or Error{kNotFound}.
ObjectInfo info(Store& store, std::string_view key,
                Deadline deadline = Deadline::after(kDefaultTimeout));
// One read; throws its error.
void read_exactly(Store& store, Read read, Deadline deadline = Deadline::after(kDefaultTimeout));
// A whole small object. kInvalid when it is larger than `most`.
std::string get(Store& store, std::string_view key, std::int64_t most = 64 * kMiB,
                Deadline deadline = Deadline::after(kDefaultTimeout));
ObjectInfo put(Store& store, std::string_view key, std::string_view bytes,
               IfExists if_exists = IfExists::kReplace, Nanos timeout = kDefaultTimeout);

// Throws Error{kInvalid} for what no store takes as a key.
void check_key(std::string_view key);

// For drivers: throws kInvalid when the range lies outside an object of `size` bytes, kCorrupt when
// `version` is not the one that was asked for.
void check_read(const Read& read, std::int64_t size, std::string_view version, const Store& store);

// For drivers: begins each read, having forgotten its older error; an Error of `begin` is the
// read's own, and the others go on.
void begin_reads(std::span<Read> reads, const std::function<void(Read&)>& begin);

}  // namespace bedplate::store
