#include "store/cache/internal/cached_store.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "os/per_process.h"
#include "store/cache/internal/cached_objects.h"

namespace bedplate::store::cache {
namespace {

constexpr std::int64_t kFetchedAtOnce = 64 * kMiB;   // by one call, in memory until it is stored
constexpr std::int64_t kFetchedTogether = 4 * kMiB;  // where an order says that it is used soon
constexpr std::int64_t kOfRoom = 16;                 // at most one part of so many of the room
constexpr std::size_t kPromotedAtOnce = 8;           // blocks
constexpr int kRoundsInVain = 8;
constexpr Nanos kFirstPause = 100 * kMicrosecond;
constexpr Nanos kLongestPause = 5 * kMillisecond;

// The same whether "a/b" lies in a store or "b" in the one of its folder "a".
std::string object_url(std::string_view store_url, std::string_view key) {
  if (store_url.ends_with('/')) store_url.remove_suffix(1);
  return fmt::format("{}/{}", store_url, key);
}

using Files = std::vector<std::shared_ptr<BlockFile>>;

// Of a store, per process.
struct Known {
  CachedObjects objects;
  std::mutex mutex;
  Hash128 told_to = {};  // the key of the file that has the origin's URL
};

// One call of read().
class ReadCall {
 public:
  ReadCall(Store& origin, Known& known, Tiers& tiers, std::span<Read> reads, Deadline deadline)
      : origin_(origin),
        known_(known),
        tiers_(tiers),
        reads_(reads),
        deadline_(deadline),
        // The other half is for reading past a fetcher that hangs.
        patience_(deadline.within(deadline.left() / 2)),
        files_(tiers.open()),
        orders_(tiers.orders()),
        past_(reads.size(), false) {}

  void run();

 private:
  struct Block {
    CachedObject object;
    const std::string* key;
    std::vector<Piece*> pieces;  // none: fetched for what lies beside it
    std::int64_t length;
    Use use;
  };
  // Blocks side by side in one object.
  struct Run {
    std::vector<const std::pair<const BlockName, Block>*> blocks;
    std::int64_t bytes = 0;
    std::unique_ptr<std::byte[]> buffer;
  };

  void resolve();
  CachedObject object_of(const Read& read);
  void tell_origin(const Hash128& key, std::uint64_t hash, const std::string& url);
  void cut(std::size_t read, const CachedObject& object);
  void drop(const Read& read, const CachedObject& object);
  void serve();
  std::map<BlockName, Block> missing();
  bool fetch();
  void claim(std::map<BlockName, Block>& blocks, std::vector<BlockName>& claimed);
  std::optional<Use> used_soon(const std::string& key, std::int64_t offset,
                               std::int64_t length) const;
  std::vector<std::pair<BlockName, Block>> beside(const BlockName& name, const Block& block,
                                                  const std::map<BlockName, Block>& missing);
  std::vector<Run> runs_of(const std::map<BlockName, Block>& blocks,
                           const std::vector<BlockName>& claimed) const;
  void bring(std::vector<Run>& runs);
  static Use use_of(const Block& block);
  void store(const std::vector<Run>& runs, const std::vector<Read>& fetched);
  void pass_by_missing();
  void read_past();
  void promote();

  bool is_there(const BlockName& name) const {
    return std::ranges::any_of(files_, [&](const auto& file) { return file->has(name); });
  }
  std::int64_t block_bytes() const { return files_.back()->block_bytes(); }
  std::int64_t length_of(const CachedObject& object, std::uint32_t number) const {
    return std::min(block_bytes(), object.size - number * block_bytes());
  }

