// Loose files as samples: one a file, or those that share a name up to its first dot.
#include <algorithm>
#include <limits>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "data/pack_source.h"

namespace bedplate::data {
namespace {

using Unit = SourceOptions::Unit;

struct Name {
  std::string key;
  std::string field;
};

// "a/b.seg.png" → {"a/b", "seg.png"}; a name without a dot has the field "bin".
Name split_name(std::string_view name) {
  const std::size_t last = name.rfind('/') + 1;
  const std::size_t dot = name.find('.', last);
  if (dot == std::string_view::npos || dot == last || dot + 1 == name.size())
    return {std::string(name), "bin"};
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

class FilesSource : public PackSource {
 public:
  FilesSource(const SourceListing& listing, Target target, const SourceOptions& options)
      : objects_(listing.objects), target_(target), text_(listing.kind == "text") {
    group_ = !text_ && options.unit != Unit::kFile;
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      check_size(objects_[i]);
      const bool joins = group_ && i > 0 && objects_[i].store == objects_[i - 1].store &&
                         split_name(objects_[i].name).key == split_name(objects_[i - 1].name).key;
      if (!joins) starts_.push_back(i);
    }
    starts_.push_back(objects_.size());
    check_keys();
    if (target_ == Target::kPacked) make_schema(options);
  }

  std::int64_t samples() const override { return std::ssize(starts_) - 1; }

  Cost cost(std::int64_t sample) const override {
    Cost cost{0, 0};
    for (const SourceObject& one : of(sample)) {
      cost.bytes += one.object.size;
      ++cost.fields;
    }
    return cost;
  }

  void pieces(std::int64_t sample, std::vector<Piece>& out) const override {
    for (const SourceObject& one : of(sample))
      out.push_back({.store = one.store.get(),
                     .key = one.object.key,
                     .version = one.object.version,
                     .bytes = one.object.size});
  }

  void unpack(std::int64_t sample, std::span<const std::span<const std::byte>> raw,
              Sample& out) const override {
    out.clear();
    const auto files = of(sample);
    out.key = key_of_sample(sample);
    for (std::size_t i = 0; i < files.size(); ++i) {
      const auto bytes = raw[i];
      if (text_ && !is_utf8({reinterpret_cast<const char*>(bytes.data()), bytes.size()}))
        throw Error(Code::kInvalid, "it is no UTF-8 text");
      out.fields.push_back(
          {field_of(files[i]), text_ ? Dtype::kUtf8 : Dtype::kBytes, {std::ssize(bytes)}, bytes});
    }
  }

  std::string name_of(std::int64_t sample) const override {
    const auto files = of(sample);
    return fmt::format("{} in {}", to_utf8(files.front().object.key), files.front().store->url());
  }

  const Schema& schema() const override { return *schema_; }

 private:
  std::span<const SourceObject> of(std::int64_t sample) const {
    const auto at = static_cast<std::size_t>(sample);
    return std::span(objects_).subspan(starts_[at], starts_[at + 1] - starts_[at]);
  }

  static void check_size(const SourceObject& one) {
    if (one.object.size > std::int64_t{std::numeric_limits<std::uint32_t>::max()} - kMiB)
      throw Error(Code::kInvalid, "{} in {} has {}: a sample has less than 4 GiB",
                  to_utf8(one.object.key), one.store->url(),
                  human_bytes(static_cast<double>(one.object.size)));
  }

  // In a tar a sample that is one file must not take the key of its neighbours.
  std::string key_of_sample(std::int64_t sample) const {
    const std::string& name = of(sample).front().name;
    if (group_) return split_name(name).key;
    if (target_ == Target::kPacked) return name;
    std::string key = name;
    std::replace(key.begin() + static_cast<std::ptrdiff_t>(name.rfind('/') + 1), key.end(), '.',
                 '_');
    return key;
  }

  std::string field_of(const SourceObject& one) const {
    if (text_) return target_ == Target::kPacked ? "text" : "txt";
    if (!group_ && target_ == Target::kPacked) return "bytes";
    return split_name(one.name).field;
  }

  // Two samples of one key could not be told apart.
  void check_keys() const {
    std::unordered_set<std::string> keys;
    for (std::int64_t i = 0; i < samples(); ++i) {
      std::string key = key_of_sample(i);
      if (!keys.insert(key).second) {
        throw Error(Code::kInvalid,
                    "two samples have the key {}: one of them is {}; give the folder above both, "
                    "or take each file for a sample (--sample file)",
                    to_utf8(key), name_of(i));
      }
    }
  }

  void make_schema(const SourceOptions& options) {
    std::vector<Column> columns;
    if (auto key = key_column(options.keys)) columns.push_back(*std::move(key));
    const auto fields_of = [&](std::int64_t sample) {
      std::set<std::string> names;
      for (const SourceObject& one : of(sample)) names.insert(field_of(one));
      return names;
    };
    const std::set<std::string> fields = fields_of(0);
    for (std::int64_t i = 0; i < samples(); ++i) {
      if (options.keys == SourceOptions::Keys::kText && !is_utf8(key_of_sample(i))) {
        throw Error(Code::kInvalid,
                    "the name of {} is no UTF-8 text; --keys bytes keeps such names, --keys none "
                    "leaves all names away",
                    name_of(i));
      }
      if (group_ && fields_of(i) != fields) {
        throw Error(Code::kInvalid,
                    "{} has the fields {}, {} has {}: the samples of packed shards have the same "
                    "ones; --format webdataset takes any, and --sample file each file by itself",
                    name_of(0), to_utf8(fmt::format("{}", fmt::join(fields, ", "))), name_of(i),
                    to_utf8(fmt::format("{}", fmt::join(fields_of(i), ", "))));
      }
    }
    for (const std::string& field : fields)
      columns.push_back({.name = field, .dtype = text_ ? Dtype::kUtf8 : Dtype::kBytes});
    schema_ = Schema(std::move(columns));
  }

  const std::vector<SourceObject> objects_;
  const Target target_;
  const bool text_;
  bool group_ = false;
  std::vector<std::size_t> starts_;  // of each sample's objects, and the end
  std::optional<Schema> schema_;
};

}  // namespace

std::unique_ptr<PackSource> open_files_source(const SourceListing& listing, Target target,
                                              const SourceOptions& options) {
  if (options.unit == Unit::kLine)
    throw Error(Code::kInvalid, "lines are samples of text (--from text), not of files");
  return std::make_unique<FilesSource>(listing, target, options);
}

}  // namespace bedplate::data
