#include "data/listing.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "data/manifest.h"
#include "data/object_table.h"

namespace bedplate::data {
namespace {

constexpr std::int64_t kMostListingBytes = 16 * kGiB;

std::string_view file_of(std::string_view name) { return name.substr(name.rfind('/') + 1); }

// "a/b/photo.JPG" → "jpg".
std::string field_of(std::string_view name) {
  const std::string_view file = file_of(name);
  const auto dot = file.rfind('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == file.size()) return "file";
  std::string out(file.substr(dot + 1));
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 'a' - 'A') : c;
  return out;
}

// "a/b/photo.JPG" → "b"; empty for a file that lies in no folder.
std::string_view class_of(std::string_view name) {
  const auto slash = name.rfind('/');
  if (slash == std::string_view::npos) return {};
  return file_of(name.substr(0, slash));
}

bool is_sample(std::string_view name) {
  const std::string_view file = file_of(name);
  if (file.empty() || file == kListingName || file == kManifestName) return false;
  return std::ranges::none_of(split(name, '/'), [](auto part) { return part.starts_with('.'); });
}

// As in all formats: a sample is read whole into memory.
void check_size(std::string_view name, std::int64_t size) {
  if (size <= UINT32_MAX) return;
  throw Error(Code::kUnsupported, "{} has {} bytes; a sample must be smaller than 4 GiB",
              to_utf8(name), size);
}

class ListingIndex : public ShardIndex {
 public:
  ListingIndex(store::ObjectInfo listing, ObjectTable files)
      : ShardIndex(std::move(listing)),
        files_(std::move(files)),
        prefix_(object_.key.substr(0, object_.key.rfind('/') + 1)) {}

  std::int64_t samples() const override { return files_.rows(); }
  Extent extent(std::int64_t sample) const override { return {0, files_.row(sample).size, {}}; }
  const store::ObjectInfo& object(std::int64_t sample, store::ObjectInfo& scratch) const override {
    const ObjectRow file = files_.row(sample);
    scratch.key = prefix_;
    scratch.key += file.name;
    scratch.size = file.size;
    scratch.version = file.version;
    return scratch;
  }
  void unpack(std::int64_t sample, std::span<const std::byte> raw, Sample& out) const override {
    const std::string_view name = files_.row(sample).name;
    out.clear();
    out.key = name;
    out.fields.push_back({field_of(name), Dtype::kBytes, {std::ssize(raw)}, raw});
    const std::string_view folder = class_of(name);
    if (folder.empty() || out.fields.front().name == "class") return;
    const std::string& kept = out.owned.emplace_back(folder);
    out.fields.push_back(
        {"class", Dtype::kUtf8, {std::ssize(kept)}, std::as_bytes(std::span(kept))});
  }
  std::int64_t memory_bytes() const override { return files_.memory_bytes(); }

 private:
  ObjectTable files_;
  std::string prefix_;
};

struct Listed {
  std::string table;
  std::int64_t files = 0;
  std::int64_t bytes = 0;
};

Listed list_files(store::Store& store, const std::string& prefix, Deadline deadline) {
  std::vector<store::ObjectInfo> files;
  const auto visit = [&](const store::ObjectInfo& info) {
    if (is_sample(std::string_view(info.key).substr(prefix.size()))) files.push_back(info);
  };
  store.list(prefix, visit, deadline);
  if (files.empty())
    throw Error(Code::kNotFound, "there are no files below {} in {}", to_utf8(prefix), store.url());
  Listed out{.files = std::ssize(files)};
  std::vector<ObjectRow> rows;
  rows.reserve(files.size());
  for (const store::ObjectInfo& file : files) {
    check_size(file.key, file.size);
    rows.push_back({std::string_view(file.key).substr(prefix.size()), file.size, 1, file.version});
    out.bytes += file.size;
  }
  out.table = ObjectTable::write(kListingMagic, "", rows);
  return out;
}

}  // namespace

ListingMade write_listing(store::Store& store, const std::string& prefix, Deadline deadline) {
  const Listed listed = list_files(store, prefix, deadline);
  const std::string key = prefix + std::string(kListingName);
  auto object = store.find(key, deadline);
  ListingMade out{.files = listed.files, .bytes = listed.bytes};
  if (object) {
    const bool same = object->size == std::ssize(listed.table) &&
                      store::get(store, key, kMostListingBytes, deadline) == listed.table;
    out.before = same ? ListingMade::Before::kTheSame : ListingMade::Before::kAnother;
  }
  out.object =
      out.before == ListingMade::Before::kTheSame
          ? *std::move(object)
          : store::put(store, key, listed.table, store::IfExists::kReplace, deadline.left());
  return out;
}

std::shared_ptr<const ShardIndex> open_listing(store::Store& store,
                                               const store::ObjectInfo& listing,
                                               Deadline deadline) {
  try {
    ObjectTable files(store::get(store, listing.key, kMostListingBytes, deadline), kListingMagic);
    for (std::int64_t i = 0; i < files.rows(); ++i)
      check_size(files.row(i).name, files.row(i).size);
    return std::make_shared<ListingIndex>(listing, std::move(files));
  } catch (const Error& error) {
    if (error.code() != Code::kCorrupt) throw;
    throw Error(Code::kCorrupt, "{} in {} is no listing of files, or a damaged one: {}",
                to_utf8(listing.key), store.url(), error.what());
  }
}

std::shared_ptr<const ShardIndex> freeze_listing(store::Store& store, const std::string& prefix,
                                                 Deadline deadline) {
  Listed listed = list_files(store, prefix, deadline);
  return std::make_shared<ListingIndex>(
      store::ObjectInfo{prefix + std::string(kListingName), listed.bytes, ""},
      ObjectTable(std::move(listed.table), kListingMagic));
}

}  // namespace bedplate::data
