// From samples to the columns of a batch.
//
//   Collator collator({{.name = "jpg|png", .kind = FieldKind::kImage, .image = {.height = 224, …}},
//                      {.name = "cls", .kind = FieldKind::kNumber, .dtype = Dtype::kI64}},
//                     dataset->get(0));
//   collator.lay_out(rows, slab, batch);
//   for (…) collator.put(sample, row, seed, batch);
//   collator.finish(batch);
//
// Thread-safe but for the batch, which one thread fills.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/decode/image.h"
#include "data/shard_index.h"

namespace bedplate::data {

enum class FieldKind {
  kAsIs,    // numbers of equal shape as they are; bytes and text of any length
  kCast,    // numbers of equal shape as `dtype`
  kNumber,  // one number: a scalar, or text such as "3"
  kPadded,  // numbers of any length, cut or filled to `length`
  kRagged,  // numbers of any length, as they are
  kImage,   // JPEG or PNG → u8 pictures of one size
  kNpy,     // a .npy file → numbers of equal shape
};

struct FieldSpec {
  // In the sample; "jpg|png": the first that is there; "__key__": its name, where it has one.
  std::string name;
  std::string as = {};  // of the column; empty: `name` up to the first "|"
  FieldKind kind = FieldKind::kAsIs;
  Dtype dtype = Dtype::kI64;  // kNumber, kCast
  std::int64_t length = 0;    // kPadded: elements of the first dimension
  double fill = 0;            // kPadded
  ImageSpec image = {};       // kImage
  ImageDecoderOptions decoder = {};
};

class Collator {
 public:
  // No specs: all fields of the example, as they are. Shapes and types come from it. Error
  // {kInvalid} for what it does not have and for specs that contradict it.
  Collator(std::vector<FieldSpec> specs, const Sample& example);
  ~Collator();

  // Bytes in the slab that `rows` rows take. Error{kInvalid} for more than any machine has.
  std::size_t slab_bytes(std::int64_t rows) const;
  void lay_out(std::int64_t rows, std::shared_ptr<Slab> slab, Batch& batch) const;

  // Error{kInvalid} when the sample's shape or type is not the example's, with what would help;
  // kCorrupt for pictures and texts that are none. Rows in ascending order. The random parts of
  // pictures are drawn from `seed`.
  void put(const Sample& sample, std::int64_t row, std::uint64_t seed, Batch& batch) const;
  // Row `from` once more as row `to`: in the place of one that could not be read.
  void repeat(std::int64_t from, std::int64_t to, Batch& batch) const;
  void finish(Batch& batch) const;

  // When every sample is one field that goes into the slab as it lies in the shard: its column.
  // The loader then reads into the rows themselves.
  bool whole_record(const ShardIndex& index) const;
  std::size_t row_bytes(std::size_t column) const;
  std::string names() const;  // of the columns, for messages: "jpg, cls"
  // Names, types and shapes.
  bool same_columns(const Collator& other) const;

 private:
  struct Column;
  std::vector<Column> columns_;
};

}  // namespace bedplate::data
