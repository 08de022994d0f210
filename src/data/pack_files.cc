// Loose files as samples: one a file, or those that share a name up to its first dot.
#include <algorithm>
#include <iterator>
#include <limits>
#include <set>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/pack_source.h"

namespace bedplate::data {
namespace {

using Unit = PackSourceOptions::Unit;

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

// "a/img.v1.0.jpg" → {"a/img.v1.0", "jpg"}.
Name split_at_last_dot(std::string_view name) {
  const std::size_t last = name.rfind('/') + 1;
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot <= last || dot + 1 == name.size())
    return split_name(name);
  return {std::string(name.substr(0, dot)), std::string(name.substr(dot + 1))};
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
  return out;
}

bool is_picture(std::string_view name) {
  constexpr std::string_view kEndings[] = {"jpg", "jpeg", "png",  "webp", "bmp",
                                           "gif", "tif",  "tiff", "ppm",  "pgm"};
  return std::ranges::find(kEndings, lower(split_at_last_dot(name).field)) != std::end(kEndings);
}

// How files become the columns of packed shards. All pictures that a Loader decodes may be one
// column: what they are, their bytes tell.
struct Naming {
  enum class Alone {
    kFirstDot,
    kLastDot
  } alone = Alone::kFirstDot;  // of a sample that is one file
  enum class Pictures { kByEnding, kJoined } pictures = Pictures::kByEnding;