  Store& origin_;
  Known& known_;
  Tiers& tiers_;
  std::span<Read> reads_;
  Deadline deadline_;
  Deadline patience_;
  Files files_;
  std::vector<std::shared_ptr<const NextUse>> orders_;
  std::vector<bool> past_;  // reads that go to the origin
  std::vector<Piece> pieces_;
  std::vector<std::size_t> read_of_piece_;
  std::vector<CachedObject> objects_;  // of the reads
  std::vector<Piece*> pending_;
  std::set<BlockName> waited_;
  std::map<BlockName, std::uint32_t> to_promote_;
  CacheCounters counters_;
  std::int64_t memory_bytes_ = 0;  // of the hits
};

CachedObject ReadCall::object_of(const Read& read) {
  auto object = known_.objects.find(read.key);
  if ((!object || object->version != read.version) && !read.version.empty() &&
      read.object_size >= 0) {
    check_key(read.key);
    object = CachedObject{.size = read.object_size, .version = read.version};
  } else if (!object || read.version.empty() || object->version != read.version) {
    check_key(read.key);
    const ObjectInfo found = info(origin_, read.key, deadline_);
    if (!object || object->version != found.version || object->size != found.size)
      object = CachedObject{.size = found.size, .version = found.version};
  }
  const Hash128& key = files_.back()->file().header().key;
  if (object->named_with != key) {
    const std::string url = origin_.url();
    const std::string whole = fmt::format("{}{}{}{}{}{}", object_url(url, read.key), '\0',
                                          object->version, '\0', object->size, '\0');
    object->name = {.object = siphash(key, whole),
                    .origin = origin_hash(key, url),
                    .key = object_hash(key, url, read.key)};
    object->named_with = key;
    known_.objects.note(read.key, *object);
    tell_origin(key, object->name.origin, url);
  }
  return *object;
}

// For those who look at the cache; nothing depends on it.
void ReadCall::tell_origin(const Hash128& key, std::uint64_t hash, const std::string& url) {
  const std::lock_guard lock(known_.mutex);
  if (std::exchange(known_.told_to, key) == key) return;
  try {
    files_.back()->note_origin(hash, url);
  } catch (const Error& error) {
    tiers_.failed(error);
  }
}

void ReadCall::cut(std::size_t index, const CachedObject& object) {
  const Read& read = reads_[index];
  std::int64_t at = read.offset;
  std::span<std::byte> into = read.into;
  while (!into.empty()) {
    Piece piece{.name = object.name};
    piece.name.number = static_cast<std::uint32_t>(at / block_bytes());
    piece.offset = static_cast<std::uint32_t>(at % block_bytes());
    piece.into =
        into.first(std::min(into.size(), static_cast<std::size_t>(block_bytes()) - piece.offset));
    for (const auto& order : orders_) {
      const auto next = order->next_use(origin_.url(), read.key, at - piece.offset,
                                        length_of(object, piece.name.number));
      if (!next) continue;
      piece.use = {.order = order->order(), .next = *next};
      break;
    }
    at += std::ssize(piece.into);
    into = into.subspan(piece.into.size());
    pieces_.push_back(piece);
    read_of_piece_.push_back(index);
  }
}

void ReadCall::drop(const Read& read, const CachedObject& object) {
  const std::int64_t end = read.offset + std::ssize(read.into);
  BlockName name = object.name;
  for (std::int64_t at = read.offset / block_bytes(); at * block_bytes() < end; ++at) {
    name.number = static_cast<std::uint32_t>(at);
    for (const auto& file : files_) file->drop(name, deadline_);
  }
}

void ReadCall::resolve() {
  objects_.resize(reads_.size());
  const bool usable = !files_.empty() && block_bytes() <= files_.back()->room();
  begin_reads(reads_, [&](Read& read) {
    const auto i = static_cast<std::size_t>(&read - reads_.data());
    past_[i] = !usable;
    if (!usable) return;
    objects_[i] = object_of(read);
    check_read(read, objects_[i].size, objects_[i].version, origin_);
    past_[i] = objects_[i].version.empty() || objects_[i].size / block_bytes() >= UINT32_MAX;
    if (past_[i]) return;
    if (read.from == From::kOrigin) {
      drop(read, objects_[i]);
      past_[i] = true;
    } else {
      cut(i, objects_[i]);
    }
  });
  pending_.reserve(pieces_.size());
  for (Piece& piece : pieces_) pending_.push_back(&piece);
}

void ReadCall::run() {
  resolve();
  Nanos pause = kFirstPause;
  int in_vain = 0;  // rounds after which what was said to be there could not be read
  while (!pending_.empty()) {
    serve();
    if (pending_.empty()) break;
    const std::size_t before = pending_.size();
    if (!tiers_.may_fill() || patience_.passed() || in_vain == kRoundsInVain) {
      pass_by_missing();
    } else if (fetch()) {
      in_vain += pending_.size() == before;
    } else {
      files_.back()->wait(pending_.front()->name, std::min(pause, patience_.left()));
      pause = std::min(2 * pause, kLongestPause);
    }
  }
  read_past();
  promote();
  tiers_.tell_positions(orders_);
  tiers_.count(counters_, memory_bytes_);
}

void ReadCall::serve() {
  for (const auto& file : files_) {
    const std::int64_t before = counters_.hits;
    const std::int64_t bytes_before = counters_.hit_bytes;
    file->read(pending_, deadline_, counters_);
    const bool memory = file->in_memory();
    if (memory) {
      counters_.memory_hits += counters_.hits - before;
      memory_bytes_ += counters_.hit_bytes - bytes_before;
    }
    for (const Piece* piece : pending_) {
      if (piece->done && piece->used_before && !memory && files_.size() > 1)
        to_promote_.emplace(piece->name, piece->block_length);
    }
    std::erase_if(pending_, [](const Piece* piece) { return piece->done; });
  }
}

std::map<BlockName, ReadCall::Block> ReadCall::missing() {
  std::map<BlockName, Block> blocks;
  for (Piece* piece : pending_) {
    const std::size_t read = read_of_piece_[static_cast<std::size_t>(piece - pieces_.data())];
    auto& block = blocks[piece->name];
    if (block.pieces.empty()) {
      block.object = objects_[read];
      block.key = &reads_[read].key;
      block.length = length_of(block.object, piece->name.number);
    }
    block.pieces.push_back(piece);
  }
  return blocks;
}

// nullopt when no order says that it is.
std::optional<Use> ReadCall::used_soon(const std::string& key, std::int64_t offset,
                                       std::int64_t length) const {
  for (const auto& order : orders_) {
    if (order->fetch_ahead() == 0) continue;
    const auto next = order->next_use(origin_.url(), key, offset, length);
    if (!next || *next == NextUse::kNever) continue;
    if (*next - order->position() <= order->fetch_ahead())
      return Use{.order = order->order(), .next = *next};
  }
  return std::nullopt;
}

// The other blocks of its part of the object that an order will use soon: neither there nor among
// those that are missing now.
std::vector<std::pair<BlockName, ReadCall::Block>> ReadCall::beside(
    const BlockName& name, const Block& block, const std::map<BlockName, Block>& missing) {
  std::vector<std::pair<BlockName, Block>> out;
  const std::int64_t most =
      std::min({kFetchedTogether, tiers_.fetch_bytes(), files_.back()->room() / kOfRoom});
  const auto together = static_cast<std::uint32_t>(most / block_bytes());
  if (together < 2 || !files_.back()->keeps_all()) return out;
  BlockName other = name;
  // The last part has what is left too: an object's end is often a few bytes in a block.
  const auto blocks =
      static_cast<std::uint32_t>((block.object.size + block_bytes() - 1) / block_bytes());
  const std::uint32_t parts = std::max(1u, blocks / together);
  const std::uint32_t part = std::min(name.number / together, parts - 1);
  const std::uint32_t end = part + 1 == parts ? blocks : (part + 1) * together;
  for (other.number = part * together; other.number < end; ++other.number) {
    if (missing.contains(other) || is_there(other)) continue;
    const std::int64_t length = length_of(block.object, other.number);
    if (const auto use = used_soon(*block.key, other.number * block_bytes(), length))
      out.push_back({other, {block.object, block.key, {}, length, *use}});
  }
  return out;
}

// Those of which no thread and no process is the fetcher, and what is worth fetching beside them.
// Nobody holds one while waiting for others.
void ReadCall::claim(std::map<BlockName, Block>& blocks, std::vector<BlockName>& claimed) {
  std::map<BlockName, Block> more;
  std::int64_t bytes = 0;
  for (const auto& [name, block] : blocks) {
    if (bytes > 0 && bytes + block.length > kFetchedAtOnce) break;
    if (!files_.back()->try_claim(name)) {
      if (waited_.insert(name).second) ++counters_.waits;
      continue;
    }
    claimed.push_back(name);
    bytes += block.length;
    for (auto& [other, its] : beside(name, block, blocks)) {
      if (!files_.back()->try_claim(other)) continue;
      claimed.push_back(other);
      bytes += its.length;
      more.emplace(other, std::move(its));
    }
  }
  blocks.merge(more);
  std::ranges::sort(claimed);
}

std::vector<ReadCall::Run> ReadCall::runs_of(const std::map<BlockName, Block>& blocks,
                                             const std::vector<BlockName>& claimed) const {
  std::vector<Run> runs;
  for (const BlockName& name : claimed) {
    const auto& block = *blocks.find(name);
    const auto follows = [&](const Run& run) {
      BlockName next = run.blocks.back()->first;
      ++next.number;
      return next == name && run.bytes + block.second.length <= tiers_.fetch_bytes();
    };
    if (runs.empty() || !follows(runs.back())) runs.emplace_back();
    runs.back().blocks.push_back(&block);
    runs.back().bytes += block.second.length;
  }
  return runs;
}

// False when all that is missing is being fetched by others.
bool ReadCall::fetch() {
  auto blocks = missing();
  std::vector<BlockName> claimed;
  const auto release = [&] {
    for (const BlockName& name : claimed) files_.back()->release(name);
  };
  try {
    claim(blocks, claimed);
  } catch (const Error& error) {
    release();
    tiers_.failed(error);
    return true;
  }
  const std::size_t had = claimed.size();
  std::erase_if(claimed, [&](const BlockName& name) {  // somebody was done since we looked
    const bool there = is_there(name);
    if (there) files_.back()->release(name);
    return there;
  });
  try {
    auto runs = runs_of(blocks, claimed);
    if (!runs.empty()) bring(runs);
  } catch (...) {
    release();
    throw;
  }
  release();
  return had > 0;
}

void ReadCall::bring(std::vector<Run>& runs) {
  std::vector<Read> fetched;
  for (Run& run : runs) {
    const auto& [name, first] = *run.blocks.front();
    run.buffer = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(run.bytes));
    fetched.push_back({.key = *first.key,
                       .offset = name.number * block_bytes(),
                       .into = {run.buffer.get(), static_cast<std::size_t>(run.bytes)},
                       .version = first.object.version});
  }
  origin_.read(fetched, deadline_);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    ++counters_.origin_reads;
    std::size_t at = 0;
    for (const auto* block : runs[i].blocks) {
      for (Piece* piece : block->second.pieces) {
        // What fails together is read one by one past the cache, so that each has its own error.
        if (fetched[i].error) {
          past_[read_of_piece_[static_cast<std::size_t>(piece - pieces_.data())]] = true;
        } else {
          std::memcpy(piece->into.data(), fetched[i].into.data() + at + piece->offset,
                      piece->into.size());
        }
        piece->done = true;
      }
      at += static_cast<std::size_t>(block->second.length);
    }
    if (fetched[i].error) continue;
    counters_.misses += std::ssize(runs[i].blocks);
    counters_.origin_bytes += runs[i].bytes;
  }
  std::erase_if(pending_, [](const Piece* piece) { return piece->done; });
  store(runs, fetched);
}

