// A table of objects as one file: the manifest of a data set, a frozen listing of loose files.
//
//   const std::string bytes = ObjectTable::write(kManifestMagic, "webdataset", rows);
//   const ObjectTable table(bytes, kManifestMagic);       // throws when it is damaged
//   table.find("train-000017.tar")->number                // by bisection
//
// A value; thread-safe to read. Keeps the file's bytes and eight more a row. The layout:
// docs/formats.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bedplate::data {

struct ObjectRow {
  std::string_view name;     // a key, below the folder that the table is of
  std::int64_t size = 0;     // bytes
  std::int64_t number = 0;   // what the table says of it: a manifest, its samples
  std::string_view version;  // store::ObjectInfo::version

  bool operator==(const ObjectRow&) const = default;
};

class ObjectTable {
 public:
  static constexpr std::size_t kMagicBytes = 8;

  // Rows in the order of their names' bytes, without repetitions, else Error{kInvalid}; so for
  // names that are no keys.
  static std::string write(std::string_view magic, std::string_view text,
                           std::span<const ObjectRow> rows);

  ObjectTable() = default;
  // Error{kCorrupt}, without the file's name, for what is no such table or a damaged one.
  ObjectTable(std::string bytes, std::string_view magic);

  std::string_view text() const { return std::string_view(bytes_).substr(kHeader, text_bytes_); }
  std::int64_t rows() const { return std::ssize(places_); }
  // 0 <= row < rows(), else undefined. Views into the table.
  ObjectRow row(std::int64_t row) const { return row_at(places_[static_cast<std::size_t>(row)]); }
  std::optional<ObjectRow> find(std::string_view name) const;
  std::int64_t memory_bytes() const;

 private:
  static constexpr std::size_t kHeader = 32;

  ObjectRow row_at(std::uint64_t place) const;
  // Where the next row begins.
  std::uint64_t check_row(std::uint64_t place) const;

  std::string bytes_;
  std::size_t text_bytes_ = 0;
  std::vector<std::uint64_t> places_;
};

}  // namespace bedplate::data
