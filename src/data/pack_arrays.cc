// Arrays as samples: files of tokens that are cut into pieces of one length, and the rows of .npy
// files.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "data/decode/npy.h"
#include "data/pack_source.h"
#include "data/parallel.h"

namespace bedplate::data {
namespace {

// Rows of equal size, side by side from some byte on.
struct Rows {
  std::int64_t first = 0;   // its first sample
  std::int64_t offset = 0;  // of the first row in the file
};

class ArraysSource : public PackSource {
 public:
  ArraysSource(const SourceListing& listing, Column column, std::int64_t row_bytes)
      : objects_(listing.objects),
        column_(std::move(column)),
        row_bytes_(row_bytes),
        schema_({column_}) {}

  void add(std::int64_t rows, std::int64_t offset) {
    rows_.push_back({samples_, offset});
    samples_ += rows;
  }
  void note(std::string text) { notes_.push_back(std::move(text)); }

  std::int64_t samples() const override { return samples_; }
  Cost cost(std::int64_t) const override { return {row_bytes_, 1}; }

  void pieces(std::int64_t sample, std::vector<Piece>& out) const override {
    const auto [object, row] = place(sample);
    const SourceObject& one = objects_[object];
    out.push_back({.store = one.store.get(),
                   .key = one.object.key,
                   .version = one.object.version,
                   .offset = rows_[object].offset + row * row_bytes_,
                   .bytes = row_bytes_});
  }

  void unpack(std::int64_t, std::span<const std::span<const std::byte>> raw,
              Sample& out) const override {
    out.clear();
    out.fields.push_back({column_.name, column_.dtype, column_.shape, raw.front()});
  }

  std::string name_of(std::int64_t sample) const override {
    const auto [object, row] = place(sample);
    return fmt::format("row {} of {} in {}", row, to_utf8(objects_[object].object.key),
                       objects_[object].store->url());
  }

  const Schema& schema() const override { return schema_; }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  struct Place {
    std::size_t object;
    std::int64_t row;
  };
  Place place(std::int64_t sample) const {
    const auto behind = std::ranges::upper_bound(rows_, sample, {}, &Rows::first);
    const auto object = static_cast<std::size_t>(behind - rows_.begin()) - 1;
    return {object, sample - rows_[object].first};
  }

  const std::vector<SourceObject> objects_;
  const Column column_;
  const std::int64_t row_bytes_;
  const Schema schema_;
  std::vector<Rows> rows_;  // of each object
  std::int64_t samples_ = 0;
  std::vector<std::string> notes_;
};

std::string place_of(const SourceObject& one) {
  return fmt::format("{} in {}", to_utf8(one.object.key), one.store->url());
}

NpyHead head_of(const SourceObject& one, const PackSourceOptions& options) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(std::min(one.object.size, kMostNpyHead)));
  try {
    store::read_exactly(*one.store,
                        {.key = one.object.key, .into = bytes, .version = one.object.version},
                        Deadline::after(options.timeout));
    NpyHead head = parse_npy_head(bytes);
    if (head.shape.empty())
      throw Error(Code::kInvalid, "it is a single number: its rows are to be the samples");
    return head;
  } catch (const Error& error) {
    throw Error(error.code(), "{}: {}", place_of(one), error.what());
  }
}

// What a file of tokens holds, and from where on.
struct TokenFile {
  Dtype dtype = Dtype::kBytes;
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
};

TokenFile look_at_tokens(const SourceObject& one, const PackSourceOptions& options) {
  if (!one.name.ends_with(".npy")) {
    if (!options.tokens)
      throw Error(Code::kInvalid,
                  "{} does not say what it holds: give --tokens DTYPE (u16, u32, …)",
                  place_of(one));
    return {*options.tokens, 0, one.object.size};
  }
  const NpyHead head = head_of(one, options);
  if (head.shape.size() != 1) {
    throw Error(Code::kInvalid,
                "{} has the shape [{}]: its rows are samples already, leave out --tokens and "
                "--length",
                place_of(one), fmt::join(head.shape, ", "));
  }
  if (options.tokens && *options.tokens != head.dtype) {
    throw Error(Code::kInvalid, "{} holds {}, not {}: leave out --tokens, a .npy says it itself",
                place_of(one), name(head.dtype), name(*options.tokens));
  }
  if (one.object.size - head.head_bytes != head.data_bytes) {
    throw Error(Code::kCorrupt, "{} has {} bytes of numbers where its head promises {}",
                place_of(one), one.object.size - head.head_bytes, head.data_bytes);
  }
  return {head.dtype, head.head_bytes, head.data_bytes};
}

