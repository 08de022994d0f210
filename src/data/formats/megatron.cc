// Megatron-LM's indexed data sets, NAME.idx beside NAME.bin: each sequence is a sample.
//
// NAME.idx (megatron/core/datasets/indexed_dataset.py, _IndexWriter): "MMIDIDX\0\0", u64 version 1,
// u8 code of the dtype, u64 sequences, u64 documents; then sequences × i32 lengths in elements,
// sequences × i64 places in NAME.bin in bytes, documents × i64, and, in multimodal sets only,
// sequences × i8 modes. All of it little-endian and unaligned. There are no checksums.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/format.h"

namespace bedplate::data {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view kSuffix = ".idx";
constexpr std::size_t kHeader = 34;
constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr std::string_view kOldMagic("TNTIDX\0\0", 8);  // fairseq's, and Megatron's "lazy" sets
// By their codes; 0 is none.
constexpr std::array<Dtype, 9> kDtypes = {Dtype::kBytes, Dtype::kU8,  Dtype::kI8,
                                          Dtype::kI16,   Dtype::kI32, Dtype::kI64,
                                          Dtype::kF64,   Dtype::kF32, Dtype::kU16};

// 12 bytes of memory a sample, 13 in multimodal sets.
class MegatronIndex : public ShardIndex {
 public:
  MegatronIndex(store::ObjectInfo index, store::ObjectInfo bin, Dtype dtype,
                std::vector<std::int32_t> lengths, std::vector<std::int64_t> places,
                std::vector<std::int8_t> modes)
      : ShardIndex(std::move(index)),
        bin_(std::move(bin)),
        dtype_(dtype),
        lengths_(std::move(lengths)),
        places_(std::move(places)),
        modes_(std::move(modes)) {}

  std::int64_t samples() const override { return std::ssize(lengths_); }
  Extent extent(std::int64_t sample) const override {
    const auto at = static_cast<std::size_t>(sample);
    return {places_[at], lengths_[at] * static_cast<std::int64_t>(size_of(dtype_)), {}};
  }
  const store::ObjectInfo& object(std::int64_t, store::ObjectInfo&) const override { return bin_; }
  void unpack(std::int64_t sample, std::span<const std::byte> raw, Sample& out) const override {
    out.clear();
    const auto at = static_cast<std::size_t>(sample);
    out.fields.push_back({"tokens", dtype_, {lengths_[at]}, raw});
    if (!modes_.empty())
      out.fields.push_back({"mode", Dtype::kI8, {}, std::as_bytes(std::span(&modes_[at], 1))});
  }
  std::int64_t memory_bytes() const override {
    return static_cast<std::int64_t>(lengths_.capacity() * sizeof lengths_[0] +
                                     places_.capacity() * sizeof places_[0] + modes_.capacity());
  }

 private:
  store::ObjectInfo bin_;
  Dtype dtype_;
  std::vector<std::int32_t> lengths_;
  std::vector<std::int64_t> places_;
  std::vector<std::int8_t> modes_;  // of multimodal sets, else empty
};

// One index while it is opened.
class Opening {
 public:
  Opening(store::Store& store, const store::ObjectInfo& index, Deadline deadline)
      : store_(store), index_(index), deadline_(deadline) {}

  std::shared_ptr<const ShardIndex> open(CutOff cut_off) {
    read_header();
    const std::string name = index_.key.substr(0, index_.key.size() - kSuffix.size());
    const store::ObjectInfo bin = store::info(store_, name + ".bin", deadline_);
    auto lengths = read_table<std::int32_t>(sequences_);
    auto places = read_table<std::int64_t>(sequences_);
    at_ += documents_ * sizeof(std::int64_t);
    auto modes = read_table<std::int8_t>(has_modes_ ? sequences_ : 0);
    const std::size_t whole = count_whole(lengths, places, bin);
    if (whole < lengths.size()) {
      if (cut_off == CutOff::kRefuse) {
        throw Error(Code::kCorrupt,
                    "sequence {} of {} in {} lies outside of {}, which has {} bytes: a copy that "
                    "broke off? {} sequences before it are there, which can be recovered",
                    whole, to_utf8(index_.key), store_.url(), to_utf8(bin.key), bin.size, whole);
      }
      lengths.resize(whole);
      places.resize(whole);
      if (has_modes_) modes.resize(whole);
    }
    return std::make_shared<MegatronIndex>(index_, bin, dtype_, std::move(lengths),
                                           std::move(places), std::move(modes));
  }

