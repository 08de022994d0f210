// Samples of shards, of any format that can be read.
#include <algorithm>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/text.h"
#include "data/pack_source.h"

namespace bedplate::data {
namespace {

// Samples whose shapes are looked at where the format has no schema of its own.
constexpr std::int64_t kLookedAt = 64;

class ShardsSource : public PackSource {
 public:
  ShardsSource(std::shared_ptr<const Dataset> dataset, Target target,
               const PackSourceOptions& options)
      : dataset_(std::move(dataset)), options_(options) {
    if (target == Target::kPacked) schema_ = make_schema();
  }

  std::int64_t samples() const override { return dataset_->samples(); }

  Cost cost(std::int64_t sample) const override {
    const auto [shard, at] = dataset_->place(sample);
    return {dataset_->shards()[shard].index().extent(at).bytes, 1};
  }

  void pieces(std::int64_t sample, std::vector<Piece>& out) const override {
    out.push_back(dataset_->piece(sample));
  }

  void unpack(std::int64_t sample, std::span<const std::span<const std::byte>> raw,
              Sample& out) const override {
    dataset_->unpack(sample, raw.front(), out);
  }

  std::string name_of(std::int64_t sample) const override { return dataset_->name_of(sample); }

  const Schema& schema() const override { return *schema_; }

 private:
  Schema make_schema() const {
    if (options_.schema) return *options_.schema;
    const Dataset::Shard& first = dataset_->shards().front();
    if (const Schema* schema = first.index().schema()) return *schema;
    const Sample sample = dataset_->get(0);
    std::vector<Column> columns;
    for (const Field& field : sample.fields) {
      Column column{.name = field.name, .dtype = field.dtype};
      if (field.dtype != Dtype::kBytes && field.dtype != Dtype::kUtf8) column.shape = field.shape;
      columns.push_back(std::move(column));
    }
    loosen(columns);
    std::ranges::sort(columns, {}, &Column::name);  // whatever order the first sample has
    const bool has_key = std::ranges::find(columns, kKeyColumn, &Column::name) != columns.end();
    if (auto key = key_column(options_.keys); key && !sample.key.empty() && !has_key)
      columns.insert(columns.begin(), *std::move(key));
    return Schema(std::move(columns));
  }

  // A first dimension that is not the same in other samples is any.
  void loosen(std::vector<Column>& columns) const {
    const std::int64_t step = std::max<std::int64_t>(1, samples() / kLookedAt);
    for (std::int64_t i = step; i < samples(); i += step) {
      for (const Field& field : dataset_->get(i).fields) {
        const auto column = std::ranges::find(columns, field.name, &Column::name);
        if (column == columns.end() || column->shape.empty() || field.shape.empty()) continue;
        if (column->shape.front() != field.shape.front()) column->shape.front() = kAny;
      }
    }
  }

  const std::shared_ptr<const Dataset> dataset_;
  const PackSourceOptions options_;
  std::optional<Schema> schema_;
};

}  // namespace

std::unique_ptr<PackSource> open_shards_source(const SourceListing& listing, Target target,
                                               const PackSourceOptions& options) {
  auto dataset = Dataset::open(listing.shard_urls, {.format = options.shard_format,
                                                    .shard = {.timeout = options.timeout},
                                                    .store = options.store,
                                                    .open_at_once = std::max(4, options.threads),
                                                    .wrap = options.wrap});
  if (dataset->samples() == 0)
    throw Error(Code::kNotFound, "the shards that were named hold no samples");
  return std::make_unique<ShardsSource>(std::move(dataset), target, options);
}

}  // namespace bedplate::data
