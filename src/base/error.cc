#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace bedplate {

std::string_view name(Code code) {
  switch (code) {
    case Code::kInvalid:
      return "invalid";
    case Code::kNotFound:
      return "not found";
    case Code::kExists:
      return "exists";
    case Code::kPermission:
      return "not permitted";
    case Code::kUnsupported:
      return "not supported";
    case Code::kNoSpace:
      return "no space";
    case Code::kIo:
      return "io";
    case Code::kCorrupt:
      return "corrupt";
    case Code::kTimeout:
      return "timeout";
    case Code::kUnavailable:
      return "unavailable";
    case Code::kInternal:
      return "internal";
  }
  return "unknown";
}

namespace {

Code code_of_errno(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
    case ESRCH:
    case ENODEV:
      return Code::kNotFound;
    case EEXIST:
    case ENOTEMPTY:
      return Code::kExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return Code::kPermission;
    case ENOSYS:
    case EOPNOTSUPP:
    case ENOTTY:
      return Code::kUnsupported;
    case ENOSPC:
    case EDQUOT:
    case ENOMEM:
      return Code::kNoSpace;
    case EINVAL:
    case ENAMETOOLONG:
    case E2BIG:
    case EISDIR:
      return Code::kInvalid;
    case ETIMEDOUT:
      return Code::kTimeout;
    case ECONNREFUSED:
    case ENOTCONN:
    case ECONNRESET:
    case EHOSTUNREACH:
      return Code::kUnavailable;
    default:
      return Code::kIo;
  }
}

}  // namespace

Error errno_error(int error_number, std::string_view what) {
  return Error(code_of_errno(error_number), "{}: {}", what, std::strerror(error_number));
}

void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "bedplate: internal error: %s is false (%s:%d)\n", condition, file, line);
  std::abort();
}

}  // namespace bedplate