 private:
  Error corrupt(std::string_view what) const {
    return {Code::kCorrupt, "{} in {} is no index of Megatron's, or a damaged one: {}",
            to_utf8(index_.key), store_.url(), what};
  }

  void read(std::uint64_t offset, std::span<std::byte> into) {
    store::read_exactly(store_,
                        {.key = index_.key,
                         .offset = static_cast<std::int64_t>(offset),
                         .into = into,
                         .version = index_.version},
                        deadline_);
  }

  void read_header() {
    std::array<char, kHeader> header{};
    const auto there = std::min<std::int64_t>(index_.size, kHeader);
    read(0, std::as_writable_bytes(std::span(header).first(static_cast<std::size_t>(there))));
    const std::string_view text(header.data(), static_cast<std::size_t>(there));
    if (text.starts_with(kOldMagic)) {
      throw Error(Code::kUnsupported,
                  "{} in {} is of Megatron's old kind (TNTIDX); preprocess the data again with "
                  "--dataset-impl mmap",
                  to_utf8(index_.key), store_.url());
    }
    if (!text.starts_with(kMagic)) throw corrupt("it begins otherwise");
    if (text.size() < kHeader) throw corrupt("its header is cut off");
    const auto number = [&](std::size_t at) {
      std::uint64_t value = 0;
      std::memcpy(&value, header.data() + at, sizeof value);
      return value;
    };
    if (number(9) != 1)
      throw Error(Code::kUnsupported, "{} in {} is of version {}; only version 1 is read",
                  to_utf8(index_.key), store_.url(), number(9));
    const auto code = static_cast<unsigned char>(header[17]);
    if (code == 0 || code >= kDtypes.size())
      throw corrupt(fmt::format("it has a dtype of the code {}", code));
    dtype_ = kDtypes[code];
    sequences_ = number(18);
    documents_ = number(26);
    check_sizes(static_cast<std::uint64_t>(index_.size) - kHeader);
  }

  void check_sizes(std::uint64_t tables) {
    constexpr std::uint64_t kEach = sizeof(std::int32_t) + sizeof(std::int64_t);
    const bool fits = sequences_ <= tables / kEach &&
                      documents_ <= (tables - sequences_ * kEach) / sizeof(std::int64_t);
    const std::uint64_t rest =
        fits ? tables - sequences_ * kEach - documents_ * sizeof(std::int64_t) : 0;
    if (!fits || (rest != 0 && rest != sequences_)) {
      throw corrupt(fmt::format("{} sequences and {} documents do not make its {} bytes",
                                sequences_, documents_, index_.size));
    }
    has_modes_ = rest != 0;
  }

  template <typename T>
  std::vector<T> read_table(std::uint64_t count) {
    std::vector<T> table(count);
    read(at_, std::as_writable_bytes(std::span(table)));
    at_ += count * sizeof(T);
    return table;
  }

  // Sequences before the first one that does not lie in the data.
  std::size_t count_whole(const std::vector<std::int32_t>& lengths,
                          const std::vector<std::int64_t>& places,
                          const store::ObjectInfo& bin) const {
    const auto each = static_cast<std::int64_t>(size_of(dtype_));
    std::size_t i = 0;
    for (; i < lengths.size(); ++i) {
      if (lengths[i] < 0 || places[i] < 0)
        throw corrupt(
            fmt::format("sequence {} has length {} and place {}", i, lengths[i], places[i]));
      if (places[i] > bin.size || lengths[i] > (bin.size - places[i]) / each) break;
    }
    return i;
  }

  store::Store& store_;
  const store::ObjectInfo& index_;
  Deadline deadline_;
  Dtype dtype_ = Dtype::kBytes;
  std::uint64_t sequences_ = 0;
  std::uint64_t documents_ = 0;
  bool has_modes_ = false;
  std::uint64_t at_ = kHeader;
};

std::shared_ptr<const ShardIndex> open(const std::shared_ptr<store::Store>& store,
                                       const store::ObjectInfo& shard,
                                       const ShardOptions& options) {
  if (!shard.key.ends_with(kSuffix))
    throw Error(Code::kInvalid, "{}: Megatron's sets are named by their {} file",
                to_utf8(shard.key), kSuffix);
  return Opening(*store, shard, Deadline::after(options.timeout)).open(options.cut_off);
}

}  // namespace

extern const Format kMegatron = {
    .name = "megatron",
    .summary = "Megatron-LM's indexed sets, NAME.idx beside NAME.bin; a sequence is a sample",
    .is_shard = [](std::string_view key) { return key.ends_with(kSuffix); },
    .open = open,
    .samples = Format::Samples::kElsewhere,
};

}  // namespace bedplate::data
