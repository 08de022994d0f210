#include "store/fault_store.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

namespace bedplate::store {
namespace {

class FaultWriter : public ObjectWriter {
 public:
  FaultWriter(std::unique_ptr<ObjectWriter> inner, const Faults& faults)
      : inner_(std::move(inner)), faults_(faults) {}

  void write(std::span<const std::byte> bytes) override {
    if (faults_.before_write) faults_.before_write(written_, bytes.size());
    inner_->write(bytes);
    written_ += std::ssize(bytes);
  }
  ObjectInfo commit() override {
    if (faults_.before_commit) faults_.before_commit();
    return inner_->commit();
  }

 private:
  std::unique_ptr<ObjectWriter> inner_;
  const Faults& faults_;
  std::int64_t written_ = 0;
};

// True for the first `times` calls.
class Times {
 public:
  explicit Times(int times) : left_(std::make_shared<std::atomic<int>>(times)) {}
  bool once_more() const { return left_->fetch_sub(1) > 0; }

 private:
  std::shared_ptr<std::atomic<int>> left_;  // by the copies that std::function makes
};

}  // namespace

BeforeRead fail_first(int reads, Code code) {
  return [times = Times(reads), code](const Read& read) -> std::optional<Error> {
    if (!times.once_more()) return std::nullopt;
    return Error(code, "a fault on purpose, of {}", read.key);
  };
}

BeforeRead delay(Nanos length) {
  return [length](const Read&) -> std::optional<Error> {
    std::this_thread::sleep_for(std::chrono::nanoseconds(length));
    return std::nullopt;
  };
}

BeforeRead cut_off(std::string key, std::int64_t end) {
  return [key = std::move(key), end](const Read& read) -> std::optional<Error> {
    if (read.key != key || read.offset + std::ssize(read.into) <= end) return std::nullopt;
    return Error(Code::kInvalid, "{} ends at byte {}", key, end);
  };
}

decltype(Faults::after_read) flip_bit(std::string key, std::int64_t byte, int times) {
  return [key = std::move(key), byte, left = Times(times)](Read& read) {
    if (read.key != key || byte < read.offset || byte >= read.offset + std::ssize(read.into))
      return;
    if (left.once_more()) read.into[static_cast<std::size_t>(byte - read.offset)] ^= std::byte{1};
  };
}

decltype(Faults::before_write) no_space_after(std::int64_t bytes) {
  return [bytes](std::int64_t written, std::size_t more) {
    if (written + static_cast<std::int64_t>(more) > bytes)
      throw errno_error(ENOSPC, "cannot write, on purpose");
  };
}

void FaultStore::read(std::span<Read> reads, Deadline deadline) {
  std::vector<Read> passed;
  std::vector<Read*> of_passed;
  begin_reads(reads, [&](Read& one) {
    if (faults_.before_read) {
      if (const auto fault = faults_.before_read(one)) throw *fault;
    }
    passed.push_back(one);
    of_passed.push_back(&one);
  });
  inner_->read(passed, deadline);
  for (std::size_t i = 0; i < passed.size(); ++i) {
    if (!passed[i].error && faults_.after_read) faults_.after_read(passed[i]);
    of_passed[i]->error = passed[i].error;
  }
}

std::unique_ptr<ObjectWriter> FaultStore::create(std::string_view key, IfExists if_exists,
                                                 Nanos timeout) {
  return std::make_unique<FaultWriter>(inner_->create(key, if_exists, timeout), faults_);
}

}  // namespace bedplate::store
