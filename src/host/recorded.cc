#include "host/recorded.h"

#include <filesystem>

#include "base/error.h"
#include "base/text.h"

namespace bedplate::host {
namespace {

namespace fs = std::filesystem;

bool holds_machine(const fs::path& folder) {
  std::error_code error;
  return fs::is_directory(folder / "proc", error) || fs::is_directory(folder / "sys", error);
}

}  // namespace

os::HostRoot open_machine(const std::string& from) {
  if (from.empty()) return os::HostRoot();
  const fs::path folder(from);
  std::error_code error;
  if (!fs::exists(folder, error)) {
    throw Error(Code::kNotFound,
                "{} does not exist; give a folder with proc/ and sys/ of a recorded machine",
                to_utf8(from));
  }
  if (!fs::is_directory(folder, error)) {
    throw Error(Code::kUnsupported, "{} is not a folder; unpack it first: tar -xf {}",
                to_utf8(from), shell_quote(to_utf8(from)));
  }
  if (holds_machine(folder)) return os::HostRoot(folder);
  if (holds_machine(folder / "t0000")) return os::HostRoot(folder / "t0000");
  throw Error(Code::kInvalid, "{} holds neither proc/ nor sys/, nor a snapshot t0000/ with them",
              to_utf8(from));
}

}  // namespace bedplate::host
