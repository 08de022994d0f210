// What readers that stand on libjpeg and libpng share. Both report errors by a function that must
// not return, and both are C: an exception may not pass through them. So that function jumps back
// to guarded(), over C frames alone, and that throws.
#pragma once

#include <setjmp.h>

#include <cstddef>
#include <span>

#include "data/decode/internal/row_reader.h"

namespace bedplate::data {

class JumpReader : public RowReader {
 public:
  void open(std::span<const std::byte> file, const ImageSize& size, const RowWishes& wishes) final {
    close();
    file_ = file;
    size_ = size;
    wishes_ = wishes;
    begin();
    if (wishes.damage == Damage::kRefuse && !has_end()) find_what_is_missing();
  }

 protected:
  // Reads the head, and refuses a file that is too small for a picture of its size before memory is
  // taken for that.
  virtual void begin() = 0;
  // Whether the file's end is there, as far as that can be told without decoding.
  virtual bool has_end() const = 0;
  // Goes through a file without an end, so that it is refused whatever part of it is wanted. If
  // nothing but the end is missing, begins anew.
  virtual void find_what_is_missing() = 0;
  // Throws what the library has reported.
  [[noreturn]] virtual void fail() = 0;

  // Every call of the library that may report an error. `call` must leave nothing to destroy when
  // it is jumped out of.
  template <typename Call>
  __attribute__((noinline)) void guarded(const Call& call) {
    if (setjmp(jump_) != 0) fail();
    call();
  }

  std::span<const std::byte> file_;
  ImageSize size_;
  RowWishes wishes_;
  jmp_buf jump_;
};

}  // namespace bedplate::data
