// The one exception type of Bedplate.
//
//   throw Error(Code::kNotFound, "{} has no run.db; give the folder of a run", path);
//
// Thrown where the outside world failed: a file is missing, a peer died, the input is bad. The
// message says what happened, to what, and what to do. Expected absence is std::optional; a broken
// invariant is BEDPLATE_CHECK.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace bedplate {

enum class Code {
  kInvalid,      // the caller's input is wrong
  kNotFound,     // a thing that was named does not exist
  kExists,       // a thing that should not exist does
  kPermission,   // not permitted to this user: root or a capability would help
  kUnsupported,  // not supported by this kernel, machine or build: no permission would help
  kNoSpace,      // disk, quota or memory is full
  kIo,           // the device or file system failed
  kCorrupt,      // data is not what it must be: truncated, wrong checksum, newer format
  kTimeout,      // a deadline passed
  kUnavailable,  // a peer or service does not answer; trying again may help
  kInternal,     // a bug of ours
};

std::string_view name(Code code);

class Error : public std::runtime_error {
 public:
  template <typename... Args>
  Error(Code code, fmt::format_string<Args...> format, Args&&... args)
      : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)), code_(code) {}

  Code code() const { return code_; }

 private:
  Code code_;
};

// An Error for a failed system call: `what` names the call's purpose and object; the code and the
// reason come from errno.
Error errno_error(int error_number, std::string_view what);

// Aborts with file, line and the condition: for invariants whose breach is a bug of ours.
#define BEDPLATE_CHECK(condition) \
  ((condition) ? void() : ::bedplate::check_failed(#condition, __FILE__, __LINE__))

[[noreturn]] void check_failed(const char* condition, const char* file, int line);

}  // namespace bedplate