std::unique_ptr<PackSource> open_tokens(const SourceListing& listing,
                                        const PackSourceOptions& options) {
  std::vector<TokenFile> files(listing.objects.size());
  for_each_of(files.size(), std::max(4, options.threads),
              [&](std::size_t i) { files[i] = look_at_tokens(listing.objects[i], options); });
  const Dtype dtype = files.front().dtype;
  if (dtype == Dtype::kBytes || dtype == Dtype::kUtf8)
    throw Error(Code::kInvalid, "tokens are numbers, not {}", name(dtype));
  const auto size = static_cast<std::int64_t>(size_of(dtype));
  const Column column{.name = options.column.empty() ? "tokens" : options.column,
                      .dtype = dtype,
                      .shape = {options.length}};
  Schema({column});  // a length that is too large ends here
  const std::int64_t row_bytes = options.length * size;
  auto source = std::make_unique<ArraysSource>(listing, column, row_bytes);
  std::int64_t left = 0;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const SourceObject& one = listing.objects[i];
    const TokenFile& file = files[i];
    if (file.dtype != dtype) {
      throw Error(Code::kInvalid, "{} holds {}, {} holds {}: pack them apart", place_of(one),
                  name(file.dtype), place_of(listing.objects.front()), name(dtype));
    }
    if (file.bytes % size != 0) {
      throw Error(Code::kInvalid,
                  "{} has {} bytes, no multiple of the {} of a {}: what does it hold?",
                  place_of(one), file.bytes, size, name(dtype));
    }
    source->add(file.bytes / row_bytes, file.offset);
    left += file.bytes % row_bytes / size;
  }
  if (left > 0) {
    source->note(fmt::format("{} tokens at the ends of {} files are left out: they fill no sample",
                             left, listing.objects.size()));
  }
  if (source->samples() == 0)
    throw Error(Code::kInvalid, "none of the files has the {} tokens of one sample",
                options.length);
  return source;
}

std::unique_ptr<PackSource> open_npy(const SourceListing& listing,
                                     const PackSourceOptions& options) {
  std::vector<NpyHead> heads(listing.objects.size());
  for_each_of(heads.size(), std::max(4, options.threads),
              [&](std::size_t i) { heads[i] = head_of(listing.objects[i], options); });
  const NpyHead& first = heads.front();
  if (first.shape.size() == 1) {
    throw Error(Code::kInvalid,
                "{} is a row of {} numbers, each of which would be a sample: give --length N, and "
                "N of them are one (--length 1, if you mean that)",
                place_of(listing.objects.front()), first.shape.front());
  }
  Column column{.name = options.column.empty() ? "array" : options.column,
                .dtype = first.dtype,
                .shape = {first.shape.begin() + 1, first.shape.end()}};
  Schema({column});
  std::int64_t row_bytes = static_cast<std::int64_t>(size_of(first.dtype));
  for (const std::int64_t n : column.shape) row_bytes *= n;
  auto source = std::make_unique<ArraysSource>(listing, column, row_bytes);
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const SourceObject& one = listing.objects[i];
    const NpyHead& head = heads[i];
    const std::vector<std::int64_t> row{head.shape.begin() + 1, head.shape.end()};
    if (head.dtype != first.dtype || row != column.shape) {
      throw Error(Code::kInvalid, "{} has rows of {}[{}], {} has {}[{}]: pack them apart",
                  place_of(one), name(head.dtype), fmt::join(row, ", "),
                  place_of(listing.objects.front()), name(first.dtype),
                  fmt::join(column.shape, ", "));
    }
    const std::int64_t there = one.object.size - head.head_bytes;
    if (row_bytes > 0 ? there / row_bytes != head.shape.front() || there % row_bytes != 0
                      : there != 0) {
      throw Error(Code::kCorrupt, "{} has {} bytes of rows where its head promises {} rows of {}",
                  place_of(one), there, head.shape.front(), row_bytes);
    }
    source->add(head.shape.front(), head.head_bytes);
  }
  if (source->samples() == 0)
    throw Error(Code::kNotFound, "the arrays that were named have no rows");
  return source;
}

}  // namespace

std::unique_ptr<PackSource> open_arrays_source(const SourceListing& listing,
                                               const PackSourceOptions& options) {
  return listing.kind == "tokens" ? open_tokens(listing, options) : open_npy(listing, options);
}

}  // namespace bedplate::data
