// Writes a WebDataset tar that every tar reads.
//
//   TarWriter tar(store.create("000000.tar", IfExists::kRefuse, timeout));
//   tar.add("000017", {{"jpg", picture}, {"cls", "3"}});
//   const ObjectInfo made = tar.finish();
//
// One thread. Errors are those of the store, and Error{kInvalid} for keys and fields that would not
// come back as they were given: nothing of such a sample is written.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "store/store.h"

namespace bedplate::data {

class TarWriter {
 public:
  explicit TarWriter(std::unique_ptr<store::ObjectWriter> out) : out_(std::move(out)) {}

  struct Part {
    std::string_view field;  // "jpg"
    std::span<const std::byte> bytes;
  };
  void add(std::string_view key, std::span<const Part> parts);
  std::int64_t samples() const { return samples_; }
  std::int64_t bytes() const { return written_; }  // so far; the end adds 1 KiB
  store::ObjectInfo finish();

 private:
  void write(std::string_view bytes);

  std::unique_ptr<store::ObjectWriter> out_;
  std::string last_key_;
  std::int64_t samples_ = 0;
  std::int64_t written_ = 0;
};

}  // namespace bedplate::data