// Of several pieces of a block the one that is used again soonest counts.
Use ReadCall::use_of(const Block& block) {
  if (block.pieces.empty()) return block.use;
  return (*std::ranges::min_element(block.pieces, {}, [](const Piece* p) { return p->use.next; }))
      ->use;
}

void ReadCall::store(const std::vector<Run>& runs, const std::vector<Read>& fetched) {
  std::vector<Fill> fills;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    std::span<const std::byte> bytes = fetched[i].into;
    for (const auto* block : runs[i].blocks) {
      const auto length = static_cast<std::size_t>(block->second.length);
      if (!fetched[i].error)
        fills.push_back({block->first, bytes.first(length), use_of(block->second)});
      bytes = bytes.subspan(length);
    }
  }
  for (auto file = files_.rbegin(); file != files_.rend() && !fills.empty(); ++file) {
    try {
      (*file)->keep(fills, deadline_, counters_);
    } catch (const Error& error) {
      tiers_.failed(error);
    }
  }
}

void ReadCall::pass_by_missing() {
  for (const Piece* piece : pending_)
    past_[read_of_piece_[static_cast<std::size_t>(piece - pieces_.data())]] = true;
  pending_.clear();
}

void ReadCall::read_past() {
  std::vector<Read> past;
  std::vector<std::size_t> index;
  for (std::size_t i = 0; i < reads_.size(); ++i) {
    if (!past_[i]) continue;
    past.push_back(reads_[i]);
    index.push_back(i);
  }
  if (past.empty()) return;
  origin_.read(past, deadline_);
  for (std::size_t i = 0; i < past.size(); ++i) reads_[index[i]].error = past[i].error;
  counters_.pass_throughs += std::ssize(past);
}