  // One name for each kind of picture, however it is spelt.
  std::string column_of(std::string field) const {
    const std::string spelt = lower(field);
    const bool jpeg = spelt == "jpg" || spelt == "jpeg";
    const bool png = spelt == "png";
    if (jpeg || (png && pictures == Pictures::kJoined)) return "jpg";
    return png ? "png" : field;
  }
};

class FilesSource : public PackSource {
 public:
  FilesSource(const SourceListing& listing, Target target, const PackSourceOptions& options)
      : objects_(listing.objects), target_(target), text_(listing.kind == "text") {
    group_ = !text_ && options.unit != Unit::kFile;
    for (std::size_t i = 0; i < objects_.size(); ++i) {
      check_size(objects_[i]);
      const bool joins = group_ && i > 0 && objects_[i].store == objects_[i - 1].store &&
                         split_name(objects_[i].name).key == split_name(objects_[i - 1].name).key;
      if (!joins) starts_.push_back(i);
    }
    starts_.push_back(objects_.size());
    if (wants_labels(listing, options)) number_classes();
    if (!classes_.empty() && group_ && are_pictures_apart()) take_apart();
    if (target_ == Target::kPacked) choose_naming();
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
    if (classes_.empty()) return cost;
    return {cost.bytes + std::int64_t{sizeof(std::int64_t)}, cost.fields + 1};
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
          {column_of(files, i), text_ ? Dtype::kUtf8 : Dtype::kBytes, {std::ssize(bytes)}, bytes});
    }
    if (!classes_.empty()) add_label(files.front(), out);
  }

  std::string name_of(std::int64_t sample) const override {
    const auto files = of(sample);
    return fmt::format("{} in {}", to_utf8(files.front().object.key), files.front().store->url());
  }

  const Schema& schema() const override { return *schema_; }
  std::vector<std::string> notes() const override { return notes_; }
  std::vector<std::string> classes() const override { return classes_; }

 private:
  using Files = std::span<const SourceObject>;

  Files of(std::int64_t sample) const {
    const auto at = static_cast<std::size_t>(sample);
    return std::span(objects_).subspan(starts_[at], starts_[at + 1] - starts_[at]);
  }

  static void check_size(const SourceObject& one) {
    if (one.object.size > std::int64_t{std::numeric_limits<std::uint32_t>::max()} - kMiB)
      throw Error(Code::kInvalid, "{} in {} has {}: a sample has less than 4 GiB",
                  to_utf8(one.object.key), one.store->url(),
                  human_bytes(static_cast<double>(one.object.size)));
  }

  Name name_in(Files files, std::size_t file) const {
    const bool last_dot = apart_ || (files.size() == 1 && naming_.alone == Naming::Alone::kLastDot);
    return last_dot ? split_at_last_dot(files[file].name) : split_name(files[file].name);
  }

  // In a tar a sample that is one file must not take the key of its neighbours.
  std::string key_of_sample(std::int64_t sample) const {
    const Files files = of(sample);
    std::string key = group_ ? name_in(files, 0).key : files.front().name;
    if (target_ == Target::kPacked || (group_ && !apart_)) return key;
    std::replace(key.begin() + static_cast<std::ptrdiff_t>(key.rfind('/') + 1), key.end(), '.',
                 '_');
    return key;
  }

  std::string column_of(Files files, std::size_t file) const {
    if (text_) return target_ == Target::kPacked ? "text" : "txt";
    if (!group_ && target_ == Target::kPacked) return "bytes";
    std::string field = name_in(files, file).field;
    return target_ == Target::kPacked ? naming_.column_of(std::move(field)) : field;
  }

  // Sorted; one that comes twice is in it twice.
  std::vector<std::string> columns_of(std::int64_t sample) const {
    const Files files = of(sample);
    std::vector<std::string> names;
    for (std::size_t i = 0; i < files.size(); ++i) names.push_back(column_of(files, i));
    std::ranges::sort(names);
    return names;
  }

  // The first sample whose columns are not those of sample 0, or are no columns; -1: there is none.
  std::int64_t first_unlike() const {
    const auto columns = columns_of(0);
    if (std::ranges::adjacent_find(columns) != columns.end()) return 0;
    for (std::int64_t i = 1; i < samples(); ++i) {
      if (columns_of(i) != columns) return i;
    }
    return -1;
  }

  // Pictures of classes whose names have more dots, "p.0.jpg" and "p.1.jpg": no parts of one
  // sample, of which one would be just "p.jpg".
  bool are_pictures_apart() const {
    bool any = false;
    for (std::int64_t i = 0; i < samples(); ++i) {
      const Files files = of(i);
      for (const SourceObject& one : files) {
        if (!is_picture(one.name)) return false;
        const bool plain = split_name(one.name).field.find('.') == std::string::npos;
        if (files.size() > 1 && plain) return false;
      }
      any |= files.size() > 1;
    }
    return any;
  }

  void take_apart() {
    apart_ = true;
    starts_.clear();
    for (std::size_t i = 0; i <= objects_.size(); ++i) starts_.push_back(i);
    notes_.emplace_back("each picture is a sample: names are divided at their last dot");
  }

  // The first way of naming in which all samples have the same columns.
  void choose_naming() {
    using Alone = Naming::Alone;
    using Pictures = Naming::Pictures;
    if (!group_) return;
    for (const Alone alone : {Alone::kFirstDot, Alone::kLastDot}) {
      for (const Pictures pictures : {Pictures::kByEnding, Pictures::kJoined}) {
        naming_ = {alone, pictures};
        if (first_unlike() >= 0) continue;
        if (pictures == Pictures::kJoined)
          notes_.emplace_back("JPEG and PNG files are one column, jpg");
        if (alone == Alone::kLastDot && !apart_)
          notes_.emplace_back("names are divided at their last dot where no file shares the first");
        return;
      }
    }
    naming_ = {};
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

  // --- labels -------------------------------------------------------------------------------

  static std::string_view class_of(const SourceObject& one) {
    const std::string_view name = one.name;
    const std::size_t slash = name.find('/');
    return slash == std::string_view::npos ? std::string_view() : name.substr(0, slash);
  }

  bool wants_labels(const SourceListing& listing, const PackSourceOptions& options) {
    using Labels = PackSourceOptions::Labels;
    if (options.labels != Labels::kUsual) return options.labels == Labels::kFolder;
    // Folders of these names divide a set otherwise than into classes.
    constexpr std::string_view kParts[] = {"train", "training", "val",   "valid", "validation",
                                           "test",  "images",   "masks", "labels"};
    if (text_ || listing.folders.size() != 1) return false;
    std::set<std::string_view> folders;
    bool side_by_side = true;
    for (const SourceObject& one : objects_) {
      if (!is_picture(one.name)) return false;
      const std::string_view name = class_of(one);
      if (name.empty()) return false;
      side_by_side &= std::ranges::count(one.name, '/') == 1 &&
                      std::ranges::find(kParts, lower(name)) == std::end(kParts);
      folders.insert(name);
    }
    if (side_by_side && folders.size() > 1) return true;
    notes_.emplace_back("the samples get no labels; --labels folder makes them of the folders");
    return false;
  }

  void number_classes() {
    std::set<std::string> names;
    for (const SourceObject& one : objects_) {
      const std::string_view name = class_of(one);
      if (name.empty()) {
        throw Error(Code::kInvalid,
                    "{} in {} lies in no folder of a class: give the folder above those of the "
                    "classes, or leave the file out by --exclude",
                    to_utf8(one.object.key), one.store->url());
      }
      if (!is_utf8(name))
        throw Error(Code::kInvalid, "the folder {} in {} has a name that is no UTF-8 text",
                    to_utf8(name), one.store->url());
      names.emplace(name);
    }
    classes_.assign(names.begin(), names.end());
    constexpr std::size_t kShown = 4;
    std::string shown;
    for (std::size_t i = 0; i < std::min(kShown, classes_.size()); ++i)
      shown += fmt::format("{}{} = {}", i == 0 ? "" : ", ", classes_[i], i);
    notes_.push_back(fmt::format(
        "labels are of the folders: {}{}, in the column {}", shown,
        classes_.size() > kShown ? fmt::format(", …, {} = {}", classes_.back(), classes_.size() - 1)
                                 : "",
        kLabelColumn));
  }

  void add_label(const SourceObject& one, Sample& out) const {
    const auto at = std::ranges::lower_bound(classes_, class_of(one));
    const auto number = static_cast<std::int64_t>(at - classes_.begin());
    const bool packed = target_ == Target::kPacked;
    const std::string& bytes = out.owned.emplace_back(
        packed ? std::string(reinterpret_cast<const char*>(&number), sizeof number)
               : fmt::format("{}", number));
    for (const Field& field : out.fields) {
      if (field.name == kLabelColumn)
        throw Error(Code::kInvalid, "it has a {} of its own: --labels none keeps that",
                    kLabelColumn);
    }
    std::vector<std::int64_t> shape;
    if (!packed) shape.push_back(std::ssize(bytes));
    out.fields.push_back({std::string(kLabelColumn), packed ? Dtype::kI64 : Dtype::kBytes,
                          std::move(shape), std::as_bytes(std::span(bytes))});
  }

  // ------------------------------------------------------------------------------------------

  void make_schema(const PackSourceOptions& options) {
    std::vector<Column> columns;
    if (auto key = key_column(options.keys)) columns.push_back(*std::move(key));
    for (std::int64_t i = 0; i < samples(); ++i) {
      if (options.keys == PackSourceOptions::Keys::kText && !is_utf8(key_of_sample(i))) {
        throw Error(Code::kInvalid,
                    "the name of {} is no UTF-8 text; --keys bytes keeps such names, --keys none "
                    "leaves all names away",
                    name_of(i));
      }
    }
    if (const std::int64_t unlike = group_ ? first_unlike() : -1; unlike > 0) {
      throw Error(Code::kInvalid,
                  "{} has the fields {}, {} has {}: the samples of packed shards have the same "
                  "ones; --exclude 'GLOB' leaves files out, --format webdataset takes any, and "
                  "--sample file each file by itself",
                  name_of(0), to_utf8(fmt::format("{}", fmt::join(columns_of(0), ", "))),
                  name_of(unlike), to_utf8(fmt::format("{}", fmt::join(columns_of(unlike), ", "))));
    }
    for (const std::string& name : columns_of(0))
      columns.push_back({.name = name, .dtype = text_ ? Dtype::kUtf8 : Dtype::kBytes});
    if (!classes_.empty())
      columns.push_back({.name = std::string(kLabelColumn), .dtype = Dtype::kI64});
    schema_ = Schema(std::move(columns));
  }

  const std::vector<SourceObject> objects_;
  const Target target_;
  const bool text_;
  bool group_ = false;
  bool apart_ = false;  // each file is a sample, although names are divided
  Naming naming_;
  std::vector<std::size_t> starts_;  // of each sample's objects, and the end
  std::vector<std::string> classes_;
  std::vector<std::string> notes_;
  std::optional<Schema> schema_;
};

}  // namespace

std::unique_ptr<PackSource> open_files_source(const SourceListing& listing, Target target,
                                              const PackSourceOptions& options) {
  if (options.unit == Unit::kLine)
    throw Error(Code::kInvalid, "lines are samples of text (--from text), not of files");
  return std::make_unique<FilesSource>(listing, target, options);
}

}  // namespace bedplate::data
