// Objects in this process: memory://NAME/KEY. All who open one NAME share it, for as long as one of
// them holds it.
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "base/text.h"
#include "store/driver.h"

namespace bedplate::store {
namespace {

// Shared by the map and the reads that began before it was replaced.
struct Object {
  std::vector<std::byte> bytes;
  std::string version;
};
using Objects = std::map<std::string, std::shared_ptr<const Object>, std::less<>>;

class MemoryStore : public Store {
 public:
  explicit MemoryStore(std::string name) : name_(std::move(name)) {}

  std::string url() const override { return "memory://" + name_; }

  std::optional<ObjectInfo> find(std::string_view key, Deadline) override {
    check_key(key);
    const auto object = object_of(key);
    if (!object) return std::nullopt;
    return info_of(key, *object);
  }

  void read(std::span<Read> reads, Deadline) override {
    begin_reads(reads, [this](const Read& one) { read_one(one); });
  }

  void list(std::string_view prefix, const Visit& visit, Deadline) override {
    Objects seen;
    {
      const std::lock_guard lock(mutex_);
      seen = objects_;
    }
    for (auto at = seen.lower_bound(prefix); at != seen.end() && at->first.starts_with(prefix);
         ++at)
      visit(info_of(at->first, *at->second));
  }

  std::unique_ptr<ObjectWriter> create(std::string_view key, IfExists if_exists, Nanos) override;

  void remove(std::string_view key, Deadline) override {
    check_key(key);
    const std::lock_guard lock(mutex_);
    if (const auto at = objects_.find(key); at != objects_.end()) objects_.erase(at);
  }

  ObjectInfo keep(const std::string& key, std::vector<std::byte> bytes, IfExists if_exists) {
    static std::atomic<std::int64_t> versions{0};
    auto object =
        std::make_shared<const Object>(Object{std::move(bytes), fmt::format("{}", ++versions)});
    const std::lock_guard lock(mutex_);
    if (if_exists == IfExists::kRefuse && objects_.contains(key))
      throw Error(Code::kExists, "{} has an object {} already", url(), to_utf8(key));
    objects_.insert_or_assign(key, object);
    return info_of(key, *object);
  }

 private:
  static ObjectInfo info_of(std::string_view key, const Object& object) {
    return {std::string(key), std::ssize(object.bytes), object.version};
  }

  std::shared_ptr<const Object> object_of(std::string_view key) {
    const std::lock_guard lock(mutex_);
    const auto at = objects_.find(key);
    return at == objects_.end() ? nullptr : at->second;
  }

  void read_one(const Read& one) {
    check_key(one.key);
    const auto object = object_of(one.key);
    if (!object) throw Error(Code::kNotFound, "{} has no object {}", url(), to_utf8(one.key));
    check_read(one, std::ssize(object->bytes), object->version, *this);
    if (!one.into.empty())
      std::memcpy(one.into.data(), object->bytes.data() + one.offset, one.into.size());
  }

  const std::string name_;
  std::mutex mutex_;
  Objects objects_;
};

class MemoryWriter : public ObjectWriter {
 public:
  MemoryWriter(MemoryStore& store, std::string_view key, IfExists if_exists)
      : store_(store), key_(key), if_exists_(if_exists) {}

  void write(std::span<const std::byte> bytes) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  ObjectInfo commit() override { return store_.keep(key_, std::move(bytes_), if_exists_); }

 private:
  MemoryStore& store_;
  std::string key_;
  IfExists if_exists_;
  std::vector<std::byte> bytes_;
};

std::unique_ptr<ObjectWriter> MemoryStore::create(std::string_view key, IfExists if_exists, Nanos) {
  check_key(key);
  return std::make_unique<MemoryWriter>(*this, key, if_exists);
}

Driver::Opened open_memory(const Url& url, const StoreOptions&) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<MemoryStore>> stores;
  const std::lock_guard lock(mutex);
  auto& known = stores[url.authority];
  auto store = known.lock();
  if (!store) known = store = std::make_shared<MemoryStore>(url.authority);
  return {std::move(store), url.path};
}

constexpr std::string_view kSchemes[] = {"memory"};

}  // namespace

extern const Driver kMemory = {
    .name = "memory",
    .schemes = kSchemes,
    .summary = "objects in this process",
    .open = open_memory,
};

}  // namespace bedplate::store
