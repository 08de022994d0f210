#include "data/import_rows.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "data/internal/pack_destination.h"
#include "data/packed_index.h"
#include "data/packed_writer.h"

namespace bedplate::data {
namespace {

using State = PackRecord::State;
using End = PackReport::End;

// What a row adds to a shard besides its bytes, at most: its place in the index, and the pages that
// it begins, of a new block with its table.
constexpr std::int64_t kOfARow = 3 * static_cast<std::int64_t>(packed::kPage);

std::vector<PackRecord::Option> options_of(const RowImportOptions& options) {
  std::vector<PackRecord::Option> out = {
      {"--format", "packed"},
      {"--from", options.kind},
      {"--shard-bytes", options.shard_samples > 0 ? "" : fmt::format("{}", options.shard_bytes)},
      {"--shard-samples",
       options.shard_samples > 0 ? fmt::format("{}", options.shard_samples) : ""}};
  out.insert(out.end(), options.how.begin(), options.how.end());
  return out;
}

}  // namespace

class RowImport::Impl {
 public:
  Impl(std::span<const std::string> urls, const std::string& destination, RowImportOptions options,
       const Watch& watch)
      : options_(std::move(options)),
        listing_(list_source(urls, {.kind = options_.kind, .timeout = options_.timeout}, watch)),
        destination_(destination, {.existing = options_.existing,
                                   .timeout = options_.timeout,
                                   .wrap = options_.wrap_destination}) {
    check_shard_size(options_.shard_bytes, options_.shard_samples);
    destination_.refuse_overlaps(listing_);
    destination_.claim();
    destination_.look();
    record_.options = options_of(options_);
    record_.source = {std::ssize(listing_.objects), listing_.bytes, listing_.fingerprint};
    destination_.refuse_what_is_not_ours(record_);
    report_.kind = listing_.kind;
    report_.source_objects = record_.source.objects;
    report_.source_bytes = record_.source.bytes;
    report_.notes = listing_.notes;
    report_.end = End::kPlanned;
    if (!destination_.is_all_there()) return;
    destination_.release();
    report_.end = End::kNothingToDo;
    report_.schema = destination_.before()->schema;
    for (const PackRecord::Shard& shard : destination_.before()->shards) count(shard);
  }

  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Without a shard there is nothing to go on with: whoever mends the options begins anew.
  ~Impl() {
    writer_.reset();
    if (!begun_ || !record_.shards.empty()) return;
    try {
      destination_.withdraw();
    } catch (const Error&) {
      // It stays, and says what was begun.
    }
  }

  const SourceListing& listing() const { return listing_; }
  const PackReport& report() const { return report_; }
  std::int64_t rows_to_skip() const { return to_skip_; }

  void begin(const Schema& schema) {
    schema_ = schema;
    record_.schema = schema.to_json();
    const auto& before = destination_.before();
    if (before && !destination_.overwrites() && before->state != State::kClearing &&
        !before->schema.empty() && Schema::from_json(before->schema) != schema) {
      throw Error(Code::kExists,
                  "{} holds shards with other columns ({}): give another folder, or --overwrite",
                  destination_.store().url(), before->schema);
    }
    destination_.begin(record_);
    report_ = {.kind = report_.kind,
               .schema = record_.schema,
               .source_objects = report_.source_objects,
               .source_bytes = report_.source_bytes,
               .notes = std::move(report_.notes),
               .abandoned = destination_.remove_abandoned()};
    begun_ = true;
    take_found();
  }

  void skip(std::int64_t rows) {
    if (rows < 0 || rows > to_skip_)
      throw Error(Code::kInvalid, "{} rows are to be left out, not {}", to_skip_, rows);
    to_skip_ -= rows;
    row_ += rows;
  }

  void add(std::int64_t rows, std::span<const RowColumn> columns) {
    check(rows, columns);
    std::vector<std::span<const std::byte>> values(columns.size());
    for (std::int64_t i = 0; i < rows; ++i) {
      if (to_skip_ > 0) {
        skip(1);
        continue;
      }
      for (std::size_t c = 0; c < columns.size(); ++c) values[c] = value_of(columns[c], rows, i);
      add_row(values);
    }
  }

  PackReport finish() {
    check_begun();
    end_shard();
    if (to_skip_ > 0) {
      throw Error(Code::kCorrupt,
                  "{} holds {} samples more than the source has rows: --overwrite makes it anew",
                  destination_.store().url(), to_skip_);
    }
    if (row_ == 0)
      throw Error(Code::kNotFound, "there are no rows in the {} files of the source",
                  listing_.objects.size());
    report_.end = End::kDone;
    destination_.end(record_);
    begun_ = false;
    return report_;
  }

 private:
  void check_begun() const {
    if (!begun_) throw Error(Code::kInvalid, "the import was not begun, or is at its end");
  }

