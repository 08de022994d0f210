#include "data/tar_writer.h"

#include <set>

#include "base/error.h"
#include "base/text.h"
#include "data/tar_format.h"

namespace bedplate::data {

void TarWriter::add(std::string_view key, std::span<const Part> parts) {
  if (parts.empty()) throw Error(Code::kInvalid, "sample {} has no fields", to_utf8(key));
  if (samples_ > 0 && key == last_key_)
    throw Error(Code::kInvalid, "two neighbouring samples have the key {}", to_utf8(key));
  std::set<std::string_view> fields;
  for (const Part& part : parts) {
    const std::string name = fmt::format("{}.{}", key, part.field);
    const auto split = split_tar_name(name);
    if (!split || split->key != key || split->field != part.field || key.starts_with('/') ||
        part.field.empty() || name.find('\0') != std::string::npos) {
      throw Error(
          Code::kInvalid,
          "'{}' with a field '{}' would not come back as it is: a key ends before the first "
          "dot of its last part",
          to_utf8(key), to_utf8(part.field));
    }
    if (!fields.insert(part.field).second)
      throw Error(Code::kInvalid, "sample {} has two fields {}", to_utf8(key), to_utf8(part.field));
  }
  for (const Part& part : parts) {
    const std::int64_t size = std::ssize(part.bytes);
    write(make_tar_header(fmt::format("{}.{}", key, part.field), size));
    write({reinterpret_cast<const char*>(part.bytes.data()), part.bytes.size()});
    write(std::string(static_cast<std::size_t>(padded_to_block(size) - size), '\0'));
  }
  last_key_ = key;
  ++samples_;
}

store::ObjectInfo TarWriter::finish() {
  write(std::string(2 * kTarBlock, '\0'));
  return out_->commit();
}

void TarWriter::write(std::string_view bytes) {
  if (bytes.empty()) return;
  out_->write(std::as_bytes(std::span(bytes)));
  written_ += std::ssize(bytes);
}

}  // namespace bedplate::data
