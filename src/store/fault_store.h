// A store that goes wrong on purpose, around any other: for tests of whatever reads or writes.
//
//   auto faulty = std::make_shared<FaultStore>(inner, Faults{.before_read = fail_first(2,
//   Code::kUnavailable)});
//
// As thread-safe as the functions it is given; those made here are.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "store/store.h"

namespace bedplate::store {

struct Faults {
  // In place of the read, when it returns an error. May take its time.
  std::function<std::optional<Error>(const Read&)> before_read = {};
  // What was read well, to be changed.
  std::function<void(Read&)> after_read = {};
  // Before so many more bytes join the `written` ones; may throw.
  std::function<void(std::int64_t written, std::size_t more)> before_write = {};
  std::function<void()> before_commit = {};
};

using BeforeRead = decltype(Faults::before_read);
BeforeRead fail_first(int reads, Code code);
BeforeRead delay(Nanos length);
// Everything from byte `end` of the object on is gone, as after a copy that broke off.
BeforeRead cut_off(std::string key, std::int64_t end);
// One bit of the object is another one, in each read or in the first `times`.
decltype(Faults::after_read) flip_bit(std::string key, std::int64_t byte, int times = 1 << 30);
// The disk is full after so many bytes.
decltype(Faults::before_write) no_space_after(std::int64_t bytes);

class FaultStore : public Store {
 public:
  FaultStore(std::shared_ptr<Store> inner, Faults faults)
      : inner_(std::move(inner)), faults_(std::move(faults)) {}

  std::string url() const override { return inner_->url(); }
  std::optional<ObjectInfo> find(std::string_view key, Deadline deadline) override {
    return inner_->find(key, deadline);
  }
  void read(std::span<Read> reads, Deadline deadline) override;
  void list(std::string_view prefix, const Visit& visit, Deadline deadline) override {
    inner_->list(prefix, visit, deadline);
  }
  std::unique_ptr<ObjectWriter> create(std::string_view key, IfExists if_exists,
                                       Nanos timeout) override;
  std::int64_t remove_abandoned(std::string_view folder, Deadline deadline) override {
    return inner_->remove_abandoned(folder, deadline);
  }
  std::unique_ptr<Claim> claim(std::string_view folder, Deadline deadline) override {
    return inner_->claim(folder, deadline);
  }
  void remove(std::string_view key, Deadline deadline) override { inner_->remove(key, deadline); }

 private:
  std::shared_ptr<Store> inner_;  // shared with whoever looks behind the faults
  Faults faults_;
};

}  // namespace bedplate::store