void ReadCall::promote() {
  if (to_promote_.empty() || !tiers_.may_promote()) return;
  BlockFile& memory = *files_.front();
  std::size_t left = kPromotedAtOnce;
  for (const auto& [name, length] : to_promote_) {
    if (left-- == 0) return;
    try {
      if (!memory.try_claim(name)) continue;
    } catch (const Error& error) {
      return tiers_.failed(error);
    }
    try {
      std::vector<std::byte> block(length);
      Piece whole{.name = name, .into = block};
      for (const Piece& piece : pieces_) {
        if (piece.name == name) whole.use = piece.use;
      }
      Piece* const pieces[] = {&whole};
      CacheCounters beside;
      if (!memory.has(name)) files_.back()->read(pieces, deadline_, beside);
      counters_.bad_checksums += beside.bad_checksums;
      const Fill fill{name, block, whole.use};
      if (whole.done) memory.keep({&fill, 1}, deadline_, counters_);
    } catch (const Error& error) {
      tiers_.failed(error);
    }
    memory.release(name);
  }
}

class CachedStore : public Store {
 public:
  CachedStore(std::shared_ptr<Store> origin, std::function<Tiers&()> tiers)
      : origin_(std::move(origin)), tiers_(std::move(tiers)) {}

  std::string url() const override { return origin_->url(); }