  // The schema's checks are of bytes; these are of what add() goes through.
  void check(std::int64_t rows, std::span<const RowColumn> columns) const {
    check_begun();
    if (rows < 0 || columns.size() != schema_.columns().size())
      throw Error(Code::kInvalid, "{} rows of {} columns, where the shards have {}", rows,
                  columns.size(), schema_.columns().size());
    for (std::size_t c = 0; c < columns.size(); ++c) {
      const auto& [bytes, offsets] = columns[c];
      const bool whole = offsets.empty()
                             ? rows == 0 || std::ssize(bytes) % rows == 0
                             : std::ssize(offsets) == rows + 1 && offsets.front() >= 0 &&
                                   std::ranges::is_sorted(offsets) &&
                                   offsets.back() <= std::ssize(bytes);
      if (!whole)
        throw Error(Code::kInvalid, "column {}: its {} bytes are not {} rows",
                    to_utf8(schema_.columns()[c].name), bytes.size(), rows);
    }
  }

  static std::span<const std::byte> value_of(const RowColumn& column, std::int64_t rows,
                                             std::int64_t row) {
    const std::int64_t size = std::ssize(column.bytes) / rows;
    const auto at = static_cast<std::size_t>(row);
    const std::int64_t begin = column.offsets.empty() ? row * size : column.offsets[at];
    const std::int64_t end = column.offsets.empty() ? begin + size : column.offsets[at + 1];
    return column.bytes.subspan(static_cast<std::size_t>(begin),
                                static_cast<std::size_t>(end - begin));
  }

  void add_row(std::span<const std::span<const std::byte>> values) {
    if (writer_ && is_full(values)) {
      end_shard();
      if (to_skip_ > 0) return skip(1);
    }
    if (!writer_) writer_.emplace(destination_.create(name()), schema_);
    try {
      writer_->add(values);
    } catch (const Error& error) {
      if (error.code() != Code::kInvalid) throw;
      throw Error(Code::kInvalid, "row {}: {}", row_, error.what());
    }
    ++row_;
  }

  bool is_full(std::span<const std::span<const std::byte>> values) const {
    if (options_.shard_samples > 0) return writer_->records() == options_.shard_samples;
    std::int64_t more = kOfARow;
    for (const auto& value : values) more += std::ssize(value);
    return writer_->bytes() + more > options_.shard_bytes;
  }

  std::string name() const { return destination_.name_of_shard(record_.shards.size(), 0); }

  void end_shard() {
    if (!writer_) return;
    const std::int64_t samples = writer_->records();
    const store::ObjectInfo made = destination_.finish([&] { return writer_->finish(); });
    writer_.reset();
    ++report_.shards_made;
    count({name(), samples, made.size});
    take_found();
  }

  // Shards that are there already stand for the rows that come next.
  void take_found() {
    while (const store::ObjectInfo* found = destination_.find(name())) {
      const auto index =
          open_packed(destination_.store(), *found, CutOff::kRefuse, destination_.deadline());
      if (index->schema() == nullptr || *index->schema() != schema_) {
        throw Error(Code::kCorrupt, "{} in {} has other columns: remove it, and it is made again",
                    to_utf8(found->key), destination_.store().url());
      }
      to_skip_ += index->samples();
      count({name(), index->samples(), found->size});
    }
  }

  void count(const PackRecord::Shard& shard) {
    record_.shards.push_back(shard);
    record_.planned.push_back(shard.samples);
    ++report_.shards;
    report_.samples += shard.samples;
    report_.bytes += shard.bytes;
  }

  const RowImportOptions options_;
  const SourceListing listing_;
  PackDestination destination_;
  PackRecord record_;
  PackReport report_;
  Schema schema_;
  bool begun_ = false;
  std::optional<PackedWriter> writer_;  // of the shard that is being written
  std::int64_t to_skip_ = 0;
  std::int64_t row_ = 0;  // that comes next
};

RowImport::RowImport(std::span<const std::string> urls, const std::string& destination,
                     RowImportOptions options, const Watch& watch)
    : impl_(std::make_unique<Impl>(urls, destination, std::move(options), watch)) {}
RowImport::~RowImport() = default;

const SourceListing& RowImport::source() const { return impl_->listing(); }
bool RowImport::nothing_to_do() const { return impl_->report().end == End::kNothingToDo; }
PackReport RowImport::report() const { return impl_->report(); }
void RowImport::begin(const Schema& schema) { impl_->begin(schema); }
std::int64_t RowImport::rows_to_skip() const { return impl_->rows_to_skip(); }
void RowImport::skip(std::int64_t rows) { impl_->skip(rows); }
void RowImport::add(std::int64_t rows, std::span<const RowColumn> columns) {
  impl_->add(rows, columns);
}
PackReport RowImport::finish() { return impl_->finish(); }

}  // namespace bedplate::data