  std::optional<ObjectInfo> find(std::string_view key, Deadline deadline) override {
    auto found = origin_->find(key, deadline);
    note(std::string(key), found);
    return found;
  }

  void read(std::span<Read> reads, Deadline deadline) override {
    try {
      ReadCall(*origin_, known_.get(), tiers_(), reads, deadline).run();
    } catch (const Error& error) {  // of the origin's url() or of memory: no read is left unsaid
      for (Read& read : reads) {
        if (!read.error) read.error = error;
      }
    }
  }

  void list(std::string_view prefix, const Visit& visit, Deadline deadline) override {
    origin_->list(prefix, visit, deadline);
  }

  std::unique_ptr<ObjectWriter> create(std::string_view key, IfExists if_exists,
                                       Nanos timeout) override {
    known_.get().objects.forget(std::string(key));
    return std::make_unique<Writer>(origin_->create(key, if_exists, timeout), *this);
  }

  void remove(std::string_view key, Deadline deadline) override {
    known_.get().objects.forget(std::string(key));
    origin_->remove(key, deadline);
  }

  std::int64_t remove_abandoned(std::string_view folder, Deadline deadline) override {
    return origin_->remove_abandoned(folder, deadline);
  }

  std::unique_ptr<Claim> claim(std::string_view folder, Deadline deadline) override {
    return origin_->claim(folder, deadline);
  }

 private:
  class Writer : public ObjectWriter {
   public:
    Writer(std::unique_ptr<ObjectWriter> inner, CachedStore& store)
        : inner_(std::move(inner)), store_(store) {}
    void write(std::span<const std::byte> bytes) override { inner_->write(bytes); }
    ObjectInfo commit() override {
      ObjectInfo made = inner_->commit();
      store_.note(made.key, made);
      return made;
    }

   private:
    std::unique_ptr<ObjectWriter> inner_;
    CachedStore& store_;
  };

  void note(const std::string& key, const std::optional<ObjectInfo>& found) {
    CachedObjects& objects = known_.get().objects;
    const auto before = objects.find(key);
    if (!found)
      objects.forget(key);
    else if (!before || before->version != found->version || before->size != found->size)
      objects.note(key, {.size = found->size, .version = found->version});
  }

  std::shared_ptr<Store> origin_;
  std::function<Tiers&()> tiers_;
  os::PerProcess<Known> known_;
};

}  // namespace

std::uint64_t origin_hash(const Hash128& key, std::string_view url) { return siphash(key, url)[0]; }

std::uint64_t object_hash(const Hash128& key, std::string_view url, std::string_view object_key) {
  return siphash(key, object_url(url, object_key))[0];
}

std::shared_ptr<Store> cached_store(std::shared_ptr<Store> origin, std::function<Tiers&()> tiers) {
  return std::make_shared<CachedStore>(std::move(origin), std::move(tiers));
}

}  // namespace bedplate::store::cache
